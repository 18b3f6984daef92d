"""Groups that change while something about them is being looked up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import GroupNotFound, StreamError
from headwater.core.groups.config import GroupConfig
from headwater.core.unique_ids import UniqueIds
from headwater.service.groups.group import Group
from headwater.service.groups.members import Delivery
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.service.transactions import Acknowledge, Publish, Transactions
from tests.support.faulty_engine import FaultyEngine
from tests.support.logs import begin
from tests.support.recounts import check_groups

JSON = "application/json"


@pytest.fixture
async def groups(log: Log) -> AsyncIterator[Groups]:
    groups = await Groups.start(log)
    yield groups
    check_groups(groups)
    groups.stop()


async def test_a_group_that_is_deleted_during_a_seek(
    log: Log, engine: FaultyEngine, groups: Groups
) -> None:
    await log.create(Create("s", JSON))
    first = await log.append("s", Append(b"[1]", JSON))
    await log.append("s", Append(b"[2]", JSON))
    await groups.put("s", "g", GroupConfig())
    gate = engine.gate("append_at")
    gate.shut()
    seeking = begin(groups.seek("s", "g", first.next_offset))
    await gate.arrival()
    await groups.delete("s", "g")
    gate.open()
    with pytest.raises(GroupNotFound):
        await seeking


async def test_a_group_that_is_deleted_during_a_transaction(
    log: Log, engine: FaultyEngine, groups: Groups
) -> None:
    """Nothing is published for an acknowledgement that has nobody to go to."""
    await log.create(Create("s", JSON))
    await log.create(Create("ids", JSON, unique_ids=UniqueIds("fail", "/id")))
    await groups.put("s", "g", GroupConfig())
    gate = engine.gate("known_ids")
    gate.shut()
    publish = Publish("ids", Append(b'[{"id": 1}]', JSON), "fail")
    running = begin(Transactions(log, groups).run(Acknowledge("s", "g", ["1.1.1"]), [publish]))
    await gate.arrival()
    await groups.delete("s", "g")
    gate.open()
    with pytest.raises(GroupNotFound):
        await running
    assert (await log.entry("ids")).require_view().messages == 0


class Taker:
    """Takes one message after the other."""

    def __init__(self) -> None:
        self.consumer = "c"
        self.most_bytes = 1_000
        self.bodies: list[bytes] = []
        self.errors: list[StreamError] = []

    @property
    def demand(self) -> int:
        return 1

    def give(self, deliveries: list[Delivery], lag: int) -> None:
        self.bodies += [body for _, body in deliveries]

    def fail(self, error: StreamError) -> None:
        self.errors.append(error)


@pytest.mark.parametrize("config", [{}, {"order_by": "/k"}, {"max_deliveries": 1}])
async def test_a_group_that_is_created_while_its_stream_is_cleared(
    log: Log, groups: Groups, config: dict[str, Any]
) -> None:
    """It holds messages that are gone, and goes on with those that are not."""
    await log.create(Create("s", JSON))
    await log.append("s", Append(b'[{"k": 1}, {"k": 1}]', JSON))
    group, _ = await groups.put("s", "g", GroupConfig(start="first", **config))
    taker = Taker()
    group.enlist(taker)
    await settled(group)
    group.leave(taker)
    assert group.state.outstanding
    view = log.view(await log.entry("s"))
    # As `clear` does after it has moved the groups that it knew.
    end = view.tail
    await log.clear("s", view.config.id, end)
    # What was handed out comes back, to be handed out again or given up.
    group.take_back(list(group.state.outstanding.values()))
    await log.append("s", Append(b'[{"k": 2}]', JSON))
    taker.bodies.clear()
    group.enlist(taker)
    await settled(group)
    assert (taker.bodies, taker.errors) == ([b'{"k": 2}'], [])
    assert [message.ref.start for message in group.state.outstanding.values()] == [end]
    group.leave(taker)


async def settled(group: Group) -> None:
    """When it has done all that it can."""
    done = asyncio.Event()
    group.after_pump(done.set)
    await done.wait()
