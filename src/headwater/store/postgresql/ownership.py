"""Who may write: nodes, their leases and epochs, and the shards they own.

The rules are in `headwater.core.cluster`. This is how the database enforces them:

- A node has a row with its epoch and its counter. Every transaction that writes begins by checking
  the epoch it believes in (`fence`) and locks the row while it lasts. A node that considers another
  gone deletes its row. So that waits for the transaction in progress, and lets none of the former
  node begin after it; its shards are free from then on.
- A node that does not know how one of its commits ended raises its epoch, on a new connection:
  after that, the commit has happened or never will.
- Only the owner of a shard gives it away, when nothing in it is in flight any more, and to a named
  node. That is a transaction under the fence too: an owner that does not know how it ended raises
  its epoch, and checks who owns the shard, before using it again. A free shard goes to whoever
  takes it first.
- A node without an address wants the database to itself: it starts only if no other node is alive,
  and no other starts while it is.
- A node that stops cleanly removes its row, so nobody has to wait for it.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from headwater.core.cluster import Binding, ClusterSeen, NodeSeen, ShardSeen, Sightings, plan
from headwater.core.errors import OwnedElsewhere
from headwater.store.engine import CannotOpen
from headwater.store.postgresql.clock import NOW_MS, SharedClock
from headwater.store.postgresql.database import Connection, LostShard
from headwater.store.rows import Query

LEASE_MS: Final = 3_000
_LOOKS_PER_LEASE: Final = 20
_JOIN_LOCK: Final = 0x48574A4E  # "HWJN"

Clock = Callable[[], float]


class Ownership:
    """This node, and what it owns. All methods are thread-safe."""

    def __init__(
        self,
        lease_ms: int = LEASE_MS,
        address: str | None = None,
        labels: frozenset[str] = frozenset(),
        clock: Clock = time.monotonic,
    ) -> None:
        self._lease_ms = lease_ms
        self.address = address
        self.labels = labels
        self._clock = clock
        self._lock = threading.Lock()
        self._sightings = Sightings(lease_ms)
        self.name = f"{socket.gethostname()} (process {os.getpid()}, {secrets.token_hex(4)})"
        self.id = 0
        self.epoch = 0
        self.good_until = 0.0
        """Until when no other node can consider this one gone, by its own clock."""
        self.is_lost = False
        self.time_of_day = SharedClock()
        """PostgreSQL's, for stored times; node leases do not use it."""
        self.seen = ClusterSeen()
        """The cluster at this node's last look."""
        self.shards: frozenset[int] = frozenset()
        """The shards this node owns and uses: not those it is about to give away."""
        self._leaving: frozenset[int] = frozenset()

    @property
    def lease_s(self) -> float:
        return self._lease_ms / 1000

    @property
    def is_alone(self) -> bool:
        return self.address is None

    @property
    def is_good(self) -> bool:
        """Whether no other node can have taken over."""
        return self._clock() < self.good_until

    def demand(self, shard: int) -> None:
        if shard not in self.shards:
            raise OwnedElsewhere(shard)

    # ── Joining ──────────────────────────────────────────────────────────────────────────────

    def join(
        self, connection: Connection, sleep: Callable[[float], None] = time.sleep
    ) -> list[str]:
        """Join; returns the nodes that were outwaited. Raises CannotOpen if one is in the way."""
        outwaited: list[str] = []
        watched = Sightings(self._lease_ms)
        first = {node.id: node for node in _nodes(connection)}
        while True:
            asked = self._clock()
            nodes = [node for node in _nodes(connection) if self._is_in_the_way(node)]
            for node in nodes:
                if node.counter != first.setdefault(node.id, node).counter:
                    raise CannotOpen(self._in_the_way(node))
            for node in watched.note(nodes, asked, self._clock()):
                if self.take_over(connection, node):
                    outwaited.append(node.name)
            if not nodes and self._enter(connection):
                return outwaited
            if nodes:
                lease_ms = max(self._lease_ms, *(node.lease_ms for node in nodes))
                sleep(lease_ms / 1000 / _LOOKS_PER_LEASE)

    def _is_in_the_way(self, node: NodeSeen) -> bool:
        return self.is_alone or node.address is None or node.address == self.address

    def _in_the_way(self, node: NodeSeen) -> str:
        if self.is_alone:
            advice = "stop it, or let both advertise an address"
            return f"the database is in use by another node, {node.name}; {advice}"
        if node.address is None:
            advice = "it was started without --advertise and wants it for itself; stop it"
            return f"the database is in use by another node, {node.name}; {advice}"
        return f"another node, {node.name}, advertises {node.address} too; give each its own"

    def _enter(self, connection: Connection) -> bool:
        with self._lock, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_JOIN_LOCK,))
            if any(self._is_in_the_way(node) for node in _nodes(connection)):
                # Another node joined at the same time.
                return False
            asked = self._clock()
            found = connection.execute(
                "INSERT INTO nodes (name, address, lease_ms, labels) VALUES (%s, %s, %s, %s)"
                f" RETURNING id, {NOW_MS}",
                (self.name, self.address, self._lease_ms, ",".join(sorted(self.labels))),
            ).fetchall()
            self.id, now_ms = map(int, found[0])
            self.time_of_day.tell(now_ms, asked, self._clock())
            if self.is_alone:
                connection.execute("UPDATE shards SET node_id = %s, epoch = epoch + 1", (self.id,))
        self.epoch, self.good_until = 1, asked + self.lease_s
        self.look(connection)
        return True

    # ── Keeping ──────────────────────────────────────────────────────────────────────────────

    def renew(self, connection: Connection) -> None:
        """Show that this node is alive. Raises LostShard if it was considered gone."""
        asked = self._clock()
        # Not by epoch: this node may be raising its own epoch right now.
        renewed = connection.execute(
            f"UPDATE nodes SET counter = counter + 1 WHERE id = %s RETURNING {NOW_MS}", (self.id,)
        ).fetchall()
        if not renewed:
            self.is_lost = True
            raise LostShard
        self.time_of_day.tell(int(renewed[0][0]), asked, self._clock())
        self.good_until = max(self.good_until, asked + self.lease_s)

    def raise_epoch(self, connection: Connection) -> None:
        """Prevent anything this node began before from still being committed."""
        with self._lock:
            asked = self._clock()
            with connection.transaction():
                held = "SELECT epoch FROM nodes WHERE id = %s FOR UPDATE"
                found = connection.execute(held, (self.id,)).fetchall()
                if not found:
                    self.is_lost = True
                    raise LostShard
                # An earlier attempt may have succeeded without an answer.
                epoch = int(found[0][0]) + 1
                connection.execute(
                    "UPDATE nodes SET epoch = %s, counter = counter + 1 WHERE id = %s",
                    (epoch, self.id),
                )
            self.epoch = epoch
            self.good_until = max(self.good_until, asked + self.lease_s)

    def leave(self, connection: Connection) -> None:
        """Leave everything to the others."""
        with connection.transaction():
            connection.execute("DELETE FROM nodes WHERE id = %s", (self.id,))
            _free(connection, self.id)

    # ── Looking ──────────────────────────────────────────────────────────────────────────────

    def look(self, connection: Connection) -> tuple[NodeSeen, ...]:
        """Read who takes part and who owns what; returns the nodes that are gone."""
        with self._lock:
            asked = self._clock()
            with connection.transaction():
                # A consistent snapshot.
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                nodes = tuple(_nodes(connection))
                found = connection.execute(
                    "SELECT id, epoch, node_id, label FROM shards ORDER BY id"
                )
                shards = tuple(ShardSeen(*row) for row in found.fetchall())
                found = connection.execute("SELECT prefix, label FROM bindings ORDER BY prefix")
                bindings = tuple(Binding(*row) for row in found.fetchall())
            answered = self._clock()
            if all(node.id != self.id for node in nodes):
                self.is_lost = True
                raise LostShard
            self.seen = ClusterSeen(nodes, shards, bindings)
            own = frozenset(shard.id for shard in shards if shard.node_id == self.id)
            self._leaving &= own
            self.shards = own - self._leaving
            others = [node for node in nodes if node.id != self.id]
            return self._sightings.note(others, asked, answered)

    def take_over(self, connection: Connection, node: NodeSeen) -> bool:
        """Remove a node that is gone, unless its counter has moved; this frees its shards."""
        with connection.transaction():
            removed = connection.execute(
                "DELETE FROM nodes WHERE id = %s AND epoch = %s AND counter = %s RETURNING 1",
                (node.id, node.epoch, node.counter),
            ).fetchall()
            if removed:
                _free(connection, node.id)
        return bool(removed)

    # ── Shards ───────────────────────────────────────────────────────────────────────────────

    def planned(self) -> dict[int, int]:
        """Who should own each shard, according to this node."""
        seen = self.seen
        return plan(
            {shard.id: shard.node_id for shard in seen.shards},
            [node.id for node in seen.nodes if not node.draining],
            {shard.id: shard.label for shard in seen.shards if shard.label is not None},
            {node.id: node.labels for node in seen.nodes},
        )

    def claim(self, connection: Connection) -> list[int]:
        """Take free shards up to this node's share."""
        planned = self.planned()
        free = [shard.id for shard in self.seen.shards if shard.node_id is None]
        due = [shard for shard in free if planned.get(shard) == self.id]
        if not due:
            return []
        found = connection.execute(
            "UPDATE shards SET node_id = %s, epoch = epoch + 1"
            " WHERE id = ANY(%s::bigint[]) AND node_id IS NULL RETURNING id",
            (self.id, "{" + ",".join(map(str, due)) + "}"),
        ).fetchall()
        return [int(row[0]) for row in found]

    def excess(self) -> dict[int, int]:
        """Shards beyond this node's share, and who should have them."""
        planned = self.planned()
        return {
            shard: planned[shard]
            for shard in sorted(self.shards)
            if planned.get(shard, self.id) != self.id
        }

    def withhold(self, shards: Collection[int]) -> None:
        """Stop using these; they are about to be given away."""
        with self._lock:
            self._leaving |= frozenset(shards)
            self.shards -= self._leaving

    def keep(self, shards: Collection[int]) -> None:
        """Use these again."""
        with self._lock:
            own = {shard.id for shard in self.seen.shards if shard.node_id == self.id}
            self._leaving -= frozenset(shards)
            self.shards |= own & frozenset(shards)

    def give(self, write: Query, moves: Mapping[int, int]) -> None:
        """Give shards away. Nothing in them may be in flight any more."""
        for shard, node_id in moves.items():
            write(
                "UPDATE shards SET epoch = epoch + 1,"
                " node_id = (SELECT id FROM nodes WHERE id = ?) WHERE id = ? AND node_id = ?",
                (node_id, shard, self.id),
            )

    def given(self, shards: Collection[int]) -> None:
        """These were given away, and may come back before the next look."""
        with self._lock:
            self._leaving -= frozenset(shards)


def _free(connection: Connection, node_id: int) -> None:
    connection.execute(
        "UPDATE shards SET node_id = NULL, epoch = epoch + 1 WHERE node_id = %s", (node_id,)
    )


def _nodes(connection: Connection) -> list[NodeSeen]:
    found = connection.execute(
        "SELECT id, name, address, epoch, counter, lease_ms, draining <> 0, labels FROM nodes"
        " ORDER BY id"
    ).fetchall()
    return [NodeSeen(*row)._replace(labels=_labels(row[-1])) for row in found]


def _labels(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))
