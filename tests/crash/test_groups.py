"""Groups and transactions while the server is killed again and again; see `jobs`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import pytest
import uvloop

from tests.crash.check import check_directory, until_more
from tests.crash.jobs import Shift
from tests.crash.test_kill import DATA, reap, server_that_loses, settings
from tests.support.server import ServerProcess

SHARE_OF_TIME = 0.12
ROUNDS_MIN = 3
SETTLED_MIN = 20
"""In a round; less than that says nothing."""


async def kill(server: ServerProcess, after_s: float, shift: Shift) -> None:
    before = shift.done
    await asyncio.sleep(after_s)
    await until_more(lambda: shift.done, before + SETTLED_MIN)
    server.kill()


async def shifts(server: ServerProcess, directory: Path, seconds: float, rng: Random) -> None:
    shift = Shift(server.port, rng)
    deadline = time.monotonic() + seconds
    server.start()
    rounds = 0
    while rounds < ROUNDS_MIN or time.monotonic() < deadline:
        after_s = rng.choice((rng.uniform(0.1, 0.5), rng.uniform(0.5, 2)))
        await shift.work_until(kill(server, after_s, shift))
        server.args = settings(directory, rng)
        server.start()
        rounds += 1
    await shift.finish()
    await shift.check()
    assert server.stop() == 0
    check_directory(directory)
    print(f"{rounds} crashes, {shift.done} messages settled")
    assert shift.done > SETTLED_MIN * rounds, "too little happened to say anything"


@pytest.mark.late
@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("lost", ["process", "power"])
def test_work_is_done_exactly_once(
    lost: str, tmp_path: Path, crash_seconds: int, seed: int
) -> None:
    rng = Random(seed)
    server = server_that_loses(lost, tmp_path, rng)
    try:
        uvloop.run(shifts(server, tmp_path / DATA, crash_seconds * SHARE_OF_TIME, rng))
    except BaseException:
        print(f"--- server ---\n{server.stderr[-20_000:]}")
        raise
    finally:
        reap(server)
    assert "Traceback" not in server.stderr
