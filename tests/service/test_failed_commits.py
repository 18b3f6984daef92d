"""A commit that fails: everyone in it is told, nobody else notices, and life goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import (
    DuplicateIds,
    StorageUnavailable,
    StreamClosed,
    StreamGone,
    StreamNotFound,
)
from headwater.core.unique_ids import UniqueIds
from headwater.service.entries import Event
from headwater.service.log import Log
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import (
    BYTES,
    begin,
    data,
    fork,
    listen,
    outcome,
    read_all,
    turns,
)

# ── Nothing of it remains ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "error", [StorageUnavailable("disk full"), OSError(28, "no space left"), KeyError("a bug")]
)
async def test_the_request_is_told_and_nothing_is_there(
    log: Log, engine: FaultyEngine, error: Exception
) -> None:
    await log.create(Create("s", body=b"old"))
    ear = await listen(log, "s")
    engine.fail_next(Fault.BEFORE, error)
    with pytest.raises(StorageUnavailable) as caught:
        await log.append("s", data(b"new", ("p", 3, 0), close=True, stream_seq="9"))
    assert "nothing was written" in caught.value.message
    assert await read_all(log, "s") == b"old"
    assert ear.heard == []
    assert log.writer.failures == 1
    assert log.writer.queued_bytes == 0
    reply = await log.append("s", data(b"again", ("p", 0, 0), stream_seq="1"))
    assert (reply.duplicate, reply.closed) == (False, False), "neither epoch nor closure remained"
    assert reply.next_offset == "0000000000000001_0000000000000008"
    assert await read_all(log, "s") == b"oldagain"
    assert ear.heard == [Event.CHANGED]


async def test_everyone_in_the_batch_fails_and_everyone_who_built_on_it(
    log: Log, engine: FaultyEngine
) -> None:
    for path in ("a", "b", "c"):
        await log.create(Create(path))
    engine.commit_gate.shut()
    engine.fail_next(Fault.BEFORE)
    in_the_batch = [begin(outcome(log.append(path, data(b"1")))) for path in ("a", "b")]
    await engine.commit_gate.arrival()
    gathered = [
        begin(outcome(request))
        for request in (
            log.append("a", data(b"2")),
            log.append("c", data(b"another stream, but the same turn")),
            log.append("a", data(b"3", close=True)),
            log.append("a", data(b"4")),  # refused as closed, if what it rests on had come about
            log.append("a", Append(close=True)),
        )
    ]
    await turns()
    assert not any(request.done() for request in (*in_the_batch, *gathered))
    engine.commit_gate.open()
    failed = await asyncio.gather(*in_the_batch, *gathered)
    assert failed == [StorageUnavailable] * 7
    for path in ("a", "b", "c"):
        assert await read_all(log, path) == b""
        reply = await log.append(path, data(b"now"))
        assert reply.next_offset.endswith("_0000000000000003")
        assert await read_all(log, path) == b"now"
    assert engine.attempts == 3 + 1 + 3


async def test_a_duplicate_that_arrives_meanwhile_fails_with_its_original(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s"))
    engine.commit_gate.shut()
    engine.fail_next(Fault.BEFORE)
    original = begin(outcome(log.append("s", data(b"x", ("p", 0, 0)))))
    await engine.commit_gate.arrival()
    duplicate = begin(outcome(log.append("s", data(b"x", ("p", 0, 0)))))
    await turns()
    assert not duplicate.done()
    engine.commit_gate.open()
    assert await original is StorageUnavailable
    assert await duplicate is StorageUnavailable, "there is nothing that it would be one of"
    assert not (await log.append("s", data(b"x", ("p", 0, 0)))).duplicate
    assert await read_all(log, "s") == b"x"


async def test_a_duplicate_that_arrives_meanwhile_is_answered_with_its_original(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s"))
    engine.commit_gate.shut()
    original = begin(log.append("s", data(b"x", ("p", 0, 0))))
    await engine.commit_gate.arrival()
    duplicate = begin(log.append("s", data(b"x", ("p", 0, 0))))
    await turns()
    assert not duplicate.done()
    engine.commit_gate.open()
    assert not (await original).duplicate
    assert (await duplicate).duplicate
    assert await read_all(log, "s") == b"x"


async def test_a_stream_that_could_not_be_created_is_not_there(
    log: Log, engine: FaultyEngine
) -> None:
    engine.fail_next(Fault.BEFORE)
    assert await outcome(log.create(Create("s", body=b"x"))) is StorageUnavailable
    assert await outcome(read_all(log, "s")) is StreamNotFound
    assert (await log.create(Create("s", "text/plain"))).new


async def test_a_stream_that_could_not_be_deleted_is_still_there(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"x"))
    ear = await listen(log, "s")
    engine.fail_next(Fault.BEFORE)
    assert await outcome(log.delete("s")) is StorageUnavailable
    assert await read_all(log, "s") == b"x"
    await log.append("s", data(b"y"))
    assert await read_all(log, "s") == b"xy"
    assert ear.heard == [Event.CHANGED]


async def test_a_fork_that_could_not_be_made_holds_no_reference(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"x"))
    engine.fail_next(Fault.BEFORE)
    assert await outcome(log.create(fork("f", "s"))) is StorageUnavailable
    await log.delete("s")
    assert await outcome(read_all(log, "s")) is StreamNotFound, "deleted and not just hidden"


async def test_a_fork_that_could_not_be_deleted_still_holds_its_source(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"x"))
    await log.create(fork("f", "s"))
    await log.delete("s")
    engine.fail_next(Fault.BEFORE)
    assert await outcome(log.delete("f")) is StorageUnavailable
    assert await read_all(log, "f") == b"x"
    assert await outcome(read_all(log, "s")) is StreamGone
    await log.delete("f")
    assert await outcome(read_all(log, "s")) is StreamNotFound


async def test_an_id_is_not_given_out_again_after_a_failure(log: Log, engine: FaultyEngine) -> None:
    """Its offsets may be on their way to someone: another stream must not understand them."""
    engine.fail_next(Fault.BEFORE)
    await outcome(log.create(Create("s", body=b"x")))
    reply = await log.create(Create("s", body=b"y"))
    assert reply.next_offset == "0000000000000002_0000000000000001"


async def test_failures_in_a_row_do_no_harm(log: Log, engine: FaultyEngine) -> None:
    await log.create(Create("s"))
    for _ in range(5):
        engine.fail_next(Fault.BEFORE)
        assert await outcome(log.append("s", data(b"x", ("p", 0, 0)))) is StorageUnavailable
    await log.append("s", data(b"y", ("p", 0, 0)))
    assert await read_all(log, "s") == b"y"


# ── Reading meanwhile ────────────────────────────────────────────────────────────────────────


async def test_readers_see_nothing_of_it_before_during_and_after(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"old"))
    engine.commit_gate.shut()
    engine.fail_next(Fault.BEFORE)
    request = begin(outcome(log.append("s", data(b"new"))))
    await engine.commit_gate.arrival()
    assert await read_all(log, "s") == b"old"
    engine.commit_gate.open()
    await request
    assert await read_all(log, "s") == b"old"
    entry = await log.entry("s")
    assert (entry.require_view().tail, entry.require_view().messages) == (3, 1)
    await log.append("s", data(b"er"))
    assert await read_all(log, "s") == b"older"


async def test_a_reader_keeps_its_place_over_a_failure(log: Log, engine: FaultyEngine) -> None:
    reply = await log.create(Create("s", body=b"old"))
    engine.fail_next(Fault.BEFORE)
    await outcome(log.append("s", data(b"lost")))
    assert await read_all(log, "s", reply.next_offset) == b""
    await log.append("s", data(b"found"))
    assert await read_all(log, "s", reply.next_offset) == b"found"


async def test_while_the_engine_is_gone_requests_fail_and_then_it_goes_on(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"x"))
    engine.fail_next(Fault.BEFORE)
    await outcome(log.append("s", data(b"y")))
    engine.fail_reads = StorageUnavailable("gone")
    requests: list[Callable[[], Awaitable[object]]] = [
        lambda: log.append("s", data(b"y")),
        lambda: log.create(Create("s")),
        lambda: log.delete("s"),
        lambda: read_all(log, "s"),
        lambda: log.list_streams("", "", 10),
    ]
    for request in requests:
        assert await outcome(request()) is StorageUnavailable
    engine.fail_reads = None
    await log.append("s", data(b"y"))
    assert await read_all(log, "s") == b"xy"


# ── Failed, but stored ───────────────────────────────────────────────────────────────────────


async def test_what_was_stored_after_all_is_found_when_the_state_is_loaded_again(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s"))
    ear = await listen(log, "s")
    engine.fail_next(Fault.AFTER)
    assert await outcome(log.append("s", data(b"x", ("p", 0, 0)))) is StorageUnavailable
    assert ear.heard == [], "nobody has looked yet"
    reply = await log.append("s", data(b"x", ("p", 0, 0)))
    assert reply.duplicate, "which is why a producer may simply try again"
    assert await read_all(log, "s") == b"x"
    assert ear.heard == [Event.CHANGED]


async def test_what_built_on_it_is_void_all_the_same(log: Log, engine: FaultyEngine) -> None:
    await log.create(Create("s"))
    engine.commit_gate.shut()
    engine.fail_next(Fault.AFTER)
    first = begin(outcome(log.append("s", data(b"1"))))
    await engine.commit_gate.arrival()
    second = begin(outcome(log.append("s", data(b"2"))))
    await turns()
    engine.commit_gate.open()
    assert [await first, await second] == [StorageUnavailable] * 2
    await log.append("s", data(b"3"))
    assert await read_all(log, "s") == b"13"


async def test_a_closure_that_was_stored_after_all_holds(log: Log, engine: FaultyEngine) -> None:
    await log.create(Create("s"))
    ear = await listen(log, "s")
    engine.fail_next(Fault.AFTER)
    assert await outcome(log.append("s", Append(close=True))) is StorageUnavailable
    assert await outcome(log.append("s", data(b"x"))) is StreamClosed
    assert ear.heard == [Event.CHANGED]


@pytest.mark.parametrize("with_fork", [False, True])
async def test_readers_learn_of_a_deletion_that_was_stored_after_all(
    log: Log, engine: FaultyEngine, with_fork: bool
) -> None:
    await log.create(Create("s", body=b"x"))
    if with_fork:
        await log.create(fork("f", "s"))
    ear = await listen(log, "s")
    engine.fail_next(Fault.AFTER)
    assert await outcome(log.delete("s")) is StorageUnavailable
    expected = StreamGone if with_fork else StreamNotFound
    assert await outcome(read_all(log, "s")) is expected
    assert ear.heard == [Event.DELETED]


async def test_readers_learn_that_their_stream_was_replaced_after_all(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"old"))
    ear = await listen(log, "s")
    deletion = begin(log.delete("s"))
    creation = begin(log.create(Create("s", body=b"new!")))
    engine.fail_next(Fault.AFTER)
    assert await outcome(deletion) is StorageUnavailable
    assert await outcome(creation) is StorageUnavailable
    assert await read_all(log, "s") == b"new!"
    assert ear.heard == [Event.DELETED]


async def test_settings_that_were_stored_after_all_hold(log: Log, engine: FaultyEngine) -> None:
    await log.create(Create("s", version=1, description="old"))
    newer = Create("s", version=2, description="new")
    engine.fail_next(Fault.AFTER)
    assert await outcome(log.create(newer)) is StorageUnavailable
    entry = await log.entry("s")
    assert entry.state is not None
    assert entry.state.config.description == "new"
    assert entry.require_view().config.description == "new"
    before = engine.attempts
    assert not (await log.create(newer)).new
    assert engine.attempts == before, "there is nothing left to change"


# ── Streams with unique ids ──────────────────────────────────────────────────────────────────


def unique(body: bytes, message_id: str) -> Append:
    return Append(body, BYTES, message_id=message_id)


async def test_one_that_waited_for_its_turn_over_a_failure_finds_its_stream_again(
    log: Log, engine: FaultyEngine
) -> None:
    """The one before it hung up, so nobody has loaded the stream again meanwhile."""
    await log.create(Create("s", unique_ids=UniqueIds("fail")))
    engine.commit_gate.shut()
    engine.fail_next(Fault.BEFORE)
    failing = begin(outcome(log.append("s", unique(b"1", "a"))))
    await engine.commit_gate.arrival()
    gate = engine.gate("known_ids")
    gate.shut()
    looking = begin(log.append("s", unique(b"2", "b")))
    await gate.arrival()
    waiting = begin(outcome(log.append("s", unique(b"3", "c"))))
    await turns()
    engine.commit_gate.open()
    assert await failing is StorageUnavailable
    looking.cancel()
    gate.open()
    assert not isinstance(await waiting, type)
    assert await read_all(log, "s") == b"3"


async def test_an_id_of_a_failed_append_is_free_again(log: Log, engine: FaultyEngine) -> None:
    await log.create(Create("s", unique_ids=UniqueIds("fail")))
    engine.fail_next(Fault.BEFORE)
    assert await outcome(log.append("s", unique(b"1", "a"))) is StorageUnavailable
    await log.append("s", unique(b"2", "a"))
    assert await outcome(log.append("s", unique(b"3", "a"))) is DuplicateIds
    assert await read_all(log, "s") == b"2"
