"""Everything at once: a server, a demo and the pipelines, as a newcomer starts them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.markdown import TUTORIAL, Block
from tests.docs.pasting import DOCUMENTED_PORT, Shell, blocks_to_run, needs_shell
from tests.spark.test_crashes import wait_until
from tests.spark.world import PATIENCE_S, ROOT
from tests.support.server import free_port

READY = "all tables are there"
PROGRAM = "letters.py"


class Up:
    """`headwater up --demo` in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._err = directory / "err"
        self.lake = directory / "lake"
        with self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "headwater", "up", "--demo", "--port", str(self.port)),
                    *("--data", str(directory / "data"), "--lake", str(self.lake)),
                ],
                env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
                stdout=subprocess.PIPE,
                stderr=err,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._err.read_text()

    def commands(self) -> list[str]:
        """What it prints to be pasted."""
        assert self.process.stdout is not None
        found: list[str] = []
        while len(found) < 3:
            line = self.process.stdout.readline().decode()
            assert line, self.said
            if " sql " in line:
                found.append(line.strip())
        return found

    def leftovers(self) -> list[int]:
        """The processes that were started for these tables."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and str(self.lake).encode() in (
                    (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                ):
                    found.append(int(entry.name))
        return found


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    started = Up(tmp_path)
    yield started
    for pid in [started.process.pid, *started.leftovers()]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    started.process.communicate()


def ask(command: str) -> list[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(
        shlex.split(command), env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def paste(blocks: list[Block], up: Up) -> None:
    """Paste blocks of the tutorial, and compare what they print with what the page says."""
    shell = Shell(blocks, up.directory, up.port, {"PYTHONPATH": str(ROOT / "src")})
    try:
        ended = shell.wait()
        for block in blocks:
            shell.check(block)
        assert ended == 0
    finally:
        shell.end()


@needs_shell
@pytest.mark.slow
def test_what_a_newcomer_sees(
    up: Up, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is printed to be pasted, then the tutorial from top to bottom, on one server."""
    commands = up.commands()
    wait_until(lambda: READY in up.said or up.process.poll() is not None)
    assert up.process.poll() is None, up.said
    sales, customers, rollup = map(ask, commands)
    assert len(sales) == 6
    assert '"item":' in sales[1]
    assert len(customers) == 6
    assert customers[0].split() == ["key", "name", "city", "visits"]
    assert any("demo/sales" in line for line in rollup)
    assert len(up.leftovers()) >= 2

    blocks = blocks_to_run(TUTORIAL)
    at = next(i for i, block in enumerate(blocks) if block.file == PROGRAM)
    paste(blocks[:at], up)
    # In the session that runs: another would take its memory and a minute.
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks[at].text.replace(DOCUMENTED_PORT, f":{up.port}"), PROGRAM, "exec"), {})
    paste(blocks[at + 1 :], up)

    # On a busy machine, Spark may have been started more than once until now.
    before = len(up.said)
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(PATIENCE_S) == 0, up.said
    assert up.leftovers() == []
    assert "have ended" not in up.said[before:]
