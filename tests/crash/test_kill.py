"""The server is killed again and again under load; what it acknowledged must be there.

Each round lets writers, owners and readers loose on the server, kills it at a random moment,
lets `headwater verify` look at what is left, starts it again and reads everything back. See
`history`, `lifecycle` and `workload` for what is checked.

Killing a process leaves what it wrote in the hands of the operating system, so it says nothing
about whether data was synced to the disk in time. Hence the second variant, in which everything
that was not synced is lost with the processes; see `power`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Timer

import pytest
import uvloop

from tests.crash.check import check_directory, until_more
from tests.crash.crew import Crew
from tests.crash.power import PoweredServer
from tests.support.sealing import SEALING_AT_ONCE
from tests.support.server import ServerFailedError, ServerProcess

DATA = "data"
SHARE_OF_TIME = {"process": 0.65, "power": 0.35}
ROUNDS_MIN = 8
DONE_MIN = 20
"""In a round; less than that says nothing."""


async def crash(server: ServerProcess, after_s: float, look_at: Path | None, crew: Crew) -> None:
    before = crew.done
    await asyncio.sleep(after_s)
    await until_more(lambda: crew.done, before + DONE_MIN)
    if look_at is not None:
        # Verifying is safe while the server is running.
        await asyncio.to_thread(check_directory, look_at)
    server.kill()


def crash_while_starting(server: ServerProcess, after_s: float) -> None:
    """Kill it in the middle of its recovery from the last crash, or very soon after."""

    def kill() -> None:
        with suppress(RuntimeError, ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)

    timer = Timer(after_s, kill)
    timer.start()
    try:
        with suppress(ServerFailedError):
            server.start()
    finally:
        timer.join()
    reap(server)


def reap(server: ServerProcess) -> None:
    """Whatever state it is in, it is gone after this."""
    with suppress(RuntimeError):
        server.kill()


def settings(directory: Path, rng: Random) -> tuple[str, ...]:
    """Other settings for every start: much or little in memory, history or not, waiting or not."""
    return (
        *("--data", str(directory), "--log-level", "warning", "--long-poll-timeout-ms", "1000"),
        *("--streams-in-memory-max", rng.choice(("16", "20000"))),
        *("--hot-bytes-per-stream-max", rng.choice(("0", "10000", "1000000"))),
        *("--chunk-bytes-max", rng.choice(("1000", "100000", "1000000"))),
        *("--linger-ms", rng.choice(("0", "0", "5"))),
        *rng.choice(((), SEALING_AT_ONCE, (*SEALING_AT_ONCE, "--segment-bytes", "5000"))),
    )


async def rounds_of(server: ServerProcess, directory: Path, seconds: float, rng: Random) -> None:
    crew = Crew(server.port, rng)
    deadline = time.monotonic() + seconds
    server.start()
    rounds = 0
    while rounds < ROUNDS_MIN or time.monotonic() < deadline:
        crash_after_s = rng.choice((rng.uniform(0.05, 0.5), rng.uniform(0.5, 3)))
        look_at = directory if rng.random() < 0.2 else None
        await crew.work_until(crash(server, crash_after_s, look_at, crew))
        check_directory(directory)
        if rng.random() < 0.25:
            crash_while_starting(server, rng.uniform(0.1, 0.5))
        server.args = settings(directory, rng)
        server.start()
        await crew.check()
        rounds += 1
    assert server.stop() == 0
    server.start()
    await crew.check_everything()
    assert server.stop() == 0
    check_directory(directory)
    print(f"{rounds} crashes, {crew.done} acknowledged requests")
    assert crew.done > DONE_MIN * rounds, "too little happened to say anything"
    assert crew.unavailable == 0, "nothing is wrong with the disk"


def server_that_loses(lost: str, directory: Path, rng: Random) -> ServerProcess:
    """Its process or its power when it is killed."""
    data = directory / DATA
    if lost == "power":
        return PoweredServer(data, directory / "unsynced", rng, *settings(data, rng))
    return ServerProcess(*settings(data, rng))


@pytest.mark.late
@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("lost", ["process", "power"])
def test_what_was_acknowledged_survives(
    lost: str, tmp_path: Path, crash_seconds: int, seed: int
) -> None:
    rng = Random(seed)
    server = server_that_loses(lost, tmp_path, rng)
    seconds = crash_seconds * SHARE_OF_TIME[lost]
    try:
        uvloop.run(rounds_of(server, tmp_path / DATA, seconds, rng))
    except BaseException:
        print(f"--- server ---\n{server.stderr[-20_000:]}")
        raise
    finally:
        reap(server)
    assert "Traceback" not in server.stderr
