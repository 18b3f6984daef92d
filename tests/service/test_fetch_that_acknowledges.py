"""A fetch that acknowledges: its answer tells of both, so it waits for the commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from headwater.core.content_types import JSON
from headwater.core.decisions import Create
from headwater.core.errors import StorageUnavailable
from headwater.core.groups.commands import Ack
from headwater.core.groups.config import GroupConfig
from headwater.core.groups.mutations import MessagesLeased
from headwater.http.resources.group_members import Fetch
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.service.replies import Reply
from tests.support.engines import running
from tests.support.faulty_engine import Fault, FaultyEngine
from tests.support.logs import turns
from tests.support.members import ack, fetch, json
from tests.support.recounts import check_groups


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FaultyEngine]:
    with running(request.param, tmp_path) as engine:
        yield FaultyEngine(engine)


@pytest.fixture
async def groups(log: Log) -> AsyncIterator[Groups]:
    """A group `g` on a stream with two messages."""
    groups = await Groups.start(log)
    await log.create(Create("s", JSON))
    await log.append("s", json("[1,2]"))
    await groups.put("s", "g", GroupConfig())
    yield groups
    check_groups(groups)
    groups.stop()


async def fetch_while_committing(
    groups: Groups, engine: FaultyEngine, receipt: str, fault: Fault | None = None
) -> tuple[Fetch, Reply[bytes]]:
    """Acknowledge a message and ask for the next one; the commit is held up at the gate."""
    group = await groups.get("s", "g")
    await group.settle(Ack([]))
    engine.commit_gate.shut()
    if fault is not None:
        engine.fail_next(fault)
    acked = group.settle(Ack([receipt]))
    answer: Reply[bytes] = Reply()
    fetching = Fetch(group, "ann", 1, 0, acked, answer)
    fetching.start()
    await engine.commit_gate.arrival()
    await turns(20)
    assert group.state.in_flight == 1, "the next message is handed out"
    assert not answer.done(), "and the answer waits for the commit"
    return fetching, answer


async def test_the_answer_comes_when_the_acknowledgement_is_committed(
    groups: Groups, engine: FaultyEngine
) -> None:
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    _, answer = await fetch_while_committing(groups, engine, receipt)
    engine.commit_gate.open()
    body = msgspec.json.decode(await answer)
    assert [message["value"] for message in body["messages"]] == [2]
    assert (body["acked"], body["stale"]) == (1, [])


async def test_when_the_commit_fails_so_does_the_fetch(
    groups: Groups, engine: FaultyEngine
) -> None:
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    _, answer = await fetch_while_committing(groups, engine, receipt, Fault.BEFORE)
    engine.commit_gate.open()
    with pytest.raises(StorageUnavailable):
        await answer
    # Neither of the two has happened.
    assert len((await ack(groups, "s", "g", receipt)).done) == 1
    assert [value for _, value in await fetch(groups, "s", "g")] == ["2"]


async def test_when_the_member_hangs_up_the_acknowledgement_holds(
    groups: Groups, engine: FaultyEngine
) -> None:
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    fetching, _ = await fetch_while_committing(groups, engine, receipt)
    fetching.hang_up()
    engine.commit_gate.open()
    ((_, value),) = await asyncio.wait_for(fetch(groups, "s", "g"), 60)
    assert value == "2"
    assert (await ack(groups, "s", "g", receipt)).stale == [receipt]
    group = await groups.get("s", "g")
    assert group.lag == 1


async def test_acknowledgements_that_come_together_are_stored_together(
    groups: Groups, engine: FaultyEngine
) -> None:
    """Each has its own answer; a receipt that comes twice counts once."""
    (one, _), (two, _) = await fetch(groups, "s", "g", 2)
    group = await groups.get("s", "g")
    replies = [group.settle(Ack(receipts)) for receipts in ([one], [two, one], ["1.2.3"])]
    outcomes = [await reply for reply in replies]
    assert [len(outcome.done) for outcome in outcomes] == [1, 1, 0]
    assert [outcome.stale for outcome in outcomes] == [[], [one], ["1.2.3"]]
    # Their deliveries were not stored yet, so all that remains of them is a cursor.
    (stored,) = [m for commit in engine.commits for m in commit if isinstance(m, MessagesLeased)]
    assert stored.messages == []
    assert stored.cursor == group.state.cursor


async def test_acknowledgements_that_come_together_fail_together(
    groups: Groups, engine: FaultyEngine
) -> None:
    (one, _), (two, _) = await fetch(groups, "s", "g", 2)
    group = await groups.get("s", "g")
    engine.fail_next(Fault.BEFORE)
    replies = [group.settle(Ack([receipt])) for receipt in (one, two)]
    for reply in replies:
        with pytest.raises(StorageUnavailable):
            await reply


async def test_an_acknowledgement_of_a_copy_that_just_became_void_is_refused(
    groups: Groups,
) -> None:
    ((receipt, _),) = await fetch(groups, "s", "g", 1)
    group = await groups.get("s", "g")
    acked = group.settle(Ack([receipt]))
    group.forget_state()
    with pytest.raises(StorageUnavailable):
        await acked
    assert (await ack(groups, "s", "g", receipt)).stale == [], "it can be repeated"
