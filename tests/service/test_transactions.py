"""Transactions over the running log: producers, refusals, and commits that fail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import PublishRefused, SequenceGap, StorageUnavailable
from headwater.core.limits import Limits
from headwater.core.producers import ProducerState
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.service.transactions import Publish, Transactions
from headwater.store.sqlite.engine import SqliteEngine
from tests.service.conftest import StartLog
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import begin, data, hold_a_commit, read_all, turns


@pytest.fixture
async def transactions(log: Log) -> AsyncIterator[Transactions]:
    groups = await Groups.start(log)
    yield Transactions(log, groups)
    groups.stop()


def publish(body: bytes, seq: int | None = None, *, producer: str = "p") -> Publish:
    stamp = None if seq is None else (producer, 0, seq)
    return Publish("s", data(body, stamp), "fail")


async def test_a_producer_goes_on_within_a_transaction(
    log: Log, transactions: Transactions
) -> None:
    await log.create(Create("s"))
    await log.append("s", data(b"0", ("p", 0, 0)))
    replies = await transactions.run(None, [publish(b"%d" % seq, seq) for seq in (0, 1, 2, 1)])
    assert [reply.duplicate for reply in replies] == [True, False, False, True]
    assert await read_all(log, "s") == b"012"
    await log.append("s", data(b"3", ("p", 0, 3)))


async def test_a_gap_aborts_and_names_its_publish(log: Log, transactions: Transactions) -> None:
    await log.create(Create("s"))
    with pytest.raises(PublishRefused) as caught:
        await transactions.run(None, [publish(b"0", 0), publish(b"2", 2)])
    assert caught.value.index == 1
    assert isinstance(caught.value.reason, SequenceGap)
    assert caught.value.reason.expected == 1
    assert await read_all(log, "s") == b""
    await log.append("s", data(b"0", ("p", 0, 0)))


class Uncopied(dict[str, ProducerState]):
    """A mapping that can be looked up in, and never walked through."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("all producers were walked through")

    keys = values = items = copy = __iter__


async def test_a_transaction_copies_no_producers(log: Log, transactions: Transactions) -> None:
    await log.create(Create("s"))
    await log.append("s", data(b"0", ("p", 0, 0)))
    state = (await log.entry("s")).state
    assert state is not None
    state.producers = Uncopied(state.producers)
    replies = await transactions.run(None, [publish(b"%d" % seq, seq) for seq in (0, 1, 2)])
    assert [reply.duplicate for reply in replies] == [True, False, False]
    with pytest.raises(PublishRefused):
        await transactions.run(None, [publish(b"3", 3), publish(b"9", 9)])
    assert state.producers["p"].seq == 2, "what was refused left no trace"


async def test_producers_that_were_not_loaded_are_known(
    start_log: StartLog, engine: FaultyEngine, tmp_path: Path
) -> None:
    """A stream with many producers loads only some of them with itself."""
    engine.inner = SqliteEngine(tmp_path / "data", producers_preloaded_max=1)
    log = await start_log()
    await log.create(Create("s"))
    names = [f"p{number}" for number in range(5)]
    for name in names:
        await log.append("s", data(b"x", (name, 0, 0)))
    log._registry._entries.clear()
    groups = await Groups.start(log)
    entries = [publish(b"x", 0, producer=name) for name in names]
    replies = await Transactions(log, groups).run(None, entries)
    assert all(reply.duplicate for reply in replies)
    assert await read_all(log, "s") == b"xxxxx"
    groups.stop()


async def test_one_that_overtook_a_transaction_goes_on(start_log: StartLog) -> None:
    log = await start_log(Limits(producer_wait_ms=60_000))
    groups = await Groups.start(log)
    await log.create(Create("s"))
    early = begin(log.append("s", data(b"1", ("p", 0, 1))))
    await turns()
    assert not early.done()
    await Transactions(log, groups).run(None, [publish(b"0", 0)])
    assert not (await early).duplicate
    assert await read_all(log, "s") == b"01"
    groups.stop()


async def test_a_refusal_waits_for_what_it_rests_on(
    log: Log, engine: FaultyEngine, transactions: Transactions
) -> None:
    """A stream whose closing fails is not closed, and nobody may be told so."""
    await log.create(Create("s"))
    await hold_a_commit(log, engine)
    engine.fail_next(Fault.BEFORE)
    closing = begin(log.append("s", data(b"", close=True)))
    refused = begin(transactions.run(None, [publish(b"0", 0)]))
    await turns()
    assert not refused.done()
    engine.open_all_gates()
    for request in (closing, refused):
        with pytest.raises(StorageUnavailable):
            await request
    await transactions.run(None, [publish(b"0", 0)])
    assert await read_all(log, "s") == b"0"
