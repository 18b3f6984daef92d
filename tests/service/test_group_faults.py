"""Groups while commits fail, look-ups take their time and streams come and go.

A copy of a group in memory is void when a commit with a change of it failed. From then on nothing
may be decided on that copy and nothing of it be stored, and whoever asks finds a fresh one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TypeVar

import pytest

from headwater.core.content_types import JSON
from headwater.core.decisions import Append, Create
from headwater.core.errors import (
    GroupNotFound,
    StorageUnavailable,
    StreamNotFound,
    TooBusy,
)
from headwater.core.groups.commands import Ack
from headwater.core.groups.config import GroupConfig
from headwater.core.groups.decisions import Outcome, decide_seek
from headwater.core.groups.mutations import MessagesLeased
from headwater.core.groups.state import GroupState, MessageRef
from headwater.core.limits import FETCH_BYTES_MAX, Limits
from headwater.core.stream import Appended
from headwater.core.unique_ids import UniqueIds
from headwater.http.resources.group_members import Fetch
from headwater.service.groups.messages import MessageReader
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.service.replies import Reply
from tests.service.conftest import StartLog
from tests.support.engines import running
from tests.support.faulty_engine import Fault, FaultyEngine, Gate
from tests.support.logs import ManualClock, begin, hold_a_commit, outcome, read_all, turns, until
from tests.support.members import Member, ack, fetch, json, nack, reject, wait_for_messages
from tests.support.recounts import check_groups

LEASE_MS = 30_000
COLD = Limits(hot_bytes_per_stream_max=0)
SMALL = Limits(streams_in_memory_max=16)
R = TypeVar("R")


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultyEngine]:
    with running(request.param, tmp_path) as engine:
        yield FaultyEngine(engine)


@pytest.fixture
async def log(start_log: StartLog) -> Log:
    """Nothing stays in memory, so that every message is looked up."""
    return await start_log(COLD)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again later is tried again very soon."""
    monkeypatch.setattr("headwater.service.groups.dead_letters._RETRY_MS", 20)
    monkeypatch.setattr("headwater.service.groups.registry._LOOK_AGAIN_MS", 20)


@pytest.fixture
async def groups(log: Log) -> AsyncIterator[Groups]:
    groups = await Groups.start(log)
    yield groups
    check_groups(groups)
    groups.stop()


async def make(log: Log, groups: Groups, *messages: str, config: GroupConfig | None = None) -> None:
    """A stream `s` with some messages, and a group `g` on it."""
    await log.create(Create("s", JSON))
    for message in messages:
        await log.append("s", json(message))
    await groups.put("s", "g", config or GroupConfig())


def stored(engine: FaultyEngine, name: str = "g") -> GroupState:
    loaded = engine.inner.streams.load("s")
    assert loaded is not None
    (state,) = [
        g for g in engine.inner.groups.of_stream(loaded.state.config.id) if g.record.name == name
    ]
    return state


async def lose(groups: Groups, engine: FaultyEngine, name: str = "g") -> None:
    """Let a commit with a change of a group fail, so that its copy in memory is void."""
    engine.fail_next(Fault.BEFORE)
    assert await outcome(groups.pause("s", name, paused=True)) is StorageUnavailable


# ── A copy that is void stores nothing any more ──────────────────────────────────────────────


