"""Groups that change while something about them is being looked up."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import GroupNotFound
from headwater.core.groups.config import GroupConfig
from headwater.core.unique_ids import UniqueIds
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.service.transactions import Acknowledge, Publish, Transactions
from tests.support.faulty_engine import FaultyEngine
from tests.support.logs import begin

JSON = "application/json"


@pytest.fixture
async def groups(log: Log) -> AsyncIterator[Groups]:
    groups = await Groups.start(log)
    yield groups
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
