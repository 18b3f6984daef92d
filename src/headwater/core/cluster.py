"""Nodes that share a database: the shard of a path, which nodes are gone, who should own what.

- The database has a fixed number of shards. A stream never changes its shard: it is that of its
  path's hash, or, if the stream was made for another (a fork, a dead-letter stream), that of the
  other stream, so that streams that change together have one owner. A subscription is in the shard
  of its name's hash, whatever streams it follows, so the nodes share them evenly. The owner of one
  fixed shard keeps pipeline reports, in memory.
- A node shows that it is alive by raising a counter, three times per lease. Another node may
  consider it gone only after seeing the counter stand still for a whole lease, by its own clock:
  from after the answer that first showed the value to before the query that last did. The node's
  own lease counts from before it sent the request to raise the counter. So that lease has ended by
  then, and clocks of two machines are never compared.
- Shards are spread evenly over the nodes that want some, and as few as possible change hands: each
  node gets its share, or one more. Every node computes the same plan on its own. A node takes free
  shards up to its share, and gives away what exceeds it.
- Nodes carry labels, and a path prefix can be bound to one. Some shards then have that label: new
  streams below the prefix go into those, all others into shards without a label. Shards with a
  label are for the nodes that carry it, and for all nodes while there is no such node. The longest
  prefix wins. An existing stream stays where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from hashlib import sha256
from heapq import heapify, heapreplace
from typing import Final, NamedTuple

SHARDS_DEFAULT: Final = 32
SHARDS_MAX: Final = 1024
UNLABELLED: Final = 0
"""The shard that never gets a label, so that there is always one for unbound paths."""
LABELS_MAX: Final = 16
_LABEL: Final = re.compile(r"[A-Za-z0-9._-]{1,64}=[A-Za-z0-9._-]{1,64}")


def parse_labels(text: str) -> frozenset[str]:
    """Comma-separated labels, each `name=value`."""
    labels = frozenset(one.strip() for one in text.split(",") if one.strip())
    for label in labels:
        if _LABEL.fullmatch(label) is None:
            raise ValueError(f"{label!r} is not a label; write one as region=eu")
    if len(labels) > LABELS_MAX:
        raise ValueError(f"there may be {LABELS_MAX} labels")
    return labels


def shard_of(name: str, shards: int) -> int:
    """The shard of a subscription, and of a path that nothing else places. The database has the
    same rule (`home` in `headwater.store.postgresql.schema`).
    """
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big") % shards


class NodeSeen(NamedTuple):
    """A node as the database shows it."""

    id: int
    name: str
    address: str | None
    """Where other nodes reach it; None if it wants the database to itself."""
    epoch: int
    counter: int
    lease_ms: int
    draining: bool
    labels: frozenset[str] = frozenset()


class ShardSeen(NamedTuple):
    id: int
    epoch: int
    """Raised whenever the shard changes hands."""
    node_id: int | None
    label: str | None = None


class Binding(NamedTuple):
    """New streams below a prefix go to nodes with a label."""

    prefix: str
    label: str

    def covers(self, path: str) -> bool:
        return path == self.prefix or path.startswith(f"{self.prefix}/")


class ClusterSeen(NamedTuple):
    """The cluster at one moment."""

    nodes: tuple[NodeSeen, ...] = ()
    shards: tuple[ShardSeen, ...] = ()
    bindings: tuple[Binding, ...] = ()

    def home(self, path: str) -> int:
        """The shard for a new stream that nothing else places."""
        if not self.bindings:
            return shard_of(path, len(self.shards))
        covering = [binding for binding in self.bindings if binding.covers(path)]
        label = max(covering, key=lambda one: len(one.prefix)).label if covering else None
        among = [shard.id for shard in self.shards if shard.label == label]
        among = among or [shard.id for shard in self.shards]
        return among[shard_of(path, len(among))]

    def of_subscription(self, name: str) -> int:
        """The shard of a subscription."""
        return shard_of(name, len(self.shards))

    def of_pipelines(self) -> int:
        """The shard whose owner keeps pipeline reports."""
        return shard_of("pipelines", len(self.shards))

    def node(self, node_id: int | None) -> NodeSeen | None:
        return next((node for node in self.nodes if node.id == node_id), None)

    def owner(self, shard: int) -> NodeSeen | None:
        return self.node(self.shards[shard].node_id) if shard < len(self.shards) else None


class Sightings:
    """What one node has seen of the others, and since when each counter has not moved."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._since: dict[int, tuple[tuple[int, int], float]] = {}

    def note(
        self, nodes: Iterable[NodeSeen], asked_s: float, answered_s: float
    ) -> tuple[NodeSeen, ...]:
        """The nodes that are gone, given when the query was sent and when it was answered."""
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


def plan(
    owners: Mapping[int, int | None],
    nodes: Iterable[int],
    labels: Mapping[int, str | None] | None = None,
    carried: Mapping[int, Set[str]] | None = None,
) -> dict[int, int]:
    """Who should own each shard; empty if no node wants any. `labels` are those of shards,
    `carried` those of nodes.
    """
    wanting = sorted(set(nodes))
    planned: dict[int, int] = {}
    if not wanting:
        return planned
    groups: dict[str | None, dict[int, int | None]] = {}
    for shard, owner in sorted(owners.items()):
        groups.setdefault((labels or {}).get(shard), {})[shard] = owner
    # Shards without a label last: they even out what the others leave uneven.
    for label in sorted(groups, key=lambda one: (one is None, one or "")):
        fitting = [node for node in wanting if label in (carried or {}).get(node, ())]
        load = dict.fromkeys(wanting, 0)
        for node in planned.values():
            load[node] += 1
        among = fitting or wanting
        planned |= _spread(groups[label], {node: load[node] for node in among})
    return planned


def _spread(owners: Mapping[int, int | None], load: Mapping[int, int]) -> dict[int, int]:
    """Distribute shards among nodes that may own some already."""
    held: dict[int, list[int]] = {node: [] for node in load}
    for shard, owner in owners.items():
        if owner in held:
            held[owner].append(shard)
    # One at a time to the node with the fewest; those that own the most get the odd one, so that
    # fewer change hands.
    due = dict.fromkeys(load, 0)
    least = [(count, -count - len(held[node]), node) for node, count in load.items()]
    heapify(least)
    for _ in owners:
        count, rank, node = least[0]
        due[node] += 1
        heapreplace(least, (count + 1, rank, node))
    planned = {shard: node for node in load for shard in held[node][: due[node]]}
    free = [shard for shard in sorted(owners) if shard not in planned]
    for node in sorted(load, key=lambda one: (-len(held[one]), one)):
        missing = due[node] - min(due[node], len(held[node]))
        planned |= dict.fromkeys(free[:missing], node)
        free = free[missing:]
    return planned
