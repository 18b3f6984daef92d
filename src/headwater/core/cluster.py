"""Nodes that share a database: which shard a path lives in, who is gone, who should have what.

- The database has a fixed number of shards. A stream lives in one of them all its life: in that of
  its path's hash, or, if it was made for another stream (a fork, a dead-letter stream), in that of
  the other one, so that whatever changes together has one owner. Subscriptions, which follow any
  streams, live in one shard all together.
- A node shows that it lives by raising a counter, three times per lease. Another node may only take
  it for gone if it has itself seen the counter stand still for the whole lease, by its own clock:
  from after the answer that first showed it to before the question that last did. The node's own
  lease counts from before it asked for the counter to be raised. So it is over by then, and clocks
  of two machines are never compared.
- Shards are spread evenly over the nodes that want some, and as few as possible change hands: each
  node has the number that is its due, or one more. Everybody comes to the same plan by itself. A
  node takes what is free and due to it, and gives away what it has beyond its due.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

SHARDS_DEFAULT: Final = 32
SHARDS_MAX: Final = 1024
SUBSCRIPTIONS: Final = 0
"""The shard of all subscriptions."""


def shard_of(name: str, shards: int) -> int:
    """The shard of a path that has no other reason to be anywhere. The database knows the same
    rule (`home` in `headwater.store.postgresql.schema`)."""
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big") % shards


class NodeSeen(NamedTuple):
    """A node as the database shows it."""

    id: int
    name: str
    address: str | None
    """Where other nodes reach it; None if it wants the database for itself."""
    epoch: int
    counter: int
    lease_ms: int
    draining: bool


class ShardSeen(NamedTuple):
    id: int
    epoch: int
    """Raised whenever it changes hands."""
    node_id: int | None


class ClusterSeen(NamedTuple):
    """The cluster at one moment."""

    nodes: tuple[NodeSeen, ...] = ()
    shards: tuple[ShardSeen, ...] = ()

    def node(self, node_id: int | None) -> NodeSeen | None:
        return next((node for node in self.nodes if node.id == node_id), None)

    def owner(self, shard: int) -> NodeSeen | None:
        return self.node(self.shards[shard].node_id) if shard < len(self.shards) else None


class Sightings:
    """What one node has seen of the others, and since when nothing has moved."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._since: dict[int, tuple[tuple[int, int], float]] = {}

    def note(
        self, nodes: Iterable[NodeSeen], asked_s: float, answered_s: float
    ) -> tuple[NodeSeen, ...]:
        """Those that are gone, by what was asked and answered at these moments."""
        known, self._since = self._since, {}
        gone: list[NodeSeen] = []
        for node in nodes:
            sign = (node.epoch, node.counter)
            before = known.get(node.id)
            if before is None or before[0] != sign:
                self._since[node.id] = (sign, answered_s)
                continue
            self._since[node.id] = before
            if asked_s - before[1] >= max(self._lease_ms, node.lease_ms) / 1000:
                gone.append(node)
        return tuple(gone)


def plan(owners: Mapping[int, int | None], nodes: Iterable[int]) -> dict[int, int]:
    """Who should own each shard; nothing if there is nobody who wants any."""
    wanting = sorted(set(nodes))
    if not wanting:
        return {}
    held: dict[int, list[int]] = {node: [] for node in wanting}
    for shard, owner in sorted(owners.items()):
        if owner in held:
            held[owner].append(shard)
    least, extra = divmod(len(owners), len(wanting))
    # Those that have the most keep one more than the others; so fewer change hands.
    order = sorted(wanting, key=lambda node: (-len(held[node]), node))
    due = {node: least + (rank < extra) for rank, node in enumerate(order)}
    planned = {shard: node for node in wanting for shard in held[node][: due[node]]}
    free = [shard for shard in sorted(owners) if shard not in planned]
    for node in order:
        missing = due[node] - min(due[node], len(held[node]))
        planned |= dict.fromkeys(free[:missing], node)
        free = free[missing:]
    return planned
