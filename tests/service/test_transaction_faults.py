"""Transactions and unique ids while commits fail, look-ups take their time and memory is small."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.core.content_types import JSON
from headwater.core.decisions import Append, AppendReply, Create
from headwater.core.errors import (
    DuplicateIds,
    PublishRefused,
    StaleReceipts,
    StorageUnavailable,
    StreamClosed,
    StreamNotFound,
)
from headwater.core.expiry import Lifetime
from headwater.core.groups.config import GroupConfig
from headwater.core.limits import Limits
from headwater.core.lineage import ForkRequest
from headwater.core.unique_ids import Mode, UniqueIds
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.service.transactions import Acknowledge, Publish, Transactions
from tests.service.conftest import StartLog
from tests.support.engines import running
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import (
    ManualClock,
    begin,
    hold_a_commit,
    outcome,
    read_all,
    turns,
    until,
    warm,
)
from tests.support.members import ack, fetch, json, nack
from tests.support.recounts import check_groups


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultyEngine]:
    with running(request.param, tmp_path) as engine:
        yield FaultyEngine(engine)


@pytest.fixture
async def groups(log: Log) -> AsyncIterator[Groups]:
    groups = await Groups.start(log)
    yield groups
    check_groups(groups)
    groups.stop()


@pytest.fixture
def transactions(log: Log, groups: Groups) -> Transactions:
    return Transactions(log, groups)


def publish(stream: str, text: str, message_id: str | None = None, mode: Mode = "fail") -> Publish:
    return Publish(stream, json(text, message_id), mode)


def checked(path: str, mode: Mode = "fail") -> Create:
    """A stream that takes each id once."""
    return Create(path, JSON, unique_ids=UniqueIds(mode))


async def one_job(log: Log, groups: Groups) -> str:
    """A stream `in` with a message that somebody works on; its receipt."""
    await log.create(Create("in", JSON, body=b"[1]"))
    await groups.put("in", "g", GroupConfig())
    ((receipt, _),) = await fetch(groups, "in", "g")
    return receipt


# ── All or nothing ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", Fault)
async def test_a_transaction_whose_commit_fails_happened_altogether_or_not_at_all(
    log: Log, groups: Groups, transactions: Transactions, engine: FaultyEngine, fault: Fault
) -> None:
    receipt = await one_job(log, groups)
    for path in ("a", "b"):
        await log.create(Create(path, JSON))
    acknowledge = Acknowledge("in", "g", [receipt])
    work = [publish("a", "1"), publish("b", "2"), publish("a", "3")]
    engine.fail_next(fault)
    assert await outcome(transactions.run(acknowledge, work)) is StorageUnavailable
    again = await outcome(transactions.run(acknowledge, work))
    assert (again is StaleReceipts) == (fault is Fault.AFTER)
    assert await read_all(log, "a") == b"1,3,"
    assert await read_all(log, "b") == b"2,"
    assert (await groups.get("in", "g")).state.outstanding == {}


async def test_a_transaction_gathered_behind_a_commit_that_fails_never_happened(
    log: Log, groups: Groups, transactions: Transactions, engine: FaultyEngine
) -> None:
    receipt = await one_job(log, groups)
    await log.create(Create("a", JSON))
    await hold_a_commit(log, engine)
    engine.fail_next(Fault.AFTER)
    work = transactions.run(Acknowledge("in", "g", [receipt]), [publish("a", "1")])
    running = begin(outcome(work))
    await turns(50)
    engine.commit_gate.open()
    assert await running is StorageUnavailable
    assert await read_all(log, "a") == b""
    assert len((await ack(groups, "in", "g", receipt)).done) == 1, "the receipt is good still"


async def test_a_transaction_that_takes_its_time_meets_the_group_that_is_there_then(
    log: Log, groups: Groups, transactions: Transactions, engine: FaultyEngine
) -> None:
    """Else a message could be acknowledged twice, and what follows from it published twice."""
    receipt = await one_job(log, groups)
    await log.create(checked("out"))
    gate = engine.gate("known_ids")
    gate.shut()
    work = transactions.run(Acknowledge("in", "g", [receipt]), [publish("out", '"slow"', "x")])
    running = begin(outcome(work))
    await gate.arrival()
    engine.fail_next(Fault.BEFORE)
    assert await outcome(groups.pause("in", "g", paused=True)) is StorageUnavailable
    assert len((await ack(groups, "in", "g", receipt)).done) == 1
    gate.open()
    assert await running is StaleReceipts
    assert await read_all(log, "out") == b""


async def test_targets_may_be_more_than_fit_into_memory(start_log: StartLog) -> None:
    log = await start_log(Limits(streams_in_memory_max=16))
    groups = await Groups.start(log)
    paths = [f"t{number}" for number in range(40)]
    for path in paths:
        await log.create(checked(path) if path == "t3" else Create(path, JSON))
    async with asyncio.timeout(60):
        work = [publish(path, "1", "x" if path == "t3" else None) for path in paths]
        assert len(await Transactions(log, groups).run(None, work)) == 40
    for path in paths:
        assert await read_all(log, path) == b"1,"
    groups.stop()


# ── A time to live ───────────────────────────────────────────────────────────────────────────


async def test_a_stream_that_only_transactions_use_lives_on(
    log: Log, groups: Groups, transactions: Transactions, clock: ManualClock
) -> None:
    """Its time starts again with every use, and that is not forgotten with what is in memory."""
    for path in ("in", "out", "unused"):
        await log.create(Create(path, JSON, body=b"[0]", lifetime=Lifetime(ttl_s=10)))
    await groups.put("in", "g", GroupConfig())
    for _ in range(6):
        clock.now_ms += 5_000
        await transactions.run(None, [publish("out", "1")])
        for receipt, _ in await fetch(groups, "in", "g"):
            await nack(groups, "in", "g", receipt)
    await log.writer.reply_after_all(None)
    for path in ("in", "out", "unused"):
        (await log.entry(path)).forget_state()
    assert await read_all(log, "out") == b"0,1,1,1,1,1,1,"
    assert await read_all(log, "in") == b"0,"
    assert await outcome(read_all(log, "unused")) is StreamNotFound


# ── What an answer rests on ──────────────────────────────────────────────────────────────────


def waiting(log: Log) -> int:
    """How many requests wait for a commit."""
    batches = (log.writer._committing, log.writer._gathering)
    return sum(len(batch.waiters) for batch in batches if batch is not None)


@pytest.mark.parametrize("fault", [None, Fault.BEFORE])
async def test_a_refusal_waits_for_what_it_rests_on(
    log: Log, transactions: Transactions, engine: FaultyEngine, fault: Fault | None
) -> None:
    """Who is told "I have that already" forgets it."""
    await log.create(checked("ids"))
    await log.create(Create("end", JSON))
    engine.commit_gate.shut()
    if fault is not None:
        engine.fail_next(fault)
    first = [
        begin(outcome(log.append("ids", json("1", "x")))),
        begin(outcome(log.append("end", Append(close=True)))),
    ]
    # Ids are looked up on a thread, so all of this takes a moment.
    await until(lambda: waiting(log) == 2)
    running = [
        begin(transactions.run(None, [publish("ids", "1", "x")])),
        begin(transactions.run(None, [publish("end", "1")])),
    ]
    await until(lambda: waiting(log) == 4)
    assert not any(request.done() for request in running)
    engine.commit_gate.open()
    await asyncio.gather(*first)
    results = await asyncio.gather(*running, return_exceptions=True)
    for result, reason in zip(results, (DuplicateIds, StreamClosed), strict=True):
        if fault is not None:
            assert isinstance(result, StorageUnavailable)
        else:
            assert isinstance(result, PublishRefused)
            assert isinstance(result.reason, reason)


async def test_receipts_are_not_called_stale_before_their_acknowledgement_is_committed(
    log: Log, groups: Groups, transactions: Transactions, engine: FaultyEngine
) -> None:
    receipt = await one_job(log, groups)
    engine.commit_gate.shut()
    engine.fail_next(Fault.BEFORE)
    first = begin(outcome(ack(groups, "in", "g", receipt)))
    await engine.commit_gate.arrival()
    second = begin(outcome(transactions.run(Acknowledge("in", "g", [receipt]), [])))
    await turns(50)
    engine.commit_gate.open()
    assert [await first, await second] == [StorageUnavailable] * 2


async def test_an_id_whose_commit_failed_during_the_look_up_is_free(
    log: Log, transactions: Transactions, engine: FaultyEngine
) -> None:
    await log.create(checked("ids"))
    engine.commit_gate.shut()
    engine.fail_next(Fault.BEFORE)
    failing = begin(outcome(log.append("ids", json("1", "x"))))
    await engine.commit_gate.arrival()
    gate = engine.gate("known_ids")
    gate.shut()
    running = begin(transactions.run(None, [publish("ids", "2", "x", "succeed")]))
    await gate.arrival()
    engine.commit_gate.open()
    assert await failing is StorageUnavailable
    gate.open()
    (reply,) = await running
    assert reply.duplicate_ids == 0
    assert await read_all(log, "ids") == b"2,"


# ── Unique ids ───────────────────────────────────────────────────────────────────────────────


async def test_ids_of_a_deleted_stream_are_free_on_the_next_one(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(checked("s", "succeed"))
    await hold_a_commit(log, engine)
    requests: list[asyncio.Future[Any]] = [begin(log.append("s", json("1", "x")))]
    await until_looked_up(log, "s")
    requests.append(begin(log.delete("s")))
    await turns()
    requests.append(begin(log.create(checked("s", "succeed"))))
    await turns()
    requests.append(begin(log.append("s", json("2", "x"))))
    await until_looked_up(log, "s")
    engine.commit_gate.open()
    replies = await asyncio.gather(*requests)
    assert isinstance(replies[-1], AppendReply)
    assert replies[-1].duplicate_ids == 0
    assert await read_all(log, "s") == b"2,"


async def test_an_id_of_an_older_stream_at_the_path_hides_none_of_the_newer_one(
    log: Log, engine: FaultyEngine
) -> None:
    """The old append is committed while the new one, with the same id, is not yet."""
    await log.create(checked("s"))
    engine.commit_gate.shut()
    requests: list[asyncio.Future[Any]] = [begin(log.append("s", json("1", "x")))]
    await engine.commit_gate.arrival()
    requests.append(begin(log.delete("s")))
    await turns()
    requests.append(begin(log.create(checked("s"))))
    await turns()
    requests.append(begin(log.append("s", json("2", "x"))))
    await until_looked_up(log, "s")
    engine.commit_gate.open()
    await requests[0]
    engine.commit_gate.shut()
    again = begin(outcome(log.append("s", json("3", "x"))))
    await until_looked_up(log, "s")
    engine.commit_gate.open()
    await asyncio.gather(*requests)
    assert await again is DuplicateIds
    assert await read_all(log, "s") == b"2,"


async def until_looked_up(log: Log, path: str) -> None:
    """Until nobody looks up ids any more."""
    entry = await log.entry(path)
    await turns()
    async with entry.lock_ids():
        await turns()


async def test_a_stream_stays_while_somebody_waits_for_a_turn_to_look_up_ids(
    start_log: StartLog, engine: FaultyEngine
) -> None:
    """Between two turns nobody holds the lock. A second entry would have a lock of its own."""
    log = await start_log(Limits(streams_in_memory_max=16))
    for number in range(15):
        (await log.entry(f"busy/{number}")).pins += 1
    await log.create(checked("s"))
    gate = engine.gate("known_ids")
    gate.shut()
    looking = begin(log.append("s", json("1", "x")))
    await gate.arrival()
    waiting = begin(log.append("s", json("2", "y")))
    await turns()
    entry = log.ready("s")
    assert entry is not None
    looking.cancel()
    other = begin(log.entry("other"))
    await turns(2)
    assert log.ready("s") is entry
    gate.open()
    await asyncio.gather(other, waiting)
    assert await read_all(log, "s") == b"2,"


@pytest.mark.parametrize("fault", Fault)
async def test_a_fork_knows_the_ids_it_inherits_whatever_became_of_commits(
    log: Log, engine: FaultyEngine, fault: Fault
) -> None:
    await log.create(checked("s"))
    await log.append("s", json("1", "a"))
    await warm(log, "f")
    engine.commit_gate.shut()
    engine.fail_next(fault)
    failing = begin(outcome(log.append("s", json("2", "b"))))
    await engine.commit_gate.arrival()
    command = Create("f", body=b"3", message_id="b", fork=ForkRequest("s", None, 0))
    forking = begin(outcome(log.create(command)))
    await turns(50)
    engine.commit_gate.open()
    assert await failing is StorageUnavailable
    first = await forking
    assert first is StorageUnavailable, "it was to inherit what failed"
    second = await outcome(log.create(command))
    if fault is Fault.AFTER:
        assert second is DuplicateIds
    else:
        assert await outcome(log.append("f", json("4", "a"))) is DuplicateIds
        assert await read_all(log, "f") == b"1,3,"


@pytest.mark.parametrize("asked", ["one", "all"])
async def test_nothing_shows_as_done_before_what_was_published_with_it_can_be_read(
    log: Log, groups: Groups, transactions: Transactions, engine: FaultyEngine, asked: str
) -> None:
    receipt = await one_job(log, groups)
    await log.create(Create("out", JSON))
    await hold_a_commit(log, engine)
    work = Acknowledge("in", "g", [receipt])
    running = begin(transactions.run(work, [publish("out", "1")]))
    await turns(50)

    async def lag() -> int:
        if asked == "one":
            return (await groups.info(await groups.get("in", "g"))).lag
        return (await groups.infos("in"))[0].lag

    seen = begin(lag())
    await turns(50)
    assert not running.done()
    assert not seen.done(), "what it would say may still fail"
    engine.commit_gate.open()
    assert await seen == 0
    assert await read_all(log, "out") == b"1,"
    await running
