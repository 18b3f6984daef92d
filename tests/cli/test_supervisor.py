"""A process beside the server: started again when it dies, ended with the server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.cli.serving.sidecar import Bulletin
from headwater.cli.serving.supervisor import Report, Supervisor
from tests.cli.test_processes import wait_until

TELL = "import json, os, signal, sys, time\ndef tell(**r): print(json.dumps(r), flush=True)\n"
UNTIL_TOLD = "sys.stdin.read()\n"


class Witness:
    """Remembers reports and lines, and wakes whoever waits for them."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.said: list[str] = []
        self._changed = asyncio.Event()

    def heed(self, report: Report) -> None:
        self.reports.append(report)
        self._changed.set()

    def say(self, line: str) -> None:
        self.said.append(line)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
def witness() -> Witness:
    return Witness()


class Running:
    """A supervisor that runs a piece of Python, for the length of a block."""

    def __init__(self, code: str, witness: Witness, directory: Path, grace_s: float = 30) -> None:
        self.supervisor = Supervisor(
            "the pipelines",
            [sys.executable, "-c", TELL + code],
            {**os.environ, "PLACE": str(directory)},
            directory / "log",
            witness.heed,
            witness.say,
            first_pause_s=0.001,
            grace_s=grace_s,
        )
        self.hurry = asyncio.Event()

    async def __aenter__(self) -> asyncio.Task[None]:
        self.task = asyncio.create_task(self.supervisor.keep_running())
        return self.task

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.supervisor.stop(self.hurry)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def state_of(pid: int) -> str:
    return subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout[:1]


async def test_it_ends_in_good_order(witness: Witness, tmp_path: Path) -> None:
    code = "tell(**{'is': 'running'})\n" + UNTIL_TOLD
    code += "open(os.environ['PLACE'] + '/done', 'w').close()\n"
    async with Running(code, witness, tmp_path):
        await witness.until(lambda: bool(witness.reports))
    assert witness.reports == [{"is": "running"}]
    assert (tmp_path / "done").exists()
    assert witness.said == []


async def test_it_is_started_again(witness: Witness, tmp_path: Path) -> None:
    code = "tell(**{'is': 'running'})\nprint('noise')\nsys.stderr.write('out of luck')\nsys.exit(7)"
    async with Running(code, witness, tmp_path):
        await witness.until(lambda: len(witness.said) >= 3)
    assert "have ended (exit 7): out of luck; again in" in witness.said[0]
    assert len(witness.reports) >= 3


async def test_its_own_words_count_more(witness: Witness, tmp_path: Path) -> None:
    code = "tell(**{'is': 'failed', 'why': 'no luck', 'final': False})\n"
    code += "os.kill(os.getpid(), signal.SIGKILL)"
    async with Running(code, witness, tmp_path):
        await witness.until(lambda: bool(witness.said))
    assert "have ended (by signal 9): no luck" in witness.said[0]


@pytest.mark.parametrize("does_well", [False, True])
async def test_pauses_grow_until_it_does_well(
    witness: Witness, tmp_path: Path, does_well: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def no_sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        await sleep(0)

    monkeypatch.setattr("headwater.cli.serving.supervisor.asyncio.sleep", no_sleep)
    code = "tell(**{'is': 'progress'})" if does_well else ""
    async with Running(code, witness, tmp_path):
        await witness.until(lambda: len(witness.said) >= 4)
    assert pauses[:3] == ([0.001] * 3 if does_well else [0.001, 0.002, 0.004])


async def test_what_cannot_run_is_left(witness: Witness, tmp_path: Path) -> None:
    code = "tell(**{'is': 'failed', 'why': 'no Java', 'final': True})"
    async with Running(code, witness, tmp_path) as task:
        await task
    assert witness.said == ["the pipelines do not run: no Java; the server continues without them"]


@pytest.mark.parametrize("hurried", [False, True])
async def test_one_that_does_not_listen_is_killed_with_its_children(
    witness: Witness, tmp_path: Path, hurried: bool
) -> None:
    code = (
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "tell(**{'is': 'running', 'pids': [os.getpid(), child.pid]})\n"
        "time.sleep(600)\n"
    )
    running = Running(code, witness, tmp_path, grace_s=600 if hurried else 0.05)
    async with running:
        await witness.until(lambda: bool(witness.reports))
        if hurried:
            running.hurry.set()
    own, child = witness.reports[0]["pids"]
    assert not is_alive(own)
    # Nobody waits for it any more, so it may be there still, but not alive.
    await asyncio.to_thread(wait_until, lambda: not is_alive(child) or state_of(child) == "Z")


async def test_news_now_and_then(witness: Witness) -> None:
    said = witness.said
    bulletin = Bulletin(("archive", "rollup"), witness.say, quiet_s=0.05)
    for rows in (10, 2):
        bulletin.take({"is": "progress", "pipeline": "archive", "rows": rows, "lag_messages": 0})
    assert said == ["archive +10 rows"]
    late = {"lag_messages": 1200, "lag_s": 3.2}
    bulletin.take({"is": "progress", "pipeline": "rollup", "rows": 5000, **late})
    assert said[1:] == ["all tables are there: try the commands above"]
    await witness.until(lambda: len(said) == 3)
    assert said[2] == "archive +2 rows; rollup +5,000 rows, 1,200 behind (3 s)"
    bulletin.take({"is": "left out", "stream": "s", "why": "a bad message"})
    assert said[3] == "the table of s ends here: a bad message"
