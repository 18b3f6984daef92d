"""A node that ends hands over what it has, if there is anybody to have it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from headwater.cluster.node import Node
from headwater.core.cluster import ClusterSeen, NodeSeen, ShardSeen
from headwater.core.limits import Limits
from headwater.service.log import Log
from headwater.store.memory.engine import MemoryEngine

PATIENCE_S = 60


def node(number: int, *, draining: bool = False) -> NodeSeen:
    return NodeSeen(number, f"node {number}", f"http://{number}", 1, 1, 3_000, draining)


class Alone:
    """This node has everything, and finds out that the other one has left when it wants to."""

    node_id = 1
    lease_s = 3.0
    shards = frozenset({0})
    taken_over = 0

    def __init__(self, after: tuple[NodeSeen, ...]) -> None:
        self._after = after
        self.on_look = lambda: None
        self.seen = ClusterSeen((node(1), node(2)), (ShardSeen(0, 1, 1),))
        self.drained = 0

    def drain(self, node_id: int, *, draining: bool = True) -> bool:
        self.drained += 1
        self.seen = self.seen._replace(nodes=self._after)
        return True

    def excess(self) -> dict[int, int]:
        return {}


async def test_nobody_waits_for_heirs_that_are_gone_or_leave_too() -> None:
    for after in ((node(1),), (node(1, draining=True), node(2, draining=True))):
        log = await Log.start(MemoryEngine(), Limits())
        membership = Alone(after)
        leaving = Node(log, cast(Any, membership))
        # Without an end, if it waits for them.
        await asyncio.wait_for(leaving.empty(3_600), PATIENCE_S)
        assert membership.drained == 1
        await leaving.stop()
        await log.stop()
