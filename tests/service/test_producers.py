"""Producers over the running log: requests that overtake each other, and producers not loaded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from headwater.core.decisions import AppendReply, Create
from headwater.core.errors import (
    QuotaExceeded,
    SequenceGap,
    StaleEpoch,
    StorageUnavailable,
    StreamClosed,
    StreamError,
    StreamNotFound,
    TooManyProducers,
)
from headwater.core.limits import Limits
from headwater.core.quotas import parse_quotas
from headwater.service import producers
from headwater.service.log import Log
from headwater.store.sqlite.engine import SqliteEngine
from tests.service.conftest import StartLog
from tests.support import seeds
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import ManualClock, begin, data, outcome, read_all, turns, until

PATIENT = Limits(producer_wait_ms=60_000)
"""Waits longer than any test runs: what goes on did so because the gap closed."""

HASTY = Limits(producer_wait_ms=1)


def end_every_wait(log: Log) -> None:
    """As if the time of everyone who waits were up."""
    room = log._waiting_room
    for key in [*room._waiting]:
        room._leave(key)


# ── Overtaking ───────────────────────────────────────────────────────────────────────────────


async def test_requests_that_overtook_others_wait_and_are_accepted_in_order(
    start_log: StartLog,
) -> None:
    log = await start_log(PATIENT)
    await log.create(Create("s"))
    early = [begin(log.append("s", data(b"%d" % seq, ("p", 0, seq)))) for seq in (3, 1, 4, 2)]
    await turns()
    assert not any(request.done() for request in early)
    first = await log.append("s", data(b"0", ("p", 0, 0)))
    replies = await asyncio.gather(*early)
    assert [reply.producer for reply in (first, *replies)] == [
        ("p", 0, seq) for seq in (0, 3, 1, 4, 2)
    ]
    assert not any(reply.duplicate for reply in replies)
    assert await read_all(log, "s") == b"01234"


@pytest.mark.parametrize("seed", seeds.several(5))
async def test_any_order_within_the_window_comes_out_right(start_log: StartLog, seed: int) -> None:
    """Several producers with as many requests in flight as the window allows."""
    random = Random(seed)
    log = await start_log(PATIENT)
    await log.create(Create("s"))
    in_flight = [(name, seq) for name in "pqr" for seq in range(6)]
    random.shuffle(in_flight)
    requests = [
        begin(log.append("s", data(b"%s%d" % (name.encode(), seq), (name, 7, seq))))
        for name, seq in in_flight
    ]
    await asyncio.gather(*requests)
    content = (await read_all(log, "s")).decode()
    for name in "pqr":
        own = [content[at + 1] for at in range(0, len(content), 2) if content[at] == name]
        assert own == list("012345")


async def test_a_gap_that_stays_is_refused_with_what_is_missing(start_log: StartLog) -> None:
    log = await start_log(HASTY)
    await log.create(Create("s"))
    await log.append("s", data(b"0", ("p", 0, 0)))
    with pytest.raises(SequenceGap) as caught:
        await log.append("s", data(b"3", ("p", 0, 3)))
    assert (caught.value.expected, caught.value.received) == (1, 3)
    entry = await log.entry("s")
    assert entry.waiting == 0
    assert entry.idle
    assert await read_all(log, "s") == b"0"


async def test_what_is_too_far_ahead_does_not_wait(start_log: StartLog) -> None:
    log = await start_log(PATIENT)
    await log.create(Create("s"))
    assert await outcome(log.append("s", data(b"x", ("p", 0, 6)))) is SequenceGap
    waiting = begin(outcome(log.append("s", data(b"x", ("p", 0, 5)))))
    await turns()
    assert not waiting.done()
    waiting.cancel()


async def test_without_a_wait_a_gap_is_refused_at_once(start_log: StartLog) -> None:
    log = await start_log(Limits(producer_wait_ms=0))
    await log.create(Create("s"))
    assert await outcome(log.append("s", data(b"x", ("p", 0, 1)))) is SequenceGap


async def test_only_so_many_wait_at_one_stream(start_log: StartLog) -> None:
    log = await start_log(PATIENT)
    await log.create(Create("s"))
    waiting = [begin(outcome(log.append("s", data(b"x", (f"p{n}", 0, 1))))) for n in range(100)]
    await turns()
    refused = [request for request in waiting if request.done()]
    assert len(refused) == 100 - 64
    assert {await request for request in refused} == {SequenceGap}
    for request in waiting:
        request.cancel()


async def test_the_same_request_waiting_twice_is_written_once(start_log: StartLog) -> None:
    log = await start_log(PATIENT)
    await log.create(Create("s"))
    twice = [begin(log.append("s", data(b"1", ("p", 0, 1)))) for _ in range(2)]
    await turns()
    await log.append("s", data(b"0", ("p", 0, 0)))
    assert sorted(reply.duplicate for reply in await asyncio.gather(*twice)) == [False, True]
    assert await read_all(log, "s") == b"01"


async def test_a_stream_that_somebody_waits_at_is_not_dropped_from_memory(
    start_log: StartLog,
) -> None:
    log = await start_log(Limits(producer_wait_ms=60_000, streams_in_memory_max=16))
    await log.create(Create("s"))
    waiting = begin(log.append("s", data(b"1", ("p", 0, 1))))
    await turns()
    for number in range(20):
        await log.create(Create(f"other/{number}"))
    await log.append("s", data(b"0", ("p", 0, 0)))
    assert not (await waiting).duplicate
    assert await read_all(log, "s") == b"01"


async def test_a_waiting_client_may_hang_up(start_log: StartLog) -> None:
    """Its request was taken, so it still counts when its turn comes."""
    log = await start_log(PATIENT)
    await log.create(Create("s"))
    waiting = begin(log.append("s", data(b"1", ("p", 0, 1))))
    await turns()
    waiting.cancel()
    await turns()
    await log.append("s", data(b"0", ("p", 0, 0)))
    await log.append("s", data(b"2", ("p", 0, 2)))
    assert await read_all(log, "s") == b"012"


async def test_when_the_wait_ends_the_stream_may_be_closed_or_gone(start_log: StartLog) -> None:
    log = await start_log(PATIENT)
    for path in ("closed", "gone"):
        await log.create(Create(path))
    waiting = [
        begin(outcome(log.append(path, data(b"x", ("p", 0, 1))))) for path in ("closed", "gone")
    ]
    await turns()
    await log.append("closed", data(b"last", close=True))
    await log.delete("gone")
    end_every_wait(log)
    assert [await request for request in waiting] == [StreamClosed, StreamNotFound]


async def test_a_new_epoch_leaves_those_who_wait_behind(start_log: StartLog) -> None:
    log = await start_log(PATIENT)
    await log.create(Create("s"))
    waiting = begin(outcome(log.append("s", data(b"old", ("p", 0, 1)))))
    await turns()
    await log.append("s", data(b"new", ("p", 1, 0)))
    end_every_wait(log)
    assert await waiting is StaleEpoch
    assert await read_all(log, "s") == b"new"


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
async def test_a_failed_commit_fails_the_filler_and_the_others_keep_waiting_for_it(
    start_log: StartLog, engine: FaultyEngine, fault: Fault
) -> None:
    log = await start_log(PATIENT)
    await log.create(Create("s"))
    engine.commit_gate.shut()
    engine.fail_next(fault)
    first = begin(outcome(log.append("s", data(b"0", ("p", 0, 0)))))
    await engine.commit_gate.arrival()
    waiting = begin(outcome(log.append("s", data(b"2", ("p", 0, 2)))))
    await turns()
    engine.commit_gate.open()
    assert await first is StorageUnavailable
    await turns()
    assert not waiting.done()
    await log.append("s", data(b"0", ("p", 0, 0)))
    await log.append("s", data(b"1", ("p", 0, 1)))
    reply = await waiting
    assert isinstance(reply, AppendReply)
    assert await read_all(log, "s") == b"012"


# ── More producers than are loaded with a stream ─────────────────────────────────────────────


@pytest.fixture
async def crowded(tmp_path: Path, engine: FaultyEngine, start_log: StartLog) -> Log:
    """A log that loads 4 producers with a stream, and a stream that knows 12."""
    engine.inner = SqliteEngine(tmp_path / "data", producers_preloaded_max=4)
    log = await start_log(PATIENT)
    await log.create(Create("s"))
    for number in range(12):
        for seq in range(2):
            await log.append("s", data(b"x", (f"p{number:02d}", 5, seq)))
    log._registry._entries.clear()
    return log


async def forget(log: Log) -> None:
    """As if the stream had not been used for long."""
    await until(lambda: all(entry.idle for entry in log._registry._entries.values()))
    log._registry._entries.clear()


async def test_a_producer_that_was_not_loaded_is_looked_up(crowded: Log) -> None:
    for number in range(12):
        name = f"p{number:02d}"
        await forget(crowded)
        assert (await crowded.append("s", data(b"x", (name, 5, 1)))).duplicate
        await forget(crowded)
        assert not (await crowded.append("s", data(b"y", (name, 5, 2)))).duplicate
        await forget(crowded)
        with pytest.raises(StreamError) as caught:
            await crowded.append("s", data(b"z", (name, 4, 0)))
        assert caught.value.code == "stale_epoch"
    assert (await read_all(crowded, "s")).count(b"y") == 12
    assert not (await crowded.append("s", data(b"x", ("someone new", 0, 0)))).duplicate


async def test_requests_that_arrive_during_the_look_up_are_written_once(
    crowded: Log, engine: FaultyEngine
) -> None:
    gate = engine.gate("producer")
    gate.shut()
    requests = [begin(crowded.append("s", data(b"y", ("p11", 5, 2)))) for _ in range(3)]
    for _ in requests:
        await gate.arrival()
    gate.open()
    replies = await asyncio.gather(*requests)
    assert sorted(reply.duplicate for reply in replies) == [False, True, True]
    assert (await read_all(crowded, "s")).count(b"y") == 1


async def test_one_that_waits_over_a_failed_commit_is_looked_up_again(
    crowded: Log, engine: FaultyEngine
) -> None:
    """Loading the stream again may leave out the producer that somebody waits for."""
    await crowded.append("s", data(b"a", ("p11", 5, 2)))
    waiting = begin(outcome(crowded.append("s", data(b"c", ("p11", 5, 4)))))
    await turns()
    engine.fail_next(Fault.BEFORE)
    assert await outcome(crowded.append("s", data(b"lost"))) is StorageUnavailable
    assert not (await crowded.append("s", data(b"b", ("p11", 5, 3)))).duplicate
    assert not isinstance(await waiting, type)
    assert (await read_all(crowded, "s")).endswith(b"abc")


async def test_one_that_waited_in_vain_is_told_what_is_really_missing(
    crowded: Log, engine: FaultyEngine
) -> None:
    await crowded.append("s", data(b"a", ("p11", 5, 2)))
    waiting = begin(crowded.append("s", data(b"c", ("p11", 5, 4))))
    await turns()
    engine.fail_next(Fault.BEFORE)
    assert await outcome(crowded.append("s", data(b"lost"))) is StorageUnavailable
    await read_all(crowded, "s")
    end_every_wait(crowded)
    with pytest.raises(SequenceGap) as caught:
        await waiting
    assert (caught.value.expected, caught.value.received) == (3, 4)


# ── Memory ───────────────────────────────────────────────────────────────────────────────────


async def test_producers_in_memory_are_bounded_and_the_others_are_still_known(
    tmp_path: Path, engine: FaultyEngine, start_log: StartLog
) -> None:
    engine.inner = SqliteEngine(tmp_path / "data", producers_preloaded_max=4)
    log = await start_log(Limits(producers_preloaded_max=4))
    await log.create(Create("s"))
    entry = await log.entry("s")
    for number in range(40):
        await log.append("s", data(b"x", (f"p{number}", 0, 0)))
        assert entry.state is not None
        assert len(entry.state.producers) <= 9
        assert entry.state.producer_count == number + 1
    assert not entry.in_flight
    for number in range(40):
        assert (await log.append("s", data(b"x", (f"p{number}", 0, 0)))).duplicate
        assert not (await log.append("s", data(b"y", (f"p{number}", 0, 1)))).duplicate
    assert entry.state is not None
    assert entry.state.producer_count == 40
    assert await read_all(log, "s") == b"x" * 40 + b"y" * 40


async def test_what_is_not_committed_stays_in_memory(
    tmp_path: Path, engine: FaultyEngine, start_log: StartLog
) -> None:
    engine.inner = SqliteEngine(tmp_path / "data", producers_preloaded_max=1)
    log = await start_log(Limits(producers_preloaded_max=1))
    await log.create(Create("s"))
    requests = [
        begin(log.append("s", data(b"x", (f"p{number}", 0, seq))))
        for _ in range(3)
        for number in range(20)
        for seq in range(2)
    ]
    replies = await asyncio.gather(*requests)
    assert sum(not reply.duplicate for reply in replies) == 40
    assert await read_all(log, "s") == b"x" * 40


# ── Forgetting ───────────────────────────────────────────────────────────────────────────────

DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000


def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "_IDLE_S", 0.01)


async def test_a_producer_that_was_idle_for_too_long_is_unknown(
    log: Log, clock: ManualClock, engine: FaultyEngine
) -> None:
    """From the moment on when its time is over, whether it was cleared away yet or not."""
    await log.create(Create("s"))
    await log.append("s", data(b"x", ("p", 3, 0)))
    await log.append("s", data(b"x", ("p", 3, 1)))
    clock.now_ms += 7 * DAY_MS
    assert (await log.append("s", data(b"x", ("p", 3, 1)))).duplicate
    with pytest.raises(StaleEpoch):
        await log.append("s", data(b"x", ("p", 2, 0)))
    clock.now_ms += HOUR_MS
    with pytest.raises(SequenceGap) as gap:
        await log.append("s", data(b"x", ("p", 3, 9)))
    assert (gap.value.expected, gap.value.received) == (0, 9)
    await log.append("s", data(b"y", ("p", 1, 0)))
    assert await read_all(log, "s") == b"xxy"
    entry = await log.entry("s")
    assert entry.state is not None
    assert entry.state.producer_count == 1


async def test_idle_producers_go_in_memory_and_on_disk(
    tmp_path: Path,
    engine: FaultyEngine,
    start_log: StartLog,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brisk(monkeypatch)
    engine.inner = SqliteEngine(tmp_path / "data", producers_preloaded_max=4)
    log = await start_log(Limits(producers_preloaded_max=4))
    for path in ("s", "t"):
        await log.create(Create(path))
        for number in range(12):
            await log.append(path, data(b"x", (f"p{number:02d}", 5, 0)))
    clock.now_ms += 4 * DAY_MS
    await log.append("s", data(b"x", ("p03", 5, 1)))
    clock.now_ms += 4 * DAY_MS
    stored = engine.inner.streams
    await until(lambda: not stored.idle_producers(clock.now_ms - 7 * DAY_MS, 1))
    for path, left in (("s", 1), ("t", 0)):
        loaded = stored.load(path)
        assert loaded is not None
        assert (loaded.state.producer_count, len(loaded.state.producers)) == (left, left)
        entry = await log.entry(path)
        await log.writer.reply_after(entry, None)
        assert entry.state is not None
        assert entry.state.producer_count == left
    assert (await log.append("s", data(b"x", ("p03", 5, 1)))).duplicate
    assert await outcome(log.append("s", data(b"x", ("p04", 5, 7)))) is SequenceGap


async def test_one_that_comes_back_while_it_is_forgotten_is_counted_once(
    tmp_path: Path,
    engine: FaultyEngine,
    start_log: StartLog,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brisk(monkeypatch)
    engine.inner = SqliteEngine(tmp_path / "data", producers_preloaded_max=1)
    log = await start_log(Limits(producers_preloaded_max=1))
    await log.create(Create("s"))
    for number in range(8):
        await log.append("s", data(b"x", (f"p{number}", 0, 0)))
    engine.commit_gate.shut()
    clock.now_ms += 8 * DAY_MS
    await engine.commit_gate.arrival()
    back = [begin(log.append("s", data(b"y", (f"p{number}", 9, 0)))) for number in range(8)]
    await turns()
    engine.commit_gate.open()
    assert not any(reply.duplicate for reply in await asyncio.gather(*back))
    entry = await log.entry("s")
    loaded = engine.inner.streams.load("s")
    assert loaded is not None
    assert entry.state is not None
    assert entry.state.producer_count == loaded.state.producer_count == 8
    for number in range(8):
        assert (await log.append("s", data(b"y", (f"p{number}", 9, 0)))).duplicate


async def test_there_is_a_bound_until_idle_ones_are_forgotten(
    start_log: StartLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    brisk(monkeypatch)
    log = await start_log(Limits(producers_per_stream_max=3))
    await log.create(Create("s"))
    for name in "pqr":
        await log.append("s", data(b"x", (name, 0, 0)))
    with pytest.raises(TooManyProducers):
        await log.append("s", data(b"x", ("one more", 0, 0)))
    clock.now_ms += 5 * DAY_MS
    await log.append("s", data(b"x", ("p", 0, 1)))
    await log.append("s", data(b"plain"))
    clock.now_ms += 3 * DAY_MS
    entry = await log.entry("s")
    await until(lambda: entry.state is not None and entry.state.producer_count == 1)
    await log.append("s", data(b"x", ("one more", 0, 0)))


async def test_room_is_made_for_one_more_when_it_comes(
    start_log: StartLog, clock: ManualClock
) -> None:
    """The next round is some seconds away; nobody has to wait for it."""
    log = await start_log(Limits(producers_per_stream_max=3))
    await log.create(Create("s"))
    for name in "pqr":
        await log.append("s", data(b"x", (name, 0, 0)))
    clock.now_ms += 8 * DAY_MS
    await log.append("s", data(b"x", ("one more", 0, 0)))
    entry = await log.entry("s")
    assert entry.state is not None
    assert entry.state.producer_count == 1


async def test_looking_for_room_is_bounded(
    start_log: StartLog, clock: ManualClock, engine: FaultyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await start_log(Limits(producers_per_stream_max=3))
    await log.create(Create("s"))
    for name in "pqr":
        await log.append("s", data(b"x", (name, 0, 0)))
    looks: list[int] = []
    stored = log.engine.streams.idle_producers_of

    def look(stream_id: int, before_ms: int, limit: int) -> list[str]:
        looks.append(stream_id)
        return stored(stream_id, before_ms, limit)

    monkeypatch.setattr(log.engine.streams, "idle_producers_of", look, raising=False)
    for number in range(20):
        with pytest.raises(TooManyProducers):
            await log.append("s", data(b"x", (f"new {number}", 0, 0)))
    assert len(looks) == 1
    clock.now_ms += 1_000
    with pytest.raises(TooManyProducers):
        await log.append("s", data(b"x", ("later", 0, 0)))
    assert len(looks) == 2


async def test_quotas_count_producers_that_are_stored(
    engine: FaultyEngine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    brisk(monkeypatch)
    quotas = parse_quotas("t: producers=2")
    log = await Log.start(engine, clock=clock, quotas=quotas)
    try:
        await log.create(Create("t/s"))
        engine.fail_next(Fault.BEFORE)
        assert await outcome(log.append("t/s", data(b"x", ("p", 0, 0)))) is StorageUnavailable
        await log.append("t/s", data(b"x", ("q", 0, 0)))
        await log.append("t/s", data(b"x", ("r", 0, 0)))
        with pytest.raises(QuotaExceeded):
            await log.append("t/s", data(b"x", ("s", 0, 0)))
        clock.now_ms += 8 * DAY_MS
        entry = await log.entry("t/s")
        await until(lambda: entry.state is not None and entry.state.producer_count == 0)
        await until(lambda: entry.pending is None)
        for name in "uv":
            await log.append("t/s", data(b"x", (name, 0, 0)))
        with pytest.raises(QuotaExceeded):
            await log.append("t/s", data(b"x", ("w", 0, 0)))
        await log.delete("t/s")
        await log.create(Create("t/s"))
        await log.append("t/s", data(b"x", ("w", 0, 0)))
    finally:
        await log.stop()
