"""The guide does what it says: its statements and commands are run from top to bottom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.testing import running_server
from tests.docs.markdown import DOCS, Block, Page
from tests.postgres.conftest import TestDatabase

GUIDE = DOCS / "howto" / "postgres.md"
DOCUMENTED = "postgresql://localhost/app"
PATIENCE_S = 60


class Prompt:
    """One shell, which gets the commands one after the other, and a database for the statements."""

    def __init__(self, db: TestDatabase, url: str, directory: Path) -> None:
        self._db = db
        self._directory = directory
        self._shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            cwd=directory,
            env=os.environ | {"STREAM_URL": url},
            text=True,
            start_new_session=True,
        )
        self._send(f'headwater() {{ exec {sys.executable} -m headwater "$@"; }}')

    def run(self, block: Block) -> str:
        """Run a block; returns its output, when it has ended or printed what is expected."""
        if block.language == "sql":
            self._db.execute(block.text)
            return ""
        output = self._directory / f"block-{block.line}"
        commands = block.text.replace(DOCUMENTED, self._db.dsn)
        # In a subshell of its own each command may replace the shell, so that `kill` reaches it.
        lines = [
            f"({line})" if line.startswith("headwater") else line for line in commands.splitlines()
        ]
        if block.background:
            self._send(f"{lines[0]} >{output} 2>&1 &")
        else:
            done = self._directory / f"done-{block.line}"
            self._send(f"{{ {'; '.join(lines)}; }} >{output} 2>&1; touch {done}")
            self._until(done.exists)
        self._until(lambda: block.missing_from(self._shown(output)) is None)
        return self._shown(output)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait()

    def _shown(self, output: Path) -> str:
        text = output.read_text() if output.exists() else ""
        return text.replace("postgres at 127.0.0.1", "app at localhost")

    def _send(self, line: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.02)


def test_the_guide(db: TestDatabase, tmp_path: Path) -> None:
    blocks = [block for block in Page(GUIDE).blocks if block.run]
    assert len(blocks) == 6
    with running_server() as server:
        prompt = Prompt(db, server.url, tmp_path)
        try:
            for block in blocks:
                output = prompt.run(block)
                assert block.missing_from(output) is None, f"{block.text}\nprinted\n{output}"
        finally:
            prompt.end()
    assert db.rows("SELECT FROM pg_replication_slots") == []


def test_the_program_is_valid() -> None:
    (program,) = [block for block in Page(GUIDE).blocks if block.language == "python"]
    names: dict[str, object] = {}
    exec(compile(program.text, str(GUIDE), "exec"), names)
    assert callable(names["main"])


def test_every_statement_and_command_is_run() -> None:
    left_out = [b.text for b in Page(GUIDE).blocks if b.language in ("sql", "sh") and not b.run]
    assert left_out == ["pip install 'headwater[postgres]'\n"]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
