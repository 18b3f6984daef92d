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

from tests.spark.test_crashes import SLOW_START, wait_until
from tests.spark.world import PATIENCE_S, ROOT

READY = "all tables are there"


class Up:
    """`headwater up --demo` in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self._err = directory / "err"
        self.lake = directory / "lake"
        with self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "headwater", "up", "--demo", "--port", "0"),
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


@pytest.mark.slow
def test_what_a_newcomer_sees(up: Up) -> None:
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
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(PATIENCE_S) == 0, up.said
    assert up.leftovers() == []
    # A machine that was too busy for Spark has it start again, and nothing else may.
    ended = [line for line in up.said.splitlines() if "have ended" in line]
    assert [line for line in ended if SLOW_START not in line] == []