async def test_nothing_is_handed_out_from_a_copy_that_became_void_while_it_read(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    """The message was delivered by the next copy and acknowledged: it must not come back."""
    await make(log, groups, "1", "2")
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    await nack(groups, "s", "g", receipt)
    gate = engine.gate("read")
    gate.shut()
    first = begin(outcome(wait_for_messages(groups, "s", "g")))
    await gate.arrival()
    await lose(groups, engine)
    assert await first is StorageUnavailable, "its copy is void"
    engine.remove_gate("read")
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    assert len((await ack(groups, "s", "g", receipt)).done) == 1
    engine.open_all_gates()
    await turns(50)
    await log.append("s", json("3"))
    assert stored(engine).outstanding == {}


async def test_a_seek_that_takes_its_time_reaches_the_group_that_is_there_then(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups, "1", "2")
    offset = (await log.append("s", json("3"))).next_offset
    await log.append("s", json("4"))
    gate = engine.gate("append_at")
    gate.shut()
    seeking = begin(groups.seek("s", "g", offset))
    await gate.arrival()
    await lose(groups, engine)
    engine.remove_gate("append_at")
    assert [m for _, m in await fetch(groups, "s", "g", 1)] == ["1"]
    engine.open_all_gates()
    await seeking
    assert [m for _, m in await fetch(groups, "s", "g")] == ["4"]


async def test_a_member_that_joins_a_void_copy_is_told(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    """An event stream begins a moment after its group was found."""
    await make(log, groups)
    group = await groups.get("s", "g")
    await lose(groups, engine)
    member = Member()
    member.group = group
    group.enlist(member)
    with pytest.raises(StorageUnavailable):
        await member.future


async def test_messages_that_could_not_be_read_do_not_count_as_delivered(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups, "1", "2", config=GroupConfig(max_deliveries=2, dead_letter="dead"))
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    await nack(groups, "s", "g", receipt)
    await groups.get("s", "g")
    engine.fail_reads = StorageUnavailable("for a moment")
    assert await outcome(fetch(groups, "s", "g", 1)) is StorageUnavailable
    engine.fail_reads = None
    assert [m for _, m in await fetch(groups, "s", "g", 1)] == ["1"], "at once, and not as dead"


# ── The copies of other groups stay as they are ──────────────────────────────────────────────


async def test_what_is_queued_of_one_group_is_not_lost_when_another_is_loaded_again(
    start_log: StartLog, engine: FaultyEngine, clock: ManualClock
) -> None:
    log = await start_log(Limits(body_bytes_max=4_000, queue_bytes_max=4_000))
    groups = await Groups.start(log)
    await make(log, groups, "1")
    await groups.put("s", "other", GroupConfig())
    ((receipt, _),) = await fetch(groups, "s", "g")
    await log.append("s", json("2"))
    engine.commit_gate.shut()
    acknowledging = begin(ack(groups, "s", "g", receipt))
    await engine.commit_gate.arrival()
    filling = begin(log.append("s", json('"' + "x" * 2_800 + '"')))
    assert await outcome(groups.pause("s", "other", paused=True)) is TooBusy
    looking = begin(groups.get("s", "other"))
    await turns(100)
    engine.commit_gate.open()
    assert len((await acknowledging).done) == 1
    assert not (await looking).state.paused
    await filling
    clock.now_ms += LEASE_MS
    assert [m for _, m in await fetch(groups, "s", "g", 1)] == ["2"], "1 is acknowledged"
    groups.stop()


async def test_one_that_becomes_void_while_another_is_loaded_is_loaded_once_more(
    log: Log,
    groups: Groups,
    engine: FaultyEngine,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was read of it before its last commit is out of date."""
    await make(log, groups, "1", "2")
    await groups.put("s", "other", GroupConfig())
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    group = await groups.get("s", "g")
    await log.writer.reply_after_all(None)
    await lose(groups, engine, "other")
    gate, read = Gate(), engine.groups.of_stream

    def read_and_wait(stream_id: int) -> list[GroupState]:
        found = read(stream_id)
        gate.pass_through()
        return found

    monkeypatch.setattr(engine.groups, "of_stream", read_and_wait)
    gate.shut()
    looking = begin(groups.get("s", "other"))
    await gate.arrival()
    await group.settle(Ack([receipt]))
    engine.fail_next(Fault.BEFORE)
    with pytest.raises(StorageUnavailable):
        await group.submit(decide_seek(group.state, MessageRef(0, 0, 0)), None)
    gate.open()
    await looking
    clock.now_ms += LEASE_MS
    assert [m for _, m in await fetch(groups, "s", "g")] == ["2"]


async def test_a_group_whose_commit_fails_takes_no_other_group_along(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups)
    await groups.put("s", "passing", GroupConfig(durable=False))
    waiting = begin(wait_for_messages(groups, "s", "passing"))
    await turns()
    await lose(groups, engine)
    await groups.get("s", "g")
    await log.append("s", json("1"))
    assert [m for _, m in await waiting] == ["1"]


# ── Creating, changing and deleting groups ───────────────────────────────────────────────────


async def test_a_deletion_that_failed_after_its_client_hung_up_leaves_the_group(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups, "1")
    engine.commit_gate.shut()
    engine.fail_next(Fault.BEFORE)
    deleting = begin(groups.delete("s", "g"))
    await engine.commit_gate.arrival()
    deleting.cancel()
    engine.commit_gate.open()
    await until(lambda: log.writer.failures == 1)
    assert not (await groups.put("s", "g", GroupConfig()))[1]
    assert [m for _, m in await fetch(groups, "s", "g")] == ["1"]


@pytest.mark.parametrize("fault", [None, *Fault])
async def test_a_group_is_not_said_to_be_missing_before_its_deletion_is_committed(
    log: Log, groups: Groups, engine: FaultyEngine, fault: Fault | None
) -> None:
    await make(log, groups)
    engine.commit_gate.shut()
    if fault is not None:
        engine.fail_next(fault)
    deleting = begin(outcome(groups.delete("s", "g")))
    await engine.commit_gate.arrival()
    again = begin(outcome(groups.delete("s", "g")))
    await turns(50)
    engine.commit_gate.open()
    assert await deleting is (None if fault is None else StorageUnavailable)
    assert await again is (GroupNotFound if fault is None else StorageUnavailable)
    expected = GroupNotFound if fault in (None, Fault.AFTER) else None
    assert await outcome(groups.delete("s", "g")) is expected


@pytest.mark.parametrize("again", [GroupConfig(), GroupConfig(max_in_flight=7)])
async def test_settings_are_not_confirmed_before_they_are_committed(
    log: Log, groups: Groups, engine: FaultyEngine, again: GroupConfig
) -> None:
    await log.create(Create("s", JSON))
    await groups.of("s")
    engine.commit_gate.shut()
    engine.fail_next(Fault.BEFORE)
    first = begin(outcome(groups.put("s", "g", GroupConfig())))
    await engine.commit_gate.arrival()
    second = begin(outcome(groups.put("s", "g", again)))
    await turns(50)
    engine.commit_gate.open()
    assert [await first, await second] == [StorageUnavailable] * 2
    assert await outcome(groups.get("s", "g")) is GroupNotFound


async def test_a_group_is_not_made_on_a_stream_that_is_being_replaced(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await log.create(Create("s", JSON, body=b'["old"]'))
    await groups.of("s")
    await hold_a_commit(log, engine)
    deleting = begin(log.delete("s"))
    await turns()
    creating = begin(log.create(Create("s", JSON, body=b'["new"]')))
    await turns()
    making = begin(groups.put("s", "g", GroupConfig()))
    await turns(50)
    engine.commit_gate.open()
    await asyncio.gather(deleting, creating, making)
    assert [m for _, m in await fetch(groups, "s", "g")] == ['"new"']


async def test_members_learn_that_their_stream_was_replaced(
    log: Log, groups: Groups, engine: FaultyEngine, clock: ManualClock
) -> None:
    """Whatever was out is forgotten: receipts, timers and all."""
    await make(log, groups, '"old"')
    ((receipt, _),) = await fetch(groups, "s", "g")
    waiting = begin(outcome(wait_for_messages(groups, "s", "g")))
    await turns()
    deleting = begin(log.delete("s"))
    await turns()
    await log.create(Create("s", JSON, body=b'["new"]'))
    await deleting
    assert await waiting is StreamNotFound
    await groups.put("s", "g", GroupConfig())
    assert (await ack(groups, "s", "g", receipt)).stale == [receipt]
    clock.now_ms += LEASE_MS
    assert [m for _, m in await fetch(groups, "s", "g")] == ['"new"']


# ── More groups than fit into memory ─────────────────────────────────────────────────────────


async def test_a_group_is_known_although_its_stream_was_dropped_while_it_was_made(
    start_log: StartLog, engine: FaultyEngine
) -> None:
    log = await start_log(SMALL)
    groups = await Groups.start(log)
    await log.create(Create("s", JSON, body=b"[1]"))
    offset = (await log.append("s", json("2"))).next_offset
    await log.append("s", json("3"))
    gate = engine.gate("append_at")
    gate.shut()
    making = begin(groups.put("s", "g", GroupConfig(start=offset)))
    await gate.arrival()
    for number in range(20):
        await log.create(Create(f"other/{number}", JSON))
        await groups.of(f"other/{number}")
    await groups.of("s")
    gate.open()
    assert (await making)[1]
    assert not (await groups.put("s", "g", GroupConfig(start=offset)))[1]
    assert [m for _, m in await fetch(groups, "s", "g")] == ["3"]
    groups.stop()


@pytest.mark.parametrize("every", [2, 3, 5])
async def test_many_groups_in_little_memory_while_commits_fail(
    start_log: StartLog, engine: FaultyEngine, clock: ManualClock, every: int
) -> None:
    """Each request is repeated until it is answered; every message is acknowledged once."""
    log = await start_log(SMALL)
    groups = await Groups.start(log)
    paths = [f"s/{number}" for number in range(40)]
    for path in paths:
        await log.create(Create(path, JSON, body=b"[1,2,3]"))
    failing = cycle([None] * (every - 1) + [Fault.BEFORE] + [None] * (every - 1) + [Fault.AFTER])
    engine.plan = lambda _: next(failing)

    async def insist(request: Callable[[], Awaitable[R]]) -> R:
        while True:
            with suppress(StorageUnavailable):
                return await request()

    async def is_settled(path: str, number: int, receipt: str) -> bool:
        first = await outcome(ack(groups, path, "g", receipt))
        if isinstance(first, Outcome):
            return bool(first.done)
        if (await insist(partial(ack, groups, path, "g", receipt))).done:
            return True
        # Stale now means: that was stored after all, or the delivery was not.
        state = (await insist(partial(groups.get, path, "g"))).state
        return number < state.cursor.number and number not in state.outstanding

    acknowledged: dict[str, list[str]] = {path: [] for path in paths}

    async def work(path: str) -> None:
        await insist(partial(groups.put, path, "g", GroupConfig(ack_timeout_ms=100)))
        while len(acknowledged[path]) < 3:
            # Deliveries that failed may be stored all the same, with receipts nobody knows.
            clock.now_ms += 1
            for receipt, message in await insist(partial(fetch, groups, path, "g", 2)):
                assert message not in acknowledged[path], "acknowledged, and delivered again"
                if await is_settled(path, int(message) - 1, receipt):
                    acknowledged[path].append(message)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for path in paths:
            tasks.create_task(work(path))
    assert all(sorted(messages) == ["1", "2", "3"] for messages in acknowledged.values())
    groups.stop()


# ── Nobody waits in vain ─────────────────────────────────────────────────────────────────────


async def test_a_seek_while_messages_are_read_wakes_those_who_wait(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups, "1")
    offset = (await log.append("s", json("2"))).next_offset
    await log.append("s", json("3"))
    gate = engine.gate("read")
    gate.shut()
    waiting = begin(wait_for_messages(groups, "s", "g"))
    await gate.arrival()
    await groups.seek("s", "g", offset)
    gate.open()
    async with asyncio.timeout(60):
        assert [m for _, m in await waiting] == ["3"]


async def test_large_appends_may_be_read_as_often_as_one_likes(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.service.groups.messages._SPLITS_BYTES_MAX", 20_000)
    await log.create(Create("s", JSON))
    await log.append("s", json("1"))
    await log.append("s", json("[" + ",".join(["1234567"] * 1_000) + "]"))
    entry = await log.entry("s")
    reader = MessageReader(log)
    for _ in range(5):
        found, _, _ = await reader.following(
            entry, entry.require_view(), MessageRef(0, 0, 0), 2_000, FETCH_BYTES_MAX
        )
        assert len(found) == 1_001


# ── Dead letters ─────────────────────────────────────────────────────────────────────────────

MORTAL = GroupConfig(max_deliveries=1, dead_letter="dead")


async def letters(log: Log) -> int:
    await log.writer.reply_after_all(None)
    return (await read_all(log, "dead")).count(b'"origin"')


async def reject_and_look(groups: Groups, engine: FaultyEngine, receipt: str) -> Gate:
    """Reject a message; whoever buries it stands at the gate and has not read it yet."""
    gate = engine.gate("read")
    gate.shut()
    await reject(groups, "s", "g", receipt)
    await gate.arrival()
    return gate


async def test_one_given_up_while_others_are_buried_is_buried_too(
    log: Log, groups: Groups, engine: FaultyEngine, clock: ManualClock
) -> None:
    await make(log, groups, "1", "2", config=MORTAL)
    (one, _), _two = await fetch(groups, "s", "g")
    burying = await reject_and_look(groups, engine, one)
    engine.commit_gate.shut()
    burying.open()
    await engine.commit_gate.arrival()
    clock.now_ms += LEASE_MS
    engine.commit_gate.open()
    await until(lambda: not stored(engine).outstanding)
    assert await letters(log) == 2


async def test_groups_that_are_made_together_share_a_new_dead_letter_stream(
    log: Log, groups: Groups
) -> None:
    await log.create(Create("s", JSON))
    making = [begin(groups.put("s", name, MORTAL)) for name in ("one", "two", "two")]
    results = await asyncio.gather(*making)
    assert sorted(new for _, new in results) == [False, True, True]


@pytest.mark.parametrize("fault", Fault)
async def test_a_burial_that_failed_is_made_good_although_nobody_asks(
    log: Log, groups: Groups, engine: FaultyEngine, clock: ManualClock, fault: Fault
) -> None:
    await make(log, groups, "1", "2", config=MORTAL)
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    burying = await reject_and_look(groups, engine, receipt)
    engine.fail_next(fault)
    burying.open()
    await until(lambda: log.writer.failures == 1)
    clock.now_ms += 1_000
    await until(lambda: not stored(engine).outstanding)
    assert await letters(log) == 1


@pytest.mark.parametrize("obstacle", ["closed", "text", "unique"])
async def test_the_dead_wait_until_their_stream_takes_them(
    log: Log, groups: Groups, engine: FaultyEngine, clock: ManualClock, obstacle: str
) -> None:
    await make(log, groups, "1", config=MORTAL)
    if obstacle == "closed":
        await log.append("dead", Append(close=True))
    else:
        await log.delete("dead")
    if obstacle == "text":
        await log.create(Create("dead", "text/plain"))
    elif obstacle == "unique":
        await log.create(Create("dead", JSON, unique_ids=UniqueIds("fail")))
    ((receipt, _),) = await fetch(groups, "s", "g")
    await reject(groups, "s", "g", receipt)
    await turns(200)
    assert len(stored(engine).given_up) == 1
    await log.delete("dead")
    await log.create(Create("dead", JSON))
    clock.now_ms += 1_000
    await until(lambda: not stored(engine).outstanding)
    assert await letters(log) == 1


async def test_a_dead_letter_stream_that_was_deleted_is_created_again(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups, "1", config=MORTAL)
    await log.delete("dead")
    ((receipt, _),) = await fetch(groups, "s", "g")
    await reject(groups, "s", "g", receipt)
    await until(lambda: not stored(engine).outstanding)
    assert await letters(log) == 1


async def test_what_is_known_of_an_append_is_looked_up_once_for_all_its_messages(
    log: Log, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [f'"{number:06}"' for number in range(1_000)]
    await log.create(Create("s", JSON))
    await log.append("s", json(f"[{','.join(messages)}]"))
    await log.append("s", json('"the last one is known anyway"'))
    await groups.put("s", "g", GroupConfig())
    appends = log.engine.appends
    looked_up: list[int] = []
    look_up = appends.append_at

    def counted(run: int, start: int) -> Appended | None:
        looked_up.append(start)
        return look_up(run, start)

    monkeypatch.setattr(appends, "append_at", counted)
    found = [text for _ in range(5) for _, text in await fetch(groups, "s", "g")]
    assert len(found) > 5
    assert found == messages[: len(found)]
    assert len(looked_up) == 1


# ── Deliveries that wait before they are stored ──────────────────────────────────────────────


async def pass_time(clock: ManualClock, steps: int) -> None:
    """Let timers ring, and let the writer commit what they hand over."""
    for _ in range(steps):
        clock.now_ms += 10
        await asyncio.sleep(0.012)


async def test_deliveries_that_stay_open_are_stored_after_a_while(
    log: Log, groups: Groups, engine: FaultyEngine, clock: ManualClock
) -> None:
    await make(log, groups, "1", "2", "3")
    await fetch(groups, "s", "g", 2)
    assert not stored(engine).outstanding
    await pass_time(clock, 4)
    await log.writer.reply_after_all(None)
    assert sorted(stored(engine).outstanding) == [0, 1]
    assert stored(engine).cursor.number == 2


async def test_deliveries_are_stored_before_anybody_is_told_of_them(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups, "1", "2")
    await fetch(groups, "s", "g", 1)
    (info,) = await groups.infos("s")
    assert info.in_flight == 1
    assert sorted(stored(engine).outstanding) == [0]
    await fetch(groups, "s", "g", 1)
    info = await groups.info(await groups.get("s", "g"))
    assert info.in_flight == 2
    assert sorted(stored(engine).outstanding) == [0, 1]


async def test_deliveries_are_stored_when_the_server_stops(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups, "1", "2")
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    groups.stop()
    await log.writer.reply_after_all(None)
    later = await Groups.start(log)
    assert len((await ack(later, "s", "g", receipt)).done) == 1
    later.stop()


async def test_a_group_that_is_loaded_while_the_server_stops_delivers_nothing(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups, "1")
    groups.stop()
    later = await Groups.start(log)
    gate = engine.gate("groups")
    gate.shut()
    fetching = begin(outcome(fetch(later, "s", "g")))
    await gate.arrival()
    later.stop()
    gate.open()
    assert await fetching is StorageUnavailable


async def test_a_copy_continues_only_the_group_that_it_replaces(
    log: Log, groups: Groups, engine: FaultyEngine, clock: ManualClock
) -> None:
    await make(log, groups, "1", "2")
    before = (await groups.get("s", "g")).state.record
    await hold_a_commit(log, engine)
    deleting = begin(outcome(groups.delete("s", "g")))
    await turns()
    making = begin(outcome(groups.put("s", "g", GroupConfig(ack_timeout_ms=600_000))))
    await turns(50)
    assert len(await fetch(groups, "s", "g", 2)) == 2
    engine.fail_next(Fault.BEFORE)
    engine.commit_gate.open()
    assert [await deleting, await making] == [StorageUnavailable, StorageUnavailable]
    assert (await groups.get("s", "g")).state.record == before
    assert [text for _, text in await fetch(groups, "s", "g", 2)] == ["1", "2"]


async def test_a_failed_commit_of_deliveries_is_not_repeated_over_and_over(
    log: Log, groups: Groups, engine: FaultyEngine, clock: ManualClock
) -> None:
    await make(log, groups, "1", "2")
    await log.writer.reply_after_all(None)
    engine.plan = lambda _: Fault.BEFORE
    before = engine.attempts
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    await pass_time(clock, 30)
    assert engine.attempts == before + 1
    engine.plan = lambda _: None
    assert len((await ack(groups, "s", "g", receipt)).done) == 1


async def test_after_a_seek_that_was_stored_although_it_failed_earlier_receipts_are_stale(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups, "1", "2")
    receipts = [receipt for receipt, _ in await fetch(groups, "s", "g")]
    engine.fail_next(Fault.AFTER)
    assert await outcome(groups.seek("s", "g", "first")) is StorageUnavailable
    assert (await ack(groups, "s", "g", *receipts)).stale == receipts
    assert [text for _, text in await fetch(groups, "s", "g")] == ["1", "2"]


async def test_no_delivery_is_stored_after_its_stream_is_deleted(
    log: Log, groups: Groups, engine: FaultyEngine, clock: ManualClock
) -> None:
    """Nothing would ever remove it."""
    await make(log, groups, "1", "2", "3")
    receipts = [receipt for receipt, _ in await fetch(groups, "s", "g", 2)]
    await log.writer.reply_after_all(None)
    commits = len(engine.commits)
    engine.commit_gate.shut()
    deleting = begin(log.delete("s", purge=True))
    await engine.commit_gate.arrival()
    acking = begin(outcome(ack(groups, "s", "g", receipts[1])))
    await pass_time(clock, 4)
    engine.commit_gate.open()
    await deleting
    await acking
    await log.writer.reply_after_all(None)
    after = [mutation for commit in engine.commits[commits:] for mutation in commit]
    assert not any(isinstance(mutation, MessagesLeased) for mutation in after)


# ── Deliveries that wait, and commits that fail ──────────────────────────────────────────────


async def begin_deletion_that_fails(log: Log, engine: FaultyEngine) -> asyncio.Future[object]:
    """Until the gate is opened, it is on its way."""
    engine.commit_gate.shut()
    engine.fail_next(Fault.BEFORE)
    deleting: asyncio.Future[object] = begin(outcome(log.delete("s", purge=True)))
    await engine.commit_gate.arrival()
    return deleting


async def test_a_deletion_that_failed_skips_nothing(
    log: Log, groups: Groups, engine: FaultyEngine, clock: ManualClock
) -> None:
    await make(log, groups, "0", "1", "2", "3", "4")
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    await nack(groups, "s", "g", receipt, delay_ms=5)
    assert [text for _, text in await fetch(groups, "s", "g", 1)] == ["1"]
    deleting = await begin_deletion_that_fails(log, engine)
    clock.now_ms += 5
    assert [text for _, text in await fetch(groups, "s", "g", 2)] == ["0", "2"]
    assert [text for _, text in await fetch(groups, "s", "g", 1)] == ["3"]
    engine.commit_gate.open()
    assert await deleting is StorageUnavailable
    await groups.get("s", "g")
    clock.now_ms += LEASE_MS
    assert sorted([text for _, text in await fetch(groups, "s", "g")]) == ["0", "1", "2", "3", "4"]


async def test_a_seek_and_a_deletion_that_failed_skip_nothing(
    log: Log, groups: Groups, engine: FaultyEngine, clock: ManualClock
) -> None:
    await make(log, groups, "0", "1", "2")
    offset = (await log.append("s", json("3"))).next_offset
    await log.append("s", json("4"))
    await fetch(groups, "s", "g", 1)
    deleting = await begin_deletion_that_fails(log, engine)
    seeking = begin(outcome(groups.seek("s", "g", offset)))
    await turns(50)
    got = begin(outcome(fetch(groups, "s", "g", 1)))
    await until(lambda: got.done())
    engine.commit_gate.open()
    assert [await deleting, await seeking] == [StorageUnavailable] * 2
    await groups.get("s", "g")
    clock.now_ms += LEASE_MS
    assert sorted([text for _, text in await fetch(groups, "s", "g")]) == ["0", "1", "2", "3", "4"]


async def test_acked_stays_acked_after_seek_back_and_failed_deletion(
    log: Log, groups: Groups, engine: FaultyEngine, clock: ManualClock
) -> None:
    await make(log, groups, "0", "1", "2", "3", "4")
    receipts = [receipt for receipt, _ in await fetch(groups, "s", "g", 3)]
    await ack(groups, "s", "g", *receipts)
    await fetch(groups, "s", "g", 1)
    deleting = await begin_deletion_that_fails(log, engine)
    seeking = begin(outcome(groups.seek("s", "g", "first")))
    await turns(50)
    got = begin(outcome(fetch(groups, "s", "g", 1)))
    await until(lambda: got.done())
    engine.commit_gate.open()
    assert [await deleting, await seeking] == [StorageUnavailable] * 2
    await groups.get("s", "g")
    clock.now_ms += LEASE_MS
    assert sorted([text for _, text in await fetch(groups, "s", "g")]) == ["3", "4"]


async def test_after_a_seek_that_was_stored_although_it_failed(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    """Nothing waits any more: the deliveries are being stored with the seek."""
    await make(log, groups, "1", "2")
    receipts = [receipt for receipt, _ in await fetch(groups, "s", "g")]
    group = await groups.get("s", "g")
    group.store_deliveries()
    engine.fail_next(Fault.AFTER)
    seeking = group.submit(decide_seek(group.state, MessageRef(0, 0, 0)), None)
    assert await outcome(seeking) is StorageUnavailable
    assert (await ack(groups, "s", "g", *receipts)).stale == receipts
    assert [text for _, text in await fetch(groups, "s", "g")] == ["1", "2"]


async def test_what_reached_nobody_comes_back_at_once_after_a_failed_commit(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups, "1", "2", config=MORTAL)
    group = await groups.get("s", "g")
    await fetch(groups, "s", "g", 1)
    group.take_back([*group.state.outstanding.values()])
    engine.fail_next(Fault.BEFORE)
    assert await outcome(groups.pause("s", "g", paused=False)) is StorageUnavailable
    assert [text for _, text in await fetch(groups, "s", "g", 1)] == ["1"]


async def test_after_a_seek_whose_next_commit_failed_receipts_are_valid(
    log: Log, groups: Groups, engine: FaultyEngine
) -> None:
    await make(log, groups, "1", "2", "3", "4")
    await fetch(groups, "s", "g", 4)
    engine.commit_gate.shut()
    seeking = begin(groups.seek("s", "g", "first"))
    await engine.commit_gate.arrival()
    (one, _), (two, _) = await fetch(groups, "s", "g", 2)
    failing = begin(outcome(ack(groups, "s", "g", two)))
    await turns(50)
    failed = engine.attempts + 2
    engine.plan = lambda number: Fault.BEFORE if number == failed else None
    engine.commit_gate.open()
    await seeking
    assert await failing is StorageUnavailable
    assert len((await ack(groups, "s", "g", one, two)).done) == 2


async def test_what_reached_nobody_comes_back_although_the_writer_was_busy(
    start_log: StartLog, engine: FaultyEngine, clock: ManualClock
) -> None:
    log = await start_log(Limits(body_bytes_max=4_000, queue_bytes_max=4_000))
    groups = await Groups.start(log)
    await make(log, groups, "1", "2", config=MORTAL)
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    engine.commit_gate.shut()
    held = begin(log.append("s", json("3")))
    await engine.commit_gate.arrival()
    filling = begin(log.append("s", json('"' + "x" * 2_600 + '"')))
    await turns(20)
    group = await groups.get("s", "g")
    answer: Reply[bytes] = Reply()
    Fetch(group, "ann", 1, 0, group.settle(Ack([receipt])), answer).start()
    assert await outcome(answer) is TooBusy
    engine.commit_gate.open()
    await asyncio.gather(held, filling)
    await pass_time(clock, 10)
    assert [text for _, text in await fetch(groups, "s", "g", 1)] == ["2"]
    groups.stop()
