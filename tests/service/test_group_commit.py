"""The writer: one commit for everything that is waiting, and nothing before it."""

from __future__ import annotations

import asyncio

import pytest

from headwater.core import decisions
from headwater.core.decisions import Append, Create
from headwater.core.errors import StorageUnavailable, StreamClosed, StreamNotFound, TooBusy
from headwater.core.limits import Limits
from headwater.core.offsets import Anchor
from headwater.core.stream import Created
from headwater.service import writer
from headwater.service.entries import Event
from headwater.service.log import Log
from tests.service.conftest import StartLog
from tests.support.faulty_engine import FaultyEngine
from tests.support.logs import (
    begin,
    bodies_of,
    data,
    hold_a_commit,
    listen,
    outcome,
    read_all,
    turns,
    warm,
)

# ── Nothing before the commit ────────────────────────────────────────────────────────────────


async def test_an_append_is_neither_visible_nor_answered_before_its_commit(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"old"))
    ear = await listen(log, "s")
    engine.commit_gate.shut()
    request = begin(log.append("s", data(b"new", close=True)))
    await engine.commit_gate.arrival()
    chunk = await log.read("s", Anchor.START)
    assert (chunk.bodies, chunk.up_to_date, chunk.closed) == ([b"old"], True, False)
    assert [line.size_bytes for line in await log.list_streams("", "", 9)] == [3]
    assert not request.done()
    assert ear.heard == []
    engine.commit_gate.open()
    assert (await request).closed
    assert await read_all(log, "s") == b"oldnew"
    assert ear.heard == [Event.CHANGED]


async def test_a_stream_is_not_there_before_its_commit(log: Log, engine: FaultyEngine) -> None:
    engine.commit_gate.shut()
    request = begin(log.create(Create("s", body=b"x")))
    await engine.commit_gate.arrival()
    assert await outcome(read_all(log, "s")) is StreamNotFound
    engine.commit_gate.open()
    assert (await request).new
    assert await read_all(log, "s") == b"x"


async def test_a_stream_is_still_there_before_its_deletion_is_committed(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"x"))
    ear = await listen(log, "s")
    engine.commit_gate.shut()
    request = begin(log.delete("s"))
    await engine.commit_gate.arrival()
    assert await read_all(log, "s") == b"x"
    assert ear.heard == []
    engine.commit_gate.open()
    await request
    assert ear.heard == [Event.DELETED]
    assert await outcome(read_all(log, "s")) is StreamNotFound


@pytest.mark.parametrize(
    "second, expected",
    [
        (data(b"late"), StreamClosed),
        (Append(close=True), "closed"),
        (data(b"", ("p", 0, 0)), "duplicate"),
    ],
)
async def test_an_answer_that_rests_on_a_commit_waits_for_it(
    log: Log, engine: FaultyEngine, second: Append, expected: object
) -> None:
    """That the stream is closed is not true before it is committed."""
    await log.create(Create("s"))
    engine.commit_gate.shut()
    first = begin(log.append("s", data(b"last", ("p", 0, 0), close=True)))
    await engine.commit_gate.arrival()
    answer = begin(outcome(log.append("s", second)))
    await turns()
    assert not answer.done()
    engine.commit_gate.open()
    await first
    reply = await answer
    if expected is StreamClosed:
        assert reply is StreamClosed
    else:
        assert not isinstance(reply, type)
        assert reply.closed
        assert reply.duplicate == (expected == "duplicate")


async def test_a_second_create_waits_for_the_first(log: Log, engine: FaultyEngine) -> None:
    engine.commit_gate.shut()
    first = begin(log.create(Create("s")))
    await engine.commit_gate.arrival()
    second = begin(log.create(Create("s")))
    conflicting = begin(outcome(log.create(Create("s", "text/plain"))))
    deletion = begin(outcome(log.delete("s")))
    await turns()
    assert not any(request.done() for request in (first, second, conflicting, deletion))
    engine.commit_gate.open()
    assert [(await first).new, (await second).new] == [True, False]
    assert await deletion is None


# ── One commit for many ──────────────────────────────────────────────────────────────────────


async def test_what_gathers_during_a_commit_goes_into_the_next_one_over_all_streams(
    log: Log, engine: FaultyEngine
) -> None:
    for number in range(30):
        await log.create(Create(f"s/{number}"))
    await hold_a_commit(log, engine)
    committed = len(engine.commits)
    requests = [begin(log.append(f"s/{n}", data(b"%d" % n))) for n in range(30)]
    requests += [begin(log.append("s/0", data(b"again")))]
    await turns()
    assert not any(request.done() for request in requests)
    engine.commit_gate.open()
    replies = await asyncio.gather(*requests)
    assert len(engine.commits) == committed + 2, "the one held up, and one for all the others"
    assert bodies_of(engine.commits[-1]) == [b"%d" % n for n in range(30)] + [b"again"]
    assert len({reply.next_offset for reply in replies}) == 31
    assert await read_all(log, "s/0") == b"0again"


