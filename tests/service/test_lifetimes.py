"""Time to live and expiry over the running log, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import PathReserved, SourceDeleted, StreamGone, StreamNotFound, TooBusy
from headwater.core.expiry import Lifetime
from headwater.core.limits import Limits
from headwater.core.offsets import Anchor
from headwater.core.stream import Touched
from headwater.service.entries import Event
from headwater.service.log import Log
from tests.service.conftest import StartLog
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import (
    ManualClock,
    begin,
    data,
    fork,
    hold_a_commit,
    listen,
    outcome,
    read_all,
    turns,
    until,
)

TTL = Lifetime(ttl_s=80)
TTL_MS = 80_000
NOTE_EVERY_MS = 10_000
"""How often the last access of such a stream is written down."""


def notes(engine: FaultyEngine) -> list[int]:
    return [m.at_ms for batch in engine.commits for m in batch if isinstance(m, Touched)]


# ── What starts a TTL again ──────────────────────────────────────────────────────────────────

ACCESSES: dict[str, Callable[[Log], Awaitable[object]]] = {
    "append": lambda log: log.append("s", data(b"y")),
    "duplicate": lambda log: log.append("s", data(b"x", ("p", 0, 0))),
    "close": lambda log: log.append("s", Append(close=True)),
    "read": lambda log: log.read("s", Anchor.START),
    "read at the tail": lambda log: log.read("s", Anchor.TAIL),
    "create again": lambda log: log.create(Create("s", lifetime=TTL)),
}


@pytest.mark.parametrize("access", ACCESSES)
async def test_every_access_starts_a_ttl_again(log: Log, clock: ManualClock, access: str) -> None:
    await log.create(Create("s", lifetime=TTL))
    await log.append("s", data(b"x", ("p", 0, 0)))
    for _ in range(3):
        clock.now_ms += TTL_MS - 1
        await ACCESSES[access](log)
    clock.now_ms += TTL_MS
    assert await outcome(log.read("s", Anchor.START)) is StreamNotFound


async def test_looking_without_reading_does_not(log: Log, clock: ManualClock) -> None:
    await log.create(Create("s", lifetime=TTL))
    clock.now_ms += TTL_MS - 1
    log.view(await log.entry("s"))
    await log.list_streams("", "", 10)
    clock.now_ms += 1
    with pytest.raises(StreamNotFound):
        log.view(await log.entry("s"))


async def test_an_expiry_is_an_instant_whatever_happens(log: Log, clock: ManualClock) -> None:
    at_ms = clock.now_ms + 1_000
    await log.create(Create("s", lifetime=Lifetime(expires_at_ms=at_ms)))
    clock.now_ms = at_ms - 1
    await log.append("s", data(b"x"))
    await read_all(log, "s")
    clock.now_ms = at_ms
    assert await outcome(read_all(log, "s")) is StreamNotFound
    assert await outcome(log.append("s", data(b"x"))) is StreamNotFound


# ── Writing the access down ──────────────────────────────────────────────────────────────────


async def test_accesses_are_written_down_now_and_then(
    log: Log, engine: FaultyEngine, clock: ManualClock
) -> None:
    await log.create(Create("s", lifetime=TTL, body=b"x"))
    start = clock.now_ms
    for _ in range(50):
        clock.now_ms += 1_000
        await read_all(log, "s")
    await log.append("s", data(b"y"))
    assert notes(engine) == [start + n * NOTE_EVERY_MS for n in range(1, 6)]


async def test_a_stream_without_a_ttl_needs_no_notes(
    log: Log, engine: FaultyEngine, clock: ManualClock
) -> None:
    await log.create(Create("s"))
    await log.create(Create("t", lifetime=Lifetime(expires_at_ms=clock.now_ms + 10**9)))
    for path in ("s", "t"):
        clock.now_ms += 10**8
        await read_all(log, path)
        await log.append(path, data(b"x"))
    assert notes(engine) == []


async def test_a_life_is_never_shorter_for_a_restart(
    log: Log, engine: FaultyEngine, clock: ManualClock
) -> None:
    await log.create(Create("s", lifetime=TTL, body=b"x"))
    clock.now_ms += NOTE_EVERY_MS - 1
    await read_all(log, "s")
    last_access = clock.now_ms
    log._registry._entries.clear()
    clock.now_ms = last_access + TTL_MS - 1
    assert await read_all(log, "s") == b"x"


async def test_a_note_that_does_not_fit_into_the_queue_is_written_with_a_later_access(
    start_log: StartLog, engine: FaultyEngine, clock: ManualClock
) -> None:
    log = await start_log(Limits(body_bytes_max=10, queue_bytes_max=600))
    await log.create(Create("s", lifetime=TTL, body=b"x"))
    await hold_a_commit(log, engine)
    clock.now_ms += NOTE_EVERY_MS
    assert await outcome(log.append("s", data(b"y"))) is TooBusy
    assert await read_all(log, "s") == b"x", "a read is not refused for that"
    engine.commit_gate.open()
    await until(lambda: log.writer.queued_bytes == 0)
    assert notes(engine) == []
    await read_all(log, "s")
    await until(lambda: log.writer.queued_bytes == 0)
    assert notes(engine) == [clock.now_ms]


async def test_a_failed_note_fails_nobody_else_s_read(
    log: Log, engine: FaultyEngine, clock: ManualClock
) -> None:
    await log.create(Create("s", lifetime=TTL, body=b"x"))
    clock.now_ms += NOTE_EVERY_MS
    engine.fail_next(Fault.BEFORE)
    assert await read_all(log, "s") == b"x"
    await until(lambda: log.writer.failures == 1)
    assert await read_all(log, "s") == b"x"
    await log.append("s", data(b"y"))
    assert notes(engine) == [clock.now_ms]


async def test_reading_a_stream_that_is_about_to_go_writes_nothing_about_it(
    log: Log, engine: FaultyEngine, clock: ManualClock
) -> None:
    """Else the note would concern a stream that the same commit has just removed."""
    await log.create(Create("s", lifetime=TTL, body=b"x"))
    clock.now_ms += NOTE_EVERY_MS
    await hold_a_commit(log, engine)
    deletion = begin(log.delete("s"))
    await turns()
    assert await read_all(log, "s") == b"x"
    engine.commit_gate.open()
    await deletion
    assert await outcome(read_all(log, "s")) is StreamNotFound
    assert log.writer.failures == 0
    assert notes(engine) == []


# ── When it is over ──────────────────────────────────────────────────────────────────────────


async def test_an_expired_stream_is_gone_before_anyone_removes_it(
    log: Log, clock: ManualClock
) -> None:
    await log.create(Create("s", "text/plain", b"old", TTL, closed=True))
    clock.now_ms += TTL_MS
    assert await outcome(log.append("s", data(b"x"))) is StreamNotFound
    assert await outcome(log.delete("s")) is StreamNotFound
    assert await outcome(log.create(fork("f", "s"))) is StreamNotFound
    reply = await log.create(Create("s", body=b"new"))
    assert reply.new
    assert await read_all(log, "s") == b"new"


async def test_an_expired_stream_with_forks_is_hidden(log: Log, clock: ManualClock) -> None:
    await log.create(Create("s", lifetime=TTL, body=b"x"))
    await log.create(Create("f", lifetime=Lifetime(ttl_s=10**6), fork=fork("f", "s").fork))
    clock.now_ms += TTL_MS
    assert await outcome(read_all(log, "s")) is StreamGone
    assert await outcome(log.create(Create("s"))) is PathReserved
    assert await outcome(log.create(fork("g", "s"))) is SourceDeleted
    assert await log.expire("s")
    assert await outcome(read_all(log, "s")) is StreamGone
    assert await read_all(log, "f") == b"x"
    clock.now_ms += 10**9
    assert await log.expire("f")
    assert await outcome(read_all(log, "s")) is StreamNotFound


async def test_expiring_looks_again(log: Log, clock: ManualClock) -> None:
    """Between the look at the list and the deed somebody may have used the stream."""
    await log.create(Create("s", lifetime=TTL))
    assert not await log.expire("s")
    clock.now_ms += TTL_MS - 1
    await log.read("s", Anchor.TAIL)
    clock.now_ms += 1
    assert not await log.expire("s")
    assert not await log.expire("nowhere")
    clock.now_ms += TTL_MS
    assert await log.expire("s")
    assert not await log.expire("s")


async def test_housekeeping_removes_what_is_over_and_tells_those_who_listen(
    log: Log, engine: FaultyEngine, clock: ManualClock
) -> None:
    at_ms = clock.now_ms + 10
    await log.create(Create("s", lifetime=Lifetime(expires_at_ms=at_ms)))
    await log.create(Create("t"))
    ear = await listen(log, "s")
    clock.now_ms = at_ms
    assert await ear.next() is Event.DELETED
    assert [line.path for line in await log.list_streams("", "", 10)] == ["t"]


async def test_housekeeping_survives_a_failure(
    log: Log, engine: FaultyEngine, clock: ManualClock
) -> None:
    at_ms = clock.now_ms + 10
    await log.create(Create("s", lifetime=Lifetime(expires_at_ms=at_ms)))
    ear = await listen(log, "s")
    engine.fail_next(Fault.BEFORE)
    clock.now_ms = at_ms
    assert await ear.next() is Event.DELETED
    assert log.writer.failures == 1
