"""Living among nodes: a thread that shows that this node lives, and sees what the others do.

Three times per lease it settles what is in doubt, raises this node's counter and looks at the
cluster. Nodes that are gone are removed, and free shards that are due to this node are taken. What
this node has beyond its due it does not give away by itself: something of it may be under way, so
that is for those who use the shards (`headwater.cluster`), who are told whenever it has looked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import psycopg
import structlog

from headwater.core.cluster import ClusterSeen
from headwater.core.errors import StorageUnavailable
from headwater.store.engine import CannotOpen
from headwater.store.engine.figures import ReplicationFigures
from headwater.store.engine.membership import IdKind
from headwater.store.postgresql.database import (
    Connection,
    Database,
    KeptConnection,
    LostShard,
    explained,
    translated,
)
from headwater.store.postgresql.ownership import Ownership
from headwater.store.postgresql.tables import new_id
from headwater.store.postgresql.values import texts
from headwater.store.postgresql.writer import Writer
from headwater.store.rows import KEPT, LIVE, SOFT_DELETED, Query

_BEATS_PER_LEASE: Final = 3
_BEATS_PER_MEASUREMENT: Final = 20
# Who may not see what replicas do (pg_monitor) sees none.
_MEASURE: Final = """
SELECT pg_database_size(current_database()),
  count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')),
  coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn)), 0)::bigint
FROM pg_stat_replication
"""

_HOLDINGS: Final = f"""
SELECT count(*) FILTER (WHERE status = {LIVE}),
  coalesce(sum(size) FILTER (WHERE status <> {KEPT}), 0)::bigint,
  coalesce(sum(size) FILTER (WHERE status = {KEPT}), 0)::bigint,
  coalesce(sum(known) FILTER (WHERE status = {LIVE}), 0)::bigint
