"""The PostgreSQL engine: what core decided, in a database that others replicate.

Commits happen on one connection, one transaction per batch and one statement per table; reads on a
few others. A third kind shows that this node lives. Nothing is kept on this machine.

Older data stays in the database: this engine has no history in files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import psycopg
import structlog

from headwater.core.mutations import AnyMutation
from headwater.core.stream import Appended, Mutation, Undeleted
from headwater.store import rows
from headwater.store.engine import CannotOpen, EngineFigures, Problem
from headwater.store.garbage import RELEASING, Collector
from headwater.store.postgresql.appends import Appends, write_appends
from headwater.store.postgresql.database import Connection, Database, LostShard, explained
from headwater.store.postgresql.ownership import LEASE_MS, Ownership
from headwater.store.postgresql.readers import Readers
from headwater.store.postgresql.streams import WORDS, StreamChanges
from headwater.store.postgresql.tables import Statement, StatementTables, next_id
from headwater.store.postgresql.verify import verify
from headwater.store.postgresql.writer import Writer
from headwater.store.sql.groups import Groups
from headwater.store.sql.releases import StoredReleases
from headwater.store.sql.resources import write_resources
from headwater.store.sql.snapshots import Snapshots
from headwater.store.sql.streams import Streams
from headwater.store.sql.subscriptions import Subscriptions
from headwater.store.sql.templates import Templates

_BEATS_PER_LEASE: Final = 3
_BEATS_PER_MEASUREMENT: Final = 20

log = structlog.get_logger()


class PostgresqlEngine:
    name = "postgresql"
    history = None

    def __init__(
        self,
        url: str,
        producers_preloaded_max: int = 1_000,
        lease_ms: int = LEASE_MS,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database = Database(url)
        self._ownership = Ownership(lease_ms)
        self._lost = lost
        database.open()
        self._size_bytes = 0
        self._beating = self._take()
        self._readers = Readers(database.connect, self._check)
        self._writer = Writer(database, self._ownership, self._readers.reset)
        self._collector = Collector()
        query = self._readers.query
        self.appends = Appends(query)
        self.streams = Streams(query, next_id, WORDS, producers_preloaded_max)
        self.groups = Groups(query, next_id)
        self.subscriptions = Subscriptions(query, next_id)
        self.templates = Templates(query)
        self.snapshots = Snapshots(query)
        self._closing = threading.Event()
        self._is_closed = self._is_abandoned = False
        self._keeper = threading.Thread(target=self._keep, name="headwater-lease", daemon=True)
        self._keeper.start()

    def _take(self) -> Connection | None:
        """Become the owner, and keep the connection that shows it."""
        try:
            connection = self._database.connect()
            try:
                outwaited = self._ownership.take(connection)
                self._measure(connection)
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            raise CannotOpen(f"PostgreSQL at {self._database.name}: {explained(error)}") from None
        if outwaited is not None:
            log.warning("taken_over", former=outwaited, epoch=self._ownership.epoch)
        return connection

    # ── Writing ──────────────────────────────────────────────────────────────────────────────

    def commit(self, mutations: Sequence[AnyMutation]) -> None:
        statements = _statements(mutations)
        if statements:
            if any(isinstance(mutation, Undeleted) for mutation in mutations):
                # More is needed than was found.
                self._collector.begin_again()
            elif any(isinstance(mutation, RELEASING) for mutation in mutations):
                self._collector.forget_known()
            self._writer.commit(statements)

    def has_room(self) -> bool:
        """Only trying tells."""
        return True

    def reap(self, max_appends: int) -> bool:
        try:
            with self._writer.transaction() as write:
                releases = StoredReleases(write)
                return releases.drop_deleted(max_appends) or self._collector.step(
                    releases, max_appends
                )
        except BaseException:
            # What it had found out may rest on what was just undone.
            self._collector.begin_again()
            raise

    # ── Reading ──────────────────────────────────────────────────────────────────────────────

    def _check(self) -> None:
        self._writer.check()

    def verify(self) -> Iterator[Problem | str]:
        return verify(self._readers.query)

    def figures(self) -> EngineFigures:
        return EngineFigures(self._writer.sync_seconds, {"database": self._size_bytes})

    # ── Living ───────────────────────────────────────────────────────────────────────────────

    def _keep(self) -> None:
        """On a thread of its own: show that this node lives, and settle what is in doubt."""
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
                self._hang_up()
                reason = explained(error) if isinstance(error, psycopg.Error) else str(error)
                log.warning("postgresql_unavailable", reason=reason)
            except Exception:
                # Without this thread the shard would be lost after a while, and nobody would know.
                log.exception("lease_failed")
        if self._is_abandoned:
            self._hang_up()

    def _beat(self, *, measure: bool) -> None:
        self._writer.settle()
        if self._ownership.is_lost:
            raise LostShard
        if self._beating is None:
            self._beating = self._database.connect()
        self._ownership.renew(self._beating)
        if measure:
            self._measure(self._beating)

    def _measure(self, connection: Connection) -> None:
        found = connection.execute("SELECT pg_database_size(current_database())").fetchall()
        self._size_bytes = int(found[0][0])

    def _hang_up(self) -> None:
        connection, self._beating = self._beating, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._closing.set()
        self._keeper.join(self._ownership.lease_s)
        self._writer.close()
        self._readers.reset()
        if self._keeper.is_alive():
            # It waits for a replica, perhaps for ever; the next owner has to wait for the lease.
            self._is_abandoned = True
            return
        if not self._ownership.is_lost:
            with suppress(psycopg.Error, CannotOpen):
                if self._beating is None:
                    self._beating = self._database.connect()
                self._ownership.release(self._beating)
        self._hang_up()


def _statements(mutations: Sequence[AnyMutation]) -> list[Statement]:
    """What a batch comes to, table by table."""
    tables = StatementTables()
    appends: list[Appended] = []
    resources: list[AnyMutation] = []
    producers: rows.Producers = {}
    streams = StreamChanges()
    for mutation in mutations:
        if isinstance(mutation, Mutation):
            streams.add(mutation)
            if isinstance(mutation, Appended):
                appends.append(mutation)
            rows.note_producer(producers, mutation)
        else:
            resources.append(mutation)
    streams.write(tables)
    write_appends(tables, appends, producers)
    write_resources(tables, resources)
    return tables.statements
