"""Streams that keep only a part of their past, on both engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import ConfigConflict, OffsetExpired
from headwater.core.groups.config import GroupConfig
from headwater.core.limits import Limits
from headwater.core.offsets import Anchor, Offset, parse_offset
from headwater.core.retention import Retention
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.store.engine import Problem
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.verify import verify_database
from tests.support.engines import running
from tests.support.faulty_engine import FaultyEngine
from tests.support.logs import ManualClock, data, fork, read_all, until
from tests.support.sealing import AT_ONCE


@pytest.fixture(params=["memory", "sqlite", "history", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultyEngine]:
    with running(request.param, tmp_path) as engine:
        yield FaultyEngine(engine)


@pytest.fixture
async def log(
    engine: FaultyEngine, clock: ManualClock, request: pytest.FixtureRequest
) -> AsyncIterator[Log]:
    limits = Limits(hot_bytes_per_stream_max=0, streams_in_memory_max=16)
    sealing = AT_ONCE if "history" in request.node.callspec.id else None
    log = await Log.start(engine, limits, clock=clock, sealing=sealing)
    yield log
    await log.stop()
    if isinstance(engine.inner, SqliteEngine):
        found = verify_database(engine.inner._path)
        assert [line for line in found if isinstance(line, Problem)] == []


async def fill(log: Log, clock: ManualClock, path: str, retention: Retention | None) -> list[str]:
    """Ten appends of ten bytes, a second apart; the offset behind each."""
    await log.create(Create(path, retention=retention))
    offsets = []
    for number in range(10):
        clock.now_ms += 1_000
        offsets.append((await log.append(path, data(b"%d" % number * 10))).next_offset)
    return offsets


def digits(first: int) -> bytes:
    return b"".join(b"%d" % number * 10 for number in range(first, 10))


async def test_by_size(log: Log, clock: ManualClock) -> None:
    offsets = await fill(log, clock, "s", Retention(size_bytes=35))
    assert await log.trim("s")
    assert not await log.trim("s")
    assert await read_all(log, "s") == digits(7), "whole appends, no more than was said"
    assert await read_all(log, "s", offsets[6]) == digits(7)
    assert await read_all(log, "s", offsets[8]) == digits(9)
    for offset in (offsets[5], str(Offset(0, 0))):
        with pytest.raises(OffsetExpired) as caught:
            await log.read("s", parse_offset(offset))
        assert caught.value.earliest == offsets[6]


async def test_exactly_as_much_as_was_said(log: Log, clock: ManualClock) -> None:
    await fill(log, clock, "s", Retention(size_bytes=40))
    await log.trim("s")
    assert await read_all(log, "s") == digits(6)


async def test_by_age(log: Log, clock: ManualClock) -> None:
    await fill(log, clock, "s", Retention(age_s=4))
    await log.trim("s")
    assert await read_all(log, "s") == digits(5), "written four seconds ago and later"
    clock.now_ms += 1_000
    await log.trim("s")
    assert await read_all(log, "s") == digits(6)
    clock.now_ms += 60_000
    await log.trim("s")
    assert await read_all(log, "s") == b""
    await log.append("s", data(b"new"))
    assert await read_all(log, "s") == b"new"


async def test_the_stricter_one_counts(log: Log, clock: ManualClock) -> None:
    await fill(log, clock, "s", Retention(age_s=4, size_bytes=25))
    await fill(log, clock, "t", Retention(age_s=2, size_bytes=100))
    clock.now_ms -= 10_000
    for path, first in (("s", 8), ("t", 0)):
        await log.trim(path)
        assert await read_all(log, path) == digits(first)
    clock.now_ms += 10_000
    await log.trim("t")
    assert await read_all(log, "t") == digits(7)


async def test_those_without_keep_everything(log: Log, clock: ManualClock) -> None:
    await fill(log, clock, "s", None)
    assert not await log.trim("s")
    assert await read_all(log, "s") == digits(0)
    assert not await log.trim("nowhere")


async def test_what_is_left_survives_being_dropped_from_memory(
    log: Log, clock: ManualClock
) -> None:
    await fill(log, clock, "s", Retention(age_s=1))
    clock.now_ms += 60_000
    await log.trim("s")
    while await log.writer.run(lambda: log.engine.reap(100)):
        pass
    for number in range(40):
        await log.create(Create(f"other/{number}"))
    # Even when nothing is left, the stream continues where it ended.
    reply = await log.append("s", data(b"new"))
    assert parse_offset(reply.next_offset) == Offset(1, 103)
    assert await read_all(log, "s") == b"new"


async def test_last_messages_and_moments_of_what_is_kept(log: Log, clock: ManualClock) -> None:
    offsets = await fill(log, clock, "s", Retention(size_bytes=30))
    await log.trim("s")
    assert await log.find_last("s", 2) == (parse_offset(offsets[7]), 0)
    assert await log.find_last("s", 99) == (parse_offset(offsets[6]), 0)
    assert await log.find_time("s", 0) == parse_offset(offsets[6])


async def test_a_fork_keeps_what_it_inherited(log: Log, clock: ManualClock) -> None:
    offsets = await fill(log, clock, "s", Retention(size_bytes=50))
    await log.create(fork("early", "s", offsets[7]))
    await log.trim("s")
    await log.create(fork("late", "s", offsets[7]))
    with pytest.raises(OffsetExpired):
        await log.create(fork("too-early", "s", offsets[1]))
    while await log.writer.run(lambda: log.engine.reap(1)):
        pass
    assert await read_all(log, "early") == digits(0)[:80]
    assert await read_all(log, "late") == digits(5)[:30]
    await log.delete("early")
    while await log.writer.run(lambda: log.engine.reap(1)):
        pass
    assert await read_all(log, "late") == digits(5)[:30]
    assert await read_all(log, "s") == digits(5)


async def test_a_group_is_not_deprived_of_its_work(log: Log, clock: ManualClock) -> None:
    await fill(log, clock, "s", Retention(size_bytes=30))
    groups = await Groups.start(log)
    try:
        await groups.put("s", "g", GroupConfig(start="first"))
        assert not await log.trim("s")
        await groups.seek("s", "g", "latest")
        assert await log.trim("s")
        assert await read_all(log, "s") == digits(7)
        await groups.put("s", "h", GroupConfig(start="first"))
        assert (await groups.get("s", "h")).state.cursor.number == 7
    finally:
        groups.stop()


async def test_retention_is_a_setting_that_versions_change(log: Log, clock: ManualClock) -> None:
    await fill(log, clock, "s", None)
    with pytest.raises(ConfigConflict):
        await log.create(Create("s", retention=Retention(size_bytes=5)))
    await log.create(Create("s", version=2, retention=Retention(size_bytes=25)))
    await log.trim("s")
    assert await read_all(log, "s") == digits(8)
    await log.create(Create("s", version=3))
    await log.append("s", data(b"more"))
    assert not await log.trim("s")
    assert await read_all(log, "s") == digits(8) + b"more", "what is gone stays gone"


async def test_nobody_has_to_ask(log: Log, clock: ManualClock) -> None:
    """Housekeeping sees to it."""
    await fill(log, clock, "s", Retention(size_bytes=30))
    entry = await log.entry("s")

    def kept() -> bool:
        clock.now_ms += 100
        return entry.view is not None and entry.view.config.kept_from == 70

    async with asyncio.timeout(120):
        await until(kept)
    chunk = await log.read("s", Anchor.START)
    assert b"".join(chunk.bodies) == digits(7)


async def test_streams_that_nobody_writes_to_are_not_looked_at(
    log: Log, clock: ManualClock, engine: FaultyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        await log.create(Create(f"s/{number}", retention=Retention(3_600, 30)))
        await log.append(f"s/{number}", data(b"x" * 10))
    clock.now_ms += 5_000
    due = engine.inner.streams.trimmable
    await until(lambda: due(clock.now_ms, 100) == [])
    looks: list[str] = []
    trim = log.trim

    def counted(path: str) -> Awaitable[bool]:
        looks.append(path)
        return trim(path)

    monkeypatch.setattr(log, "trim", counted)
    for _ in range(20):
        clock.now_ms += 60_000
        await asyncio.sleep(0.06)
    assert looks == []
    await log.append("s/7", data(b"x" * 30))
    clock.now_ms += 5_000
    await until(lambda: looks == ["s/7"] and due(clock.now_ms, 100) == [])
    clock.now_ms += 3_600_000
    await until(lambda: due(clock.now_ms, 100) == [])
    assert sorted(set(looks)) == sorted(f"s/{number}" for number in range(30))
    await log.writer.reply_after_all(None)
    for number in range(30):
        assert await read_all(log, f"s/{number}") == b"", f"s/{number} is too old by now"


async def test_what_a_group_holds_back_goes_when_it_is_settled(
    log: Log, clock: ManualClock, engine: FaultyEngine
) -> None:
    groups = await Groups.start(log)
    await fill(log, clock, "s", Retention(size_bytes=30))
    await groups.put("s", "g", GroupConfig(start="first"))
    await log.trim("s")
    entry = await log.entry("s")
    assert entry.state is not None
    assert entry.state.trim_due_ms is not None, "it is looked for again"
    assert entry.state.trim_due_ms > clock.now_ms
    groups.stop()
