"""The PostgreSQL engine: what core decided, in a database that can be replicated.

Commits use one connection, with one transaction per batch and one statement per table; reads use a
few others. Another one shows that this node is alive and what others do (`membership`). This
machine keeps only a cache, if there is object storage for older data (`history`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import structlog

from headwater.core.errors import OutcomeUnknown
from headwater.core.mutations import AnyMutation
from headwater.core.stream import Appended, Created, Mutation, Undeleted
from headwater.store import rows
from headwater.store.engine import CannotOpen, Problem
from headwater.store.engine.figures import EngineFigures, HistoryFigures
from headwater.store.garbage import RELEASING, Collector
from headwater.store.history.open_segments import DIRECTORY_NAME, OpenSegments
from headwater.store.history.segment_writer import Step, nothing
from headwater.store.postgresql.appends import Appends, write_appends
from headwater.store.postgresql.database import Connection, Database, explained
from headwater.store.postgresql.history import PostgresqlHistory, PostgresqlReleases
from headwater.store.postgresql.membership import Membership
from headwater.store.postgresql.ownership import LEASE_MS, Ownership
from headwater.store.postgresql.readers import Readers
from headwater.store.postgresql.streams import WORDS, StreamChanges
from headwater.store.postgresql.tables import Statement, StatementTables, next_id
from headwater.store.postgresql.verify import verify
from headwater.store.postgresql.writer import Writer
from headwater.store.sql.groups import Groups
from headwater.store.sql.resources import write_resources
from headwater.store.sql.snapshots import Snapshots
from headwater.store.sql.streams import Streams
from headwater.store.sql.subscriptions import Subscriptions
from headwater.store.sql.templates import Templates
from headwater.store.sqlite.database import DirectoryLock, prepare_directory

log = structlog.get_logger()


class PostgresqlEngine:
    name = "postgresql"
    committer = None

    def __init__(
        self,
        url: str,
        producers_preloaded_max: int = 1_000,
        lease_ms: int = LEASE_MS,
        lost: Callable[[], None] = lambda: None,
        address: str | None = None,
        labels: frozenset[str] = frozenset(),
        cache: Path | None = None,
        step: Step = nothing,
    ) -> None:
        """With a cache directory, older data can move to object storage."""
        self._database = database = Database(url)
        self._ownership = Ownership(lease_ms, address, labels)
        self._cache_lock = prepare_cache(cache) if cache else None
        try:
            database.open()
            connection = self._join()
        except BaseException:
            self._release_cache()
            raise
        self._readers = Readers(database.connect, self._check)
        self._writer = Writer(database, self._ownership, self._readers.reset)
        self._keeper = Membership(
            database,
            self._ownership,
            connection,
            self._readers.query,
            self._writer,
            lost,
            self._readers.reset,
        )
        self._own = own = (
            f" AND shard IN (SELECT id FROM shards WHERE node_id = {self._ownership.id})"
        )
        """An SQL condition: what belongs to this node."""
        self._collector = Collector()
        query = self._readers.query
        self.history: PostgresqlHistory | None = None
        segments = OpenSegments(Path(DIRECTORY_NAME))
        if cache is not None:
            self.history = PostgresqlHistory(
                cache / DIRECTORY_NAME,
                self._writer.transaction,
                query,
                self._ownership,
                database.cluster or "",
                step,
            )
            segments = self.history.open_segments
        self.appends = Appends(query, segments)
        words = WORDS._replace(own=self._own)
        self.streams = Streams(
            query, next_id, words, producers_preloaded_max, self._ownership.demand
        )
        self.groups = Groups(query, next_id)
        self.subscriptions = Subscriptions(query, next_id, own)
        self.templates = Templates(query)
        self.snapshots = Snapshots(query)
        self._is_closed = False
        self._keeper.start()

    @property
    def membership(self) -> Membership | None:
        return None if self._ownership.is_alone else self._keeper

    @property
    def lease(self) -> Membership:
        return self._keeper

    def _join(self) -> Connection:
        """Join the nodes, and keep the connection that shows it."""
        try:
            connection = self._database.connect()
            try:
                outwaited = self._ownership.join(connection)
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            raise CannotOpen(f"PostgreSQL at {self._database.name}: {explained(error)}") from None
        for former in outwaited:
            log.warning("taken_over", former=former)
        return connection

    # ── Writing ──────────────────────────────────────────────────────────────────────────────

    def commit(self, mutations: Sequence[AnyMutation]) -> None:
        statements = self._statements(mutations)
        if statements:
            if any(isinstance(mutation, Undeleted) for mutation in mutations):
                # More data is needed now than the collector had found.
                self._collector.begin_again()
            elif any(isinstance(mutation, RELEASING) for mutation in mutations):
                self._collector.forget_known()
            try:
                self._writer.commit(statements)
            except OutcomeUnknown:
                # It may be stored. Sealing looks at the rows themselves.
                self._note(mutations)
                raise
            self._note(mutations)

    def _note(self, mutations: Sequence[AnyMutation]) -> None:
        """Tell history what is in rows."""
        if self.history is not None:
            ledger = self.history.ledger
            ledger.note(one for one in mutations if isinstance(one, Appended))
            # How much it has is counted when it is due.
            ledger.survey(
                (one.stream_id, 0, one.at_ms) for one in mutations if isinstance(one, Undeleted)
            )

    def _statements(self, mutations: Sequence[AnyMutation]) -> list[Statement]:
        """The statements of a batch, table by table."""
        placed: dict[str, int] = {}
        tables = StatementTables(
            lambda path: placed[path] if path in placed else self._keeper.home(path),
            self._keeper.seen.of_subscription,
        )
        appends: list[Appended] = []
        resources: list[AnyMutation] = []
        producers: rows.Producers = {}
        streams = StreamChanges()
        for mutation in mutations:
            if isinstance(mutation, Mutation):
                streams.add(mutation)
                if isinstance(mutation, Appended):
                    appends.append(mutation)
                elif isinstance(mutation, Created) and mutation.shard is not None:
                    placed[mutation.config.path] = mutation.shard
                rows.note_producer(producers, mutation)
            else:
                resources.append(mutation)
        streams.write(tables)
        write_appends(tables, appends, producers)
        write_resources(tables, resources)
        return tables.statements

    def has_room(self) -> bool:
        """Only trying can tell."""
        return True

    def reap(self, max_appends: int) -> bool:
        try:
            with self._writer.transaction() as write:
                releases = PostgresqlReleases(write, self._own)
                more = releases.drop_deleted(max_appends)
                more = more or self._collector.step(releases, max_appends)
                releases.note_unused()
                return more
        except BaseException:
            # What it had found may depend on what was just rolled back.
            self._collector.begin_again()
            raise

    # ── Reading ──────────────────────────────────────────────────────────────────────────────

    def _check(self) -> None:
        self._writer.check()

    def verify(self) -> Iterator[Problem | str]:
        return verify(self._readers.query)

    def figures(self) -> EngineFigures:
        keeper = self._keeper
        sizes, history = {"database": keeper.size_bytes}, HistoryFigures()
        if self.history is not None:
            sizes["cache"] = self.history.open_segments.cached_bytes
            history = self.history.figures
        return EngineFigures(self._writer.sync_seconds, sizes, history, keeper.replication)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._keeper.stop()
        self._writer.close()
        self._readers.reset()
        self._keeper.leave()
        if self.history is not None:
            self.history.open_segments.close()
        self._release_cache()

    def _release_cache(self) -> None:
        lock, self._cache_lock = self._cache_lock, None
        if lock is not None:
            lock.release()


def prepare_cache(directory: Path) -> DirectoryLock:
    """Lock a directory for this process, and empty it. Raises CannotOpen."""
    lock = prepare_directory(directory)
    shutil.rmtree(directory / DIRECTORY_NAME, ignore_errors=True)
    return lock
