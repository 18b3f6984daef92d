"""Forks over the running log: what they inherit, and what may happen while one is being made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import (
    InvalidFork,
    SourceDeleted,
    StorageUnavailable,
    StreamGone,
    StreamNotFound,
    UnknownOffset,
)
from headwater.core.limits import Limits
from headwater.core.stream import Deleted
from headwater.service.batches import Batch
from headwater.service.entries import Event
from headwater.service.log import Log
from tests.service.conftest import StartLog
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import (
    begin,
    data,
    fork,
    listen,
    outcome,
    read_all,
    turns,
    until,
    warm,
)


async def test_a_fork_reads_as_its_source_and_then_goes_its_own_way(log: Log) -> None:
    await log.create(Create("s", body=b"ab"))
    at = (await log.append("s", data(b"cd"))).next_offset
    await log.append("s", data(b"ef"))
    await log.create(fork("f", "s", at))
    await log.create(fork("g", "f", "-1", 1))
    await log.append("f", data(b"F"))
    await log.append("g", data(b"G"))
    await log.append("s", data(b"gh"))
    assert await read_all(log, "s") == b"abcdefgh"
    assert await read_all(log, "f") == b"abcdF"
    assert await read_all(log, "g") == b"aG"
    assert await read_all(log, "f", at) == b"F"


async def test_appends_to_the_source_wake_nobody_on_the_fork(log: Log) -> None:
    await log.create(Create("s", body=b"x"))
    await log.create(fork("f", "s"))
    ear = await listen(log, "f")
    await log.append("s", data(b"y"))
    assert ear.heard == []
    await log.append("f", data(b"z"))
    assert ear.heard == [Event.CHANGED]


# ── Only what is committed ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fails", [False, True])
async def test_a_fork_waits_for_what_it_inherits_to_be_committed(
    log: Log, engine: FaultyEngine, fails: bool
) -> None:
    await log.create(Create("s", body=b"old"))
    await warm(log, "f")
    engine.commit_gate.shut()
    if fails:
        engine.fail_next(Fault.BEFORE)
    append = begin(outcome(log.append("s", data(b"new"))))
    await engine.commit_gate.arrival()
    forking = begin(outcome(log.create(fork("f", "s"))))
    await turns()
    assert not forking.done()
    assert await outcome(read_all(log, "f")) is StreamNotFound
    engine.commit_gate.open()
    assert isinstance(await append, type) == fails
    if fails:
        assert await forking is StorageUnavailable
        await log.create(fork("f", "s"))
        assert await read_all(log, "f") == b"old"
    else:
        assert not isinstance(await forking, type)
        assert await read_all(log, "f") == b"oldnew"


async def test_a_fork_of_a_stream_that_is_being_created_waits_for_it(
    log: Log, engine: FaultyEngine
) -> None:
    await warm(log, "s", "f", "g")
    engine.commit_gate.shut()
    creating = begin(log.create(Create("s", body=b"x")))
    await engine.commit_gate.arrival()
    forking = [begin(log.create(fork(path, "s"))) for path in ("f", "g")]
    await turns()
    engine.commit_gate.open()
    await asyncio.gather(creating, *forking)
    assert await read_all(log, "f") == await read_all(log, "g") == b"x"


# ── The world moves on meanwhile ─────────────────────────────────────────────────────────────


async def test_an_append_while_a_fork_is_measured_is_not_inherited(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"ab"))
    gate = engine.gate("append_at")
    gate.shut()
    forking = begin(log.create(fork("f", "s", "-1", 1)))
    await gate.arrival()
    await log.append("s", data(b"cd"))
    gate.open()
    await forking
    assert await read_all(log, "f") == b"a"


async def test_a_source_that_is_deleted_while_a_fork_is_measured_cannot_be_forked(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"ab"))
    gate = engine.gate("append_at")
    gate.shut()
    forking = begin(outcome(log.create(fork("f", "s", "-1", 1))))
    await gate.arrival()
    await log.delete("s")
    gate.open()
    assert await forking is StreamNotFound
    assert await outcome(read_all(log, "f")) is StreamNotFound


async def test_a_source_that_is_replaced_while_a_fork_is_measured_is_measured_again(
    log: Log, engine: FaultyEngine
) -> None:
    """Else the fork would inherit bytes of the new stream that do not exist."""
    await log.create(Create("s", body=b"a long first append"))
    gate = engine.gate("append_at")
    gate.shut()
    forking = begin(outcome(log.create(fork("f", "s", "-1", 10))))
    await gate.arrival()
    await log.delete("s")
    await log.create(Create("s", body=b"short"))
    gate.open()
    assert await forking is InvalidFork
    await log.create(fork("f", "s", "-1", 2))
    assert await read_all(log, "f") == b"sh"


async def test_a_fork_point_of_a_replaced_source_means_nothing_on_the_new_one(
    log: Log, engine: FaultyEngine
) -> None:
    reply = await log.create(Create("s", body=b"first"))
    await log.append("s", data(b"second"))
    gate = engine.gate("append_at")
    gate.shut()
    forking = begin(outcome(log.create(fork("f", "s", reply.next_offset))))
    await gate.arrival()
    await log.delete("s")
    await log.create(Create("s", body=b"quite a lot of other data"))
    gate.open()
    assert await forking is UnknownOffset


async def test_a_fork_that_waited_for_a_commit_measures_what_is_there_now(
    log: Log, engine: FaultyEngine
) -> None:
    """Those who woke before it may have deleted its source and created another in its place."""
    await log.create(Create("s", body=b"a lot of data"))
    await warm(log, "f")
    engine.commit_gate.shut()

    async def append_then(then: Callable[[], Awaitable[object]]) -> None:
        await log.append("s", data(b"more"))
        await then()

    replacing = [
        begin(append_then(lambda: log.delete("s"))),
        begin(append_then(lambda: log.create(Create("s", body=b"new")))),
    ]
    await engine.commit_gate.arrival()
    forking = begin(outcome(log.create(fork("f", "s"))))
    await turns()
    engine.commit_gate.open()
    await asyncio.gather(*replacing)
    assert not isinstance(await forking, type)
    assert await read_all(log, "f") == await read_all(log, "s") == b"new"


async def test_a_source_that_nobody_else_uses_meanwhile_still_learns_of_its_fork(
    start_log: StartLog, engine: FaultyEngine
) -> None:
    """If it were dropped from memory and loaded again, it would not know that it is needed."""
    log = await start_log(Limits(streams_in_memory_max=16))
    await log.create(Create("s", body=b"ab"))
    gate = engine.gate("append_at")
    gate.shut()
    forking = begin(log.create(fork("f", "s", "-1", 1)))
    await gate.arrival()
    for number in range(40):
        await log.create(Create(f"other/{number}"))
    await warm(log, "s")
    gate.open()
    await forking
    await log.delete("s")
    assert await outcome(read_all(log, "s")) is StreamGone
    assert await read_all(log, "f") == b"a"


@pytest.mark.parametrize("has_forks", [False, True])
async def test_a_refusal_rests_on_what_is_committed_at_the_source_too(
    log: Log, engine: FaultyEngine, has_forks: bool
) -> None:
    """The source is being deleted, but that fails: so it was there all the time."""
    await log.create(Create("s", body=b"ab"))
    if has_forks:
        await log.create(fork("other", "s"))
    gate = engine.gate("append_at")
    gate.shut()
    forking = begin(outcome(log.create(fork("f", "s", "-1", 1))))
    await gate.arrival()
    engine.commit_gate.shut()
    engine.fail_next(Fault.BEFORE)
    deletion = begin(outcome(log.delete("s")))
    await engine.commit_gate.arrival()
    pending = (await log.entry("s")).pending
    assert isinstance(pending, Batch)
    gate.open()
    await until(lambda: len(pending.waiters) == 2)
    assert not forking.done()
    engine.commit_gate.open()
    assert await deletion is StorageUnavailable
    assert await forking is StorageUnavailable


async def test_a_path_that_is_taken_while_a_fork_is_measured_is_a_conflict(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"ab"))
    gate = engine.gate("append_at")
    gate.shut()
    forking = begin(outcome(log.create(fork("f", "s", "-1", 1))))
    await gate.arrival()
    await log.create(Create("f"))
    gate.open()
    refused = await forking
    assert isinstance(refused, type)
    assert refused.code == "config_conflict"
    await log.delete("s")
    assert await outcome(read_all(log, "s")) is StreamNotFound, "no reference was counted"


# ── Deleting families ────────────────────────────────────────────────────────────────────────


async def test_the_last_fork_takes_its_hidden_ancestors_with_it(log: Log) -> None:
    await log.create(Create("a", body=b"1"))
    await log.create(fork("b", "a"))
    await log.create(fork("c", "b"))
    for path in ("a", "b"):
        await log.delete(path)
        assert await outcome(read_all(log, path)) is StreamGone
        assert await outcome(log.create(fork("x", path))) is SourceDeleted
    assert await read_all(log, "c") == b"1"
    await log.delete("c")
    for path in ("a", "b", "c"):
        assert await outcome(read_all(log, path)) is StreamNotFound
        assert (await log.create(Create(path))).new


async def test_forks_that_are_deleted_together_take_their_source_with_them(
    log: Log, engine: FaultyEngine
) -> None:
    await log.create(Create("s", body=b"1"))
    for number in range(5):
        await log.create(fork(f"f{number}", "s"))
    await log.delete("s")
    await asyncio.gather(*(log.delete(f"f{number}") for number in range(5)))
    assert await outcome(read_all(log, "s")) is StreamNotFound
    assert await log.list_streams("", "", 10) == []
    assert engine.streams.load_id(1) is None


async def test_a_fork_that_is_replaced_while_its_family_is_looked_up_leaves_the_old_one_alone(
    log: Log, engine: FaultyEngine
) -> None:
    """Deleting the new stream must not count against the source of the old one."""
    await log.create(Create("s", body=b"needed by g"))
    await log.create(fork("f", "s"))
    await log.create(fork("g", "s"))
    await log.delete("s")
    held_up = engine.gate("path_of")
    held_up.shut()
    deletion = begin(log.delete("f"))
    await held_up.arrival()
    engine.remove_gate("path_of")
    await log.delete("f")
    await log.create(Create("f", body=b"another"))
    held_up.open()
    await deletion
    assert await outcome(read_all(log, "f")) is StreamNotFound, "it is the new one that went"
    assert await read_all(log, "g") == b"needed by g"
    await log.delete("g")
    assert await outcome(read_all(log, "s")) is StreamNotFound


async def test_a_chain_of_forks_may_be_longer_than_what_is_kept_in_memory(
    start_log: StartLog,
) -> None:
    log = await start_log(Limits(streams_in_memory_max=16))
    await log.create(Create("s/0", body=b"0"))
    for number in range(1, 41):
        await log.create(fork(f"s/{number}", f"s/{number - 1}"))
        await log.append(f"s/{number}", data(b"x"))
    assert await read_all(log, "s/40") == b"0" + b"x" * 40
    for number in range(40):
        await log.delete(f"s/{number}")
    assert len(log._registry) <= 17
    assert await read_all(log, "s/40") == b"0" + b"x" * 40
    await log.delete("s/40")
    for number in range(41):
        assert await outcome(read_all(log, f"s/{number}")) is StreamNotFound


async def test_a_very_long_chain_goes_a_bounded_number_at_a_time(start_log: StartLog) -> None:
    """No deletion takes all of it along at once, and none is left in the end, after a start too."""
    log = await start_log(Limits(streams_in_memory_max=16))
    await log.create(Create("s/0", body=b"0"))
    for number in range(1, 150):
        await log.create(fork(f"s/{number}", f"s/{number - 1}"))
    for number in range(149):
        await log.delete(f"s/{number}")
    deleted: list[int] = []
    log.writer.observers.append(
        lambda effects: deleted.append(sum(isinstance(m, Deleted) for _, m in effects))
    )
    await log.delete("s/149")
    assert await outcome(read_all(log, "s/149")) is StreamNotFound
    await until(lambda: sum(deleted) == 150)
    assert max(deleted) <= 65
    for number in range(150):
        assert await outcome(read_all(log, f"s/{number}")) is StreamNotFound
