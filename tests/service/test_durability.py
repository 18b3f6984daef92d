"""Relaxed durability: answered before the commit, visible after it, consistent whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import SequenceGap, StorageUnavailable, UnknownOffset
from headwater.core.limits import Limits
from headwater.core.offsets import Offset, parse_offset
from headwater.service.log import Log
from tests.service.conftest import StartLog
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import begin, data, outcome, read_all, turns


@pytest.fixture
async def relaxed(log: Log) -> Log:
    await log.create(Create("s", relaxed=True))
    return log


async def test_it_is_answered_before_the_commit_and_visible_after_it(
    relaxed: Log, engine: FaultyEngine
) -> None:
    engine.commit_gate.shut()
    first = await relaxed.append("s", data(b"one"))
    await engine.commit_gate.arrival()
    second = await relaxed.append("s", data(b"two"))
    assert (first.relaxed, second.relaxed) == (True, True)
    assert second.next_offset > first.next_offset
    assert relaxed.view(await relaxed.entry("s")).tail == 0, "nobody sees it yet"
    engine.commit_gate.open()
    # Nobody waits for either, and still both are committed.
    async with asyncio.timeout(60):
        await relaxed.writer._idle.wait()
    assert await read_all(relaxed, "s") == b"onetwo"


async def test_what_rests_on_it_waits(relaxed: Log, engine: FaultyEngine) -> None:
    engine.commit_gate.shut()
    await relaxed.append("s", data(b"one", ("p", 0, 0)))
    again = begin(relaxed.append("s", data(b"one", ("p", 0, 0))))
    closing = begin(relaxed.append("s", Append(close=True)))
    await turns()
    assert not again.done()
    assert not closing.done()
    engine.commit_gate.open()
    assert (await again).duplicate
    assert (await closing).closed
    assert not (await closing).relaxed


async def test_a_failed_commit_takes_it_back_as_a_whole(relaxed: Log, engine: FaultyEngine) -> None:
    await relaxed.append("s", data(b"kept", ("p", 0, 0)))
    await relaxed.writer.reply_after_all(None)
    engine.commit_gate.shut()
    engine.fail_next(Fault.BEFORE)
    lost = await relaxed.append("s", data(b"lost", ("p", 0, 1)))
    await engine.commit_gate.arrival()
    await relaxed.append("s", data(b"built on it", ("p", 0, 2)))
    waiting = begin(outcome(relaxed.append("s", Append(close=True))))
    await turns()
    engine.commit_gate.open()
    assert await waiting is StorageUnavailable
    assert await read_all(relaxed, "s") == b"kept"
    offset = parse_offset(lost.next_offset)
    assert isinstance(offset, Offset)
    assert await outcome(relaxed.read("s", offset)) is UnknownOffset
    with pytest.raises(SequenceGap) as caught:
        await relaxed.append("s", data(b"next", ("p", 0, 9)))
    assert caught.value.expected == 1
    await relaxed.append("s", data(b"!", ("p", 0, 1)))
    await relaxed.writer.reply_after_all(None)
    assert await read_all(relaxed, "s") == b"kept!"


async def test_a_full_queue_refuses_it(start_log: StartLog, engine: FaultyEngine) -> None:
    log = await start_log(Limits(body_bytes_max=10, queue_bytes_max=3_000))
    await log.create(Create("s", relaxed=True))
    engine.commit_gate.shut()
    found = [await outcome(log.append("s", data(b"x"))) for _ in range(9)]
    assert any(isinstance(one, type) for one in found), "429, not memory without end"
    engine.commit_gate.open()


async def test_ensure_changes_it_at_any_time(log: Log) -> None:
    await log.create(Create("s", version=1))
    assert not (await log.append("s", data(b"1"))).relaxed
    await log.create(Create("s", version=2, relaxed=True))
    assert (await log.append("s", data(b"2"))).relaxed
    await log.create(Create("s", version=3))
    assert not (await log.append("s", data(b"3"))).relaxed
    assert await read_all(log, "s") == b"123"