async def test_requests_of_one_turn_of_the_loop_share_a_commit(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s"))
    before = engine.attempts
    await asyncio.gather(*(log.append("s", data(b"%d," % n)) for n in range(20)))
    assert engine.attempts == before + 1
    assert await read_all(log, "s") == b"".join(b"%d," % n for n in range(20))


async def test_a_stream_can_be_created_filled_and_closed_within_one_commit(
    log: Log, engine: FaultyEngine
) -> None:
    await warm(log, "s")
    await hold_a_commit(log, engine)
    creation = begin(log.create(Create("s", body=b"1")))
    await turns()
    requests = [begin(log.append("s", data(b"2"))), begin(log.append("s", data(b"3", close=True)))]
    await turns()
    engine.commit_gate.open()
    await asyncio.gather(creation, *requests)
    kinds = [type(mutation).__name__ for mutation in engine.commits[-1]]
    assert kinds == ["Created", "Appended", "Appended", "Appended", "Closed"]
    assert await read_all(log, "s") == b"123"


async def test_a_path_can_be_deleted_and_used_again_within_one_commit(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"old"))
    ear = await listen(log, "s")
    await hold_a_commit(log, engine)
    deletion = begin(log.delete("s"))
    await turns()
    creation = begin(log.create(Create("s", "text/plain", b"new")))
    await turns()
    appending = begin(log.append("s", Append(b"er", "text/plain")))
    await turns()
    assert await read_all(log, "s") == b"old"
    engine.commit_gate.open()
    await asyncio.gather(deletion, creation, appending)
    assert await read_all(log, "s") == b"newer"
    assert ear.heard[0] is Event.DELETED


async def test_who_listens_hears_of_a_commit_once_and_of_a_deletion_last(
    log: Log, engine: FaultyEngine
) -> None:
    for path in ("s", "t"):
        await log.create(Create(path))
    stays, goes = await listen(log, "s"), await listen(log, "t")
    await hold_a_commit(log, engine)
    requests = [begin(log.append(path, data(b"x"))) for path in "sstt"]
    deletion = begin(log.delete("t"))
    await turns()
    engine.commit_gate.open()
    await asyncio.gather(*requests, deletion)
    assert (stays.heard, goes.heard) == ([Event.CHANGED], [Event.DELETED])


