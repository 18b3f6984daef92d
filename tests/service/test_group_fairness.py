"""Who gets how much: members share evenly, and a slow one starves nobody."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.content_types import JSON
from headwater.core.decisions import Create
from headwater.core.groups.config import GroupConfig
from headwater.service.groups.members import Delivery
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.store.memory.engine import MemoryEngine
from tests.support.logs import ManualClock, turns
from tests.support.members import Member, json


class Steady(Member):
    """Stays for more, as long as it has not got all it can hold."""

    def __init__(self, consumer: str, most: int) -> None:
        super().__init__(consumer, most)
        self.got = 0

    @property
    def demand(self) -> int:
        return self.most - self.got

    def give(self, deliveries: list[Delivery], lag: int) -> None:
        self.got += len(deliveries)


async def _hand_out(demands: list[int], batches: list[int], max_in_flight: int) -> list[int]:
    """What each member gets of some batches of messages that come one after the other."""
    log = await Log.start(MemoryEngine(), clock=ManualClock())
    groups = await Groups.start(log)
    await log.create(Create("s", JSON))
    await groups.put("s", "g", GroupConfig(max_in_flight=max_in_flight))
    members = [Steady(f"m{number}", demand) for number, demand in enumerate(demands)]
    for member in members:
        await member.join(groups, "s", "g")
    await turns()
    for size in batches:
        await log.append("s", json("[" + ",".join(["1"] * size) + "]"))
        await turns(30)
    groups.stop()
    await log.stop()
    return [member.got for member in members]


@settings(max_examples=60, deadline=None)
@given(
    demands=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    messages=st.integers(1, 60),
    max_in_flight=st.sampled_from([5, 1000]),
)
def test_one_batch_is_shared_evenly(demands: list[int], messages: int, max_in_flight: int) -> None:
    got = asyncio.run(_hand_out(demands, [messages], max_in_flight))
    assert sum(got) == min(messages, sum(demands), max_in_flight), "nothing is kept back"
    for mine, demand in zip(got, demands, strict=True):
        if mine < demand:
            assert max(got) <= mine + 1, f"{got} of {demands}"


@settings(max_examples=30, deadline=None)
@given(batches=st.lists(st.integers(1, 5), min_size=1, max_size=12), others=st.integers(1, 4))
def test_one_that_takes_no_more_starves_nobody(batches: list[int], others: int) -> None:
    """It holds its one message and does not come back; everyone else is served all the same."""
    got = asyncio.run(_hand_out([1] + [1000] * others, batches, 10_000))
    assert sum(got) == sum(batches)
    assert max(got[1:]) - min(got[1:]) <= len(batches), "each in turn"


async def test_with_plenty_for_all_each_gets_its_whole_share() -> None:
    """More is wanted than is read at once. Parts would only mean more requests."""
    log = await Log.start(MemoryEngine(), clock=ManualClock())
    groups = await Groups.start(log)
    await log.create(Create("s", JSON))
    await log.append("s", json("[" + ",".join(["1"] * 1_500) + "]"))
    await groups.put("s", "g", GroupConfig(max_in_flight=10_000))
    members = [Member(f"m{number}", 300) for number in range(5)]
    for member in members:
        await member.join(groups, "s", "g")
    given = await asyncio.gather(*[member.future for member in members])
    assert list(map(len, given)) == [300] * 5
    groups.stop()
    await log.stop()


@pytest.mark.parametrize("messages, max_in_flight", [(1_100, 10_000), (5_000, 1_100)])
async def test_without_plenty_everyone_gets_a_part(messages: int, max_in_flight: int) -> None:
    """Too few messages, or too little room, for what all of them want."""
    got = await _hand_out([900, 900, 900], [messages], max_in_flight)
    assert sum(got) == 1_100
    assert max(got) - min(got) <= 1
