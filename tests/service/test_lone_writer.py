"""Who commits: the thread, or for someone who is alone and writes one by one, the loop itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from math import inf

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import StorageUnavailable
from headwater.core.mutations import AnyMutation
from headwater.service import pace
from headwater.service.log import Log
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import begin, data, outcome, read_all

LOOP, THREAD = "on the loop", "on the thread"


@pytest.fixture(autouse=True)
def _every_commit_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "QUICK_S", inf)


@pytest.fixture
async def places(log: Log, engine: FaultyEngine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where each commit was made, of a client that is alone and has written for a while."""
    found: list[str] = []
    here, commit = threading.get_ident(), engine.commit

    def noting(mutations: Sequence[AnyMutation]) -> None:
        found.append(LOOP if threading.get_ident() == here else THREAD)
        commit(mutations)

    monkeypatch.setattr(engine, "commit", noting)
    await log.create(Create("s"))
    log.writer.is_alone = lambda: True
    await write(log, pace.ENOUGH - 1)  # and that was one
    assert set(found) == {THREAD}
    found.clear()
    return found


async def write(log: Log, times: int = 1) -> None:
    for _ in range(times):
        await log.append("s", data(b"x"))
        # It has told us before it is done.
        while not log.writer.thread.is_idle:  # noqa: ASYNC110 - nothing else is waited for
            await asyncio.sleep(0)


async def test_a_lone_writer_is_spared_the_thread(log: Log, places: list[str]) -> None:
    await write(log, 3)
    assert places == [LOOP] * 3
    assert await read_all(log, "s") == b"x" * (pace.ENOUGH + 2)


async def test_whoever_is_not_alone_would_hold_up_others(log: Log, places: list[str]) -> None:
    log.writer.is_alone = lambda: False
    await write(log)
    assert places == [THREAD]
    log.writer.is_alone = None
    await write(log)
    assert places == [THREAD] * 2


async def test_after_a_commit_for_several_it_is_the_thread_again(
    log: Log, places: list[str]
) -> None:
    await asyncio.gather(*(log.append("s", data(b"x")) for _ in range(2)))
    await write(log, pace.ENOUGH + 1)
    assert places == [THREAD] * (pace.ENOUGH + 1) + [LOOP]


async def test_after_a_slow_commit_it_is_the_thread_again(
    log: Log, places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pace, "QUICK_S", 0)
        await write(log, 2)
    await write(log, 2 * pace.SLOW + 1)
    assert places == [LOOP, *[THREAD] * (2 * pace.SLOW + 1), LOOP]


async def test_a_writer_known_to_be_quick_may_be_slow_for_once(
    log: Log, places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(log, pace.ENOUGH)
    with monkeypatch.context() as patch:
        patch.setattr(pace, "QUICK_S", 0)
        await write(log)
    await write(log)
    assert set(places) == {LOOP}


async def test_something_large_is_for_the_thread(log: Log, places: list[str]) -> None:
    await log.append("s", data(b"x" * 100_000))
    assert places == [THREAD]


async def test_what_the_thread_has_to_do_is_not_disturbed(log: Log, places: list[str]) -> None:
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        over.wait(60)

    working = begin(log.writer.run(work))
    assert await asyncio.to_thread(begun.wait, 60)
    append = begin(log.append("s", data(b"x")))
    await asyncio.sleep(0.01)
    assert places == []
    over.set()
    await asyncio.gather(working, append)
    assert places == [THREAD]


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
async def test_a_commit_that_fails(
    log: Log, engine: FaultyEngine, places: list[str], fault: Fault
) -> None:
    before = await read_all(log, "s")
    engine.fail_next(fault)
    assert await outcome(log.append("s", data(b"y"))) is StorageUnavailable
    assert places == [LOOP]
    await write(log)
    stored = b"y" if fault is Fault.AFTER else b""
    assert await read_all(log, "s") == before + stored + b"x"