FROM (
  SELECT s.status,
    (SELECT count(*) FROM producers p WHERE p.stream_id = s.id) AS known,
    greatest(0, coalesce((SELECT start + octet_length(body) FROM ops o WHERE o.stream_id = s.id
      ORDER BY start DESC LIMIT 1), (SELECT until FROM extents WHERE run = s.id
      ORDER BY start DESC LIMIT 1), s.base) - greatest(s.kept_from, s.base)) AS size
  FROM streams s WHERE s.status IN ({LIVE}, {SOFT_DELETED}, {KEPT}) {{below}}
) AS held
"""

R = TypeVar("R")
log = structlog.get_logger()


class Membership:
    def __init__(
        self,
        database: Database,
        ownership: Ownership,
        connection: Connection,
        query: Query,
        writer: Writer,
        lost: Callable[[], None],
        renewed: Callable[[], None],
    ) -> None:
        self._database = database
        self._ownership = ownership
        # What was lost may have been the primary. It must not be read from, as if nothing were,
        # under a lease that another one has given.
        self._kept = KeptConnection(database, connection, renewed)
        self._query = query
        self._writer = writer
        self._lost = lost
        self._turn = threading.RLock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="headwater-lease", daemon=True)
        self._ending = threading.Lock()
        self._is_over = False
        self._is_abandoned = False
        self.on_look: Callable[[], None] = lambda: None
        """Called after every look, on some thread."""
        self.size_bytes = 0
        self.replication = ReplicationFigures()
        self.taken_over = 0
        """Nodes that this one has found to be gone."""
        self._measure(connection)

    # ── What is known ────────────────────────────────────────────────────────────────────────

    @property
    def clock(self) -> Callable[[], int]:
        return self._ownership.time_of_day

    @property
    def node_id(self) -> int:
        return self._ownership.id

    @property
    def lease_s(self) -> float:
        return self._ownership.lease_s

    @property
    def seen(self) -> ClusterSeen:
        return self._ownership.seen

    @property
    def shards(self) -> frozenset[int]:
        return self._ownership.shards

    @property
    def is_good(self) -> bool:
        return self._ownership.is_good

    def excess(self) -> dict[int, int]:
        return self._ownership.excess()

    def home(self, name: str) -> int:
        return self.seen.home(name)

    def demand(self, shard: int) -> None:
        self._ownership.demand(shard)

    # ── What can be done ─────────────────────────────────────────────────────────────────────

    def renew(self) -> None:
        """Make sure that nobody else has taken over. Raises StorageUnavailable if that fails."""
        with self._turn:
            if not self._ownership.is_good:
                self._asked(self._ownership.renew)

    def look(self) -> None:
        """See now what the others do."""
        with self._turn:
            self._asked(self._ownership.look)
        self.on_look()

    def withhold(self, shards: Collection[int]) -> None:
        self._ownership.withhold(shards)

    def keep(self, shards: Collection[int]) -> None:
        self._writer.settle()
        self._writer.check()
        self.look()
        self._ownership.keep(shards)

    def give(self, moves: Mapping[int, int]) -> None:
        with self._writer.transaction() as write:
            self._ownership.give(write, moves)
        self._ownership.given(moves)
        self.look()

    def drain(self, node_id: int, *, draining: bool = True) -> bool:
        """Let a node have no shards any more, or again; False if there is no such node."""
        sql = "UPDATE nodes SET draining = %s WHERE id = %s RETURNING 1"
        with self._turn:
            found = self._asked(lambda c: c.execute(sql, (int(draining), node_id)).fetchall())
            self._asked(self._ownership.look)
        self.on_look()
        return bool(found)

    def secret(self, kind: str, fresh: bytes) -> bytes:
        def find(connection: Connection) -> bytes:
            with connection.transaction():
                connection.execute("LOCK TABLE secrets IN SHARE ROW EXCLUSIVE MODE")
                connection.execute(
                    "INSERT INTO secrets (kind, value, created_at) SELECT %s, %s,"
                    " (extract(epoch FROM now()) * 1000)::bigint"
                    " WHERE NOT EXISTS (SELECT 1 FROM secrets WHERE kind = %s)",
                    (kind, fresh, kind),
                )
                sql = "SELECT value FROM secrets WHERE kind = %s ORDER BY id LIMIT 1"
                return bytes(connection.execute(sql, (kind,)).fetchall()[0][0])

        with self._turn:
            return self._asked(find)

    def shards_of(self, paths: Sequence[str]) -> list[int]:
        sql = "SELECT path, shard FROM streams WHERE path = ANY(?) AND status < 2"
        found: dict[str, int] = dict(self._query(sql, (texts(paths),)))
        return [found.get(path, self.home(path)) for path in paths]

    def holdings(self, account: str) -> tuple[int, int, int, int]:
        values = (account, f"{account}/", f"{account}0") if account else ()
        below = "AND (s.path = ? OR (s.path >= ? AND s.path < ?))" if account else ""
        try:
            found = self._query(_HOLDINGS.format(below=below), values)
        except psycopg.Error as error:
            raise translated(error) from error
        streams, held, kept, producers = map(int, found[0])
        return streams, held, producers, kept

    def new_id(self, kind: IdKind) -> int:
        return new_id(self._query, kind)

    def _asked(self, work: Callable[[Connection], R]) -> R:
        """Ask on the connection of this thread's turn; what goes wrong is put in words."""
        try:
            return work(self._kept.connected())
        except LostShard:
            raise
        except CannotOpen as error:
            self._kept.hang_up()
            raise StorageUnavailable(f"{error}; try again") from None
        except psycopg.Error as error:
            self._kept.hang_up()
            raise translated(error) from error

    # ── The thread ───────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._thread.start()

    def _keep(self) -> None:
        self._beat_on()
        with self._ending:
            self._is_over = True
            if self._is_abandoned:
                self._kept.hang_up()

    def _beat_on(self) -> None:
        beats = 0
        while not self._closing.wait(self._ownership.lease_s / _BEATS_PER_LEASE):
            beats += 1
            try:
                self._beat(measure=beats % _BEATS_PER_MEASUREMENT == 0)
            except LostShard as error:
                log.error("shard_lost", error=error.message)
                self._lost()
                return
            except (psycopg.Error, CannotOpen) as error:
                self._kept.hang_up()
                reason = explained(error) if isinstance(error, psycopg.Error) else str(error)
                log.warning("postgresql_unavailable", reason=reason)
            except Exception:
                # Without this thread the node would be taken for gone, and nobody would know.
                log.exception("lease_failed")

    def _beat(self, *, measure: bool) -> None:
        self._writer.settle()
        if self._ownership.is_lost:
            raise LostShard
        with self._turn:
            connection = self._kept.connected()
            self._ownership.renew(connection)
            if not self._ownership.is_alone:
                self._meet(connection)
            if measure:
                self._measure(connection)
        self.on_look()

    def _meet(self, connection: Connection) -> None:
        """See who is gone and what is free."""
        gone = self._ownership.look(connection)
        for node in gone:
            if self._ownership.take_over(connection, node):
                self.taken_over += 1
                log.warning("taken_over", former=node.name, address=node.address)
        if gone:
            self._ownership.look(connection)
        if self._ownership.claim(connection):
            self._ownership.look(connection)

    def _measure(self, connection: Connection) -> None:
        found = connection.execute(_MEASURE).fetchall()
        self.size_bytes, *replication = map(int, found[0])
        self.replication = ReplicationFigures(*replication)

    # ── The end ──────────────────────────────────────────────────────────────────────────────

    def stop(self) -> None:
        """Show no more signs of life."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(self._ownership.lease_s)

    def leave(self) -> None:
        """Leave in good order, so that nobody has to wait."""
        with self._ending:
            if self._thread.ident is not None and not self._is_over:
                # It waits for a replica, perhaps for ever; the next owner has to wait for the
                # lease. Whenever it is done, it hangs up.
                self._is_abandoned = True
                return
        if not self._ownership.is_lost:
            with suppress(psycopg.Error, CannotOpen):
                self._ownership.leave(self._kept.connected())
        self._kept.hang_up()
