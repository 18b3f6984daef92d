"""The command in the test's own process, as a process of its own, and on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.client import Headwater
from tests.support.server import ServerProcess


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def records(self) -> list[dict[str, Any]]:
        """The output of a command with --json."""
        return [msgspec.json.decode(line) for line in self.lines]

    @property
    def record(self) -> dict[str, Any]:
        (only,) = self.records
        return only


class Run(Protocol):
    def __call__(
        self, *args: str, stdin: str | bytes | None = None, code: int = 0, **env: str | None
    ) -> Ran: ...


class Spawn(Protocol):
    def __call__(self, *args: str, **options: Any) -> subprocess.Popen[bytes]: ...


class Complete(Protocol):
    def __call__(self, line: str, **env: str | None) -> list[str]: ...


@pytest.fixture(scope="session")
def base_url() -> Iterator[str]:
    """A server that all tests of a run share; each uses paths of its own."""
    with ServerProcess("--memory") as server:
        yield server.url


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    """Where the contexts are: nowhere yet."""
    return tmp_path / "config" / "headwater.toml"


@pytest.fixture
def environment(base_url: str, config_file: Path) -> dict[str, str | None]:
    """What the command sees of the environment, beside what is always there."""
    return {
        "STREAM_URL": base_url,
        "STREAM_AUTH": None,
        "HEADWATER_CONFIG": str(config_file),
        "HEADWATER_DEBUG": None,
        "TERM": "xterm",
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }


@pytest.fixture
def run(environment: dict[str, str | None]) -> Run:
    """Run a command here, and check its exit code."""

    def run(*args: str, stdin: str | bytes | None = None, code: int = 0, **env: str | None) -> Ran:
        result = CliRunner().invoke(app, list(args), input=stdin, env={**environment, **env})
        assert result.exit_code == code, f"{result.exit_code}\n{result.stderr}{result.exception!r}"
        assert "Traceback" not in result.stderr
        if code not in (0, 130, 141):
            assert len(result.stderr.splitlines()) == 1, result.stderr
            assert result.stderr.startswith("headwater: ")
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def complete(environment: dict[str, str | None]) -> Complete:
    def complete(line: str, **env: str | None) -> list[str]:
        words = line.split(" ")
        result = CliRunner().invoke(
            app,
            [],
            prog_name="headwater",
            env={
                **environment,
                **env,
                "_HEADWATER_COMPLETE": "complete_bash",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(words) - 1),
            },
        )
        return result.stdout.split()

    return complete


@pytest.fixture
def process_environment(environment: dict[str, str | None]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEADWATER_", "STREAM_"))}
    return kept | {name: value for name, value in environment.items() if value is not None}


@pytest.fixture
def spawn(process_environment: dict[str, str]) -> Iterator[Spawn]:
    """Start a command as a process, with pipes unless told otherwise; ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def spawn(*args: str, **options: Any) -> subprocess.Popen[bytes]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(
            [sys.executable, "-m", "headwater", *args],
            env=process_environment,
            **{**pipes, **options},
        )
        started.append(process)
        return process

    yield spawn
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None and not pipe.closed:
                with suppress(BrokenPipeError):
                    pipe.close()


@pytest.fixture
def client(base_url: str) -> Iterator[Headwater]:
    with Headwater(base_url) as client:
        yield client


@pytest.fixture
def path() -> str:
    """A path that no other test uses."""
    return f"cli/{uuid.uuid4().hex}"


@pytest.fixture
def json_stream(client: Headwater, path: str) -> str:
    client.stream(path).create(content_type="application/json")
    return path


@pytest.fixture
def text_stream(client: Headwater, path: str) -> str:
    client.stream(path).create(content_type="text/plain")
    return path


@pytest.fixture
def bytes_stream(client: Headwater, path: str) -> str:
    client.stream(path).create(content_type="application/octet-stream")
    return path