async def test_with_a_linger_a_commit_waits_for_company(
    start_log: StartLog, engine: FaultyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await start_log(linger_ms=600_000)
    await warm(log, "a", "b")
    first = begin(log.create(Create("a")))
    await turns()
    second = begin(log.create(Create("b")))
    await turns()
    assert engine.attempts == 0
    loop = asyncio.get_running_loop()
    over_s = loop.time() + 600
    monkeypatch.setattr(loop, "time", lambda: over_s)
    await asyncio.gather(first, second)
    assert [len(batch) for batch in engine.commits] == [2]


# ── What nobody waits for ────────────────────────────────────────────────────────────────────


async def defer_an_append(log: Log, path: str, body: bytes) -> None:
    entry = await log.entry(path)
    assert entry.state is not None
    decision = decisions.decide_append(entry.state, data(body), log.clock())
    log.writer.defer([(entry, mutation) for mutation in decision.mutations])


async def test_what_nobody_waits_for_goes_with_the_next_commit(
    log: Log, engine: FaultyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_DEFERRED_S", 600.0)
    await log.create(Create("s"))
    before = engine.attempts
    await defer_an_append(log, "s", b"1")
    await turns()
    assert engine.attempts == before
    await log.append("s", data(b"2"))
    assert engine.attempts == before + 1
    assert bodies_of(engine.commits[-1]) == [b"1", b"2"]


async def test_what_nobody_waits_for_is_committed_without_company_in_the_end(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s"))
    ear = await listen(log, "s")
    await defer_an_append(log, "s", b"1")
    await ear.next()
    assert await read_all(log, "s") == b"1"
    # And what gathered while a commit was under way is not forgotten behind it.
    await hold_a_commit(log, engine)
    await defer_an_append(log, "s", b"2")
    engine.commit_gate.open()
    await ear.next()
    assert await read_all(log, "s") == b"12"


async def test_an_answer_that_rests_on_what_nobody_waited_for_waits_for_its_commit(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s"))
    engine.commit_gate.shut()
    await defer_an_append(log, "s", b"1")
    answer = log.writer.reply_after(await log.entry("s"), "yes")
    await engine.commit_gate.arrival()
    assert not answer.done()
    engine.commit_gate.open()
    assert await answer == "yes"
    assert await read_all(log, "s") == b"1"


async def test_stopping_commits_what_nobody_waits_for(log: Log, engine: FaultyEngine) -> None:
    await log.create(Create("s"))
    await defer_an_append(log, "s", b"1")
    await log.writer.drain()
    assert bodies_of(engine.commits[-1]) == [b"1"]


# ── Hanging up ───────────────────────────────────────────────────────────────────────────────


async def test_a_client_that_hangs_up_does_not_cancel_its_commit(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s"))
    await log.create(Create("t"))
    await warm(log, "new")
    engine.commit_gate.shut()

    async def request() -> None:
        await log.append("s", data(b"kept", ("p", 0, 0)))

    committing = begin(request())
    await engine.commit_gate.arrival()
    creation, deletion = begin(log.create(Create("new", body=b"kept"))), begin(log.delete("t"))
    await turns()
    for abandoned in (committing, creation, deletion):
        abandoned.cancel()
    await asyncio.gather(committing, creation, deletion, return_exceptions=True)
    engine.commit_gate.open()
    await log.append("s", data(b"!"))
    assert await read_all(log, "s") == b"kept!"
    assert await read_all(log, "new") == b"kept"
    assert await outcome(read_all(log, "t")) is StreamNotFound
    assert (await log.append("s", data(b"kept", ("p", 0, 0)))).duplicate


async def test_one_of_several_who_load_a_stream_may_hang_up(log: Log, engine: FaultyEngine) -> None:
    await log.create(Create("s", body=b"x"))
    log._registry._entries.clear()
    gate = engine.gate("load")
    gate.shut()
    readers = [begin(read_all(log, "s")) for _ in range(3)]
    await gate.arrival()
    readers[0].cancel()
    await turns()
    gate.open()
    assert await asyncio.gather(*readers[1:]) == [b"x", b"x"]


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────


async def test_a_full_queue_refuses_and_writes_nothing(
    start_log: StartLog, engine: FaultyEngine
) -> None:
    limits = Limits(body_bytes_max=1_000, queue_bytes_max=4_000)
    log = await start_log(limits)
    await log.create(Create("s"))
    await hold_a_commit(log, engine)
    taken = [begin(log.append("s", data(b"x" * 1_000))) for _ in range(2)]
    refused = [
        await outcome(log.append("s", data(b"y" * 1_000, ("p", 0, 0)))),
        await outcome(log.create(Create("t", body=b"y" * 1_000))),
    ]
    assert refused == [TooBusy, TooBusy]
    engine.commit_gate.open()
    await asyncio.gather(*taken)
    assert log.writer.queued_bytes == 0
    assert await read_all(log, "s") == b"x" * 2_000
    assert await outcome(read_all(log, "t")) is StreamNotFound
    assert not (await log.append("s", data(b"z", ("p", 0, 0)))).duplicate


async def test_a_flood_of_tiny_requests_fills_the_queue_too(
    start_log: StartLog, engine: FaultyEngine
) -> None:
    log = await start_log(Limits(body_bytes_max=10, queue_bytes_max=10_000))
    await log.create(Create("s"))
    await hold_a_commit(log, engine)
    requests = [begin(outcome(log.append("s", data(b"x")))) for _ in range(100)]
    await turns()
    refused = [request for request in requests if request.done()]
    assert len(refused) > 50
    assert all([await request is TooBusy for request in refused])
    engine.commit_gate.open()
    await asyncio.gather(*requests)
    assert await read_all(log, "s") == b"x" * (100 - len(refused))


async def test_the_largest_body_fits_into_the_smallest_queue(start_log: StartLog) -> None:
    log = await start_log(Limits(body_bytes_max=1_000, queue_bytes_max=1_000))
    await log.create(Create("s", "application/json"))
    body = b'"' + b"x" * 998 + b'"'
    await log.append("s", Append(body, "application/json"))
    assert await read_all(log, "s") == body + b","


# ── The end ──────────────────────────────────────────────────────────────────────────────────


async def test_stopping_finishes_what_was_taken_and_takes_nothing_more(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s"))
    await hold_a_commit(log, engine)
    taken = [begin(log.append("s", data(b"%d" % n))) for n in range(3)]
    stopping = begin(log.writer.drain())
    await turns()
    assert await outcome(log.append("s", data(b"late"))) is StorageUnavailable
    assert await outcome(log.create(Create("late"))) is StorageUnavailable
    assert not stopping.done()
    engine.commit_gate.open()
    await asyncio.gather(stopping, *taken)
    assert bodies_of(engine.commits[-1]) == [b"0", b"1", b"2"]


async def test_other_work_takes_its_turn_between_commits(log: Log, engine: FaultyEngine) -> None:
    await log.create(Create("s"))
    await hold_a_commit(log, engine)
    order: list[str] = []
    work = begin(log.writer.run(lambda: order.append("work")))
    append = begin(log.append("s", data(b"x")))
    await turns()
    assert order == []
    engine.commit_gate.open()
    await asyncio.gather(work, append)
    assert order == ["work"]
    with pytest.raises(ZeroDivisionError):
        await log.writer.run(lambda: 1 // 0)


async def test_ids_are_given_out_in_order_of_creation(log: Log, engine: FaultyEngine) -> None:
    await asyncio.gather(*(log.create(Create(f"s/{n}")) for n in range(5)))
    created = [m.config.id for batch in engine.commits for m in batch if isinstance(m, Created)]
    assert created == [1, 2, 3, 4, 5]
