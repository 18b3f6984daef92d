"""The SQLite engine: one file, one transaction per batch, one fsync per transaction.

Commits happen on the write connection; reads on a connection per thread, which in WAL mode neither
wait for the writer nor delay it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import apsw

from headwater.core.errors import StorageFull
from headwater.core.histograms import SECONDS, Histogram
from headwater.core.mutations import GROWING, AnyMutation
from headwater.core.stream import Appended, Undeleted
from headwater.store.disk_reserve import DiskReserve, is_full
from headwater.store.engine import Problem
from headwater.store.engine.figures import EngineFigures
from headwater.store.garbage import Collector
from headwater.store.history import large_appends
from headwater.store.history.open_segments import DIRECTORY_NAME
from headwater.store.history.segment_writer import Step, nothing
from headwater.store.rows import Row
from headwater.store.sql.groups import Groups
from headwater.store.sql.snapshots import Snapshots
from headwater.store.sql.streams import Streams
from headwater.store.sql.subscriptions import Subscriptions
from headwater.store.sql.templates import Templates
from headwater.store.sqlite.appends import Appends
from headwater.store.sqlite.commits import Commits
from headwater.store.sqlite.committer import SqliteCommitter
from headwater.store.sqlite.database import (
    BUSY_TIMEOUT_MS,
    DATABASE_NAME,
    DataDirectoryError,
    close_to_others,
    connect,
    disk_bytes,
    empty_log,
    open_writer,
    prepare_directory,
    translated,
)
from headwater.store.sqlite.filing import Filing
from headwater.store.sqlite.history import SqliteHistory
from headwater.store.sqlite.releases import SqliteReleases
from headwater.store.sqlite.streams import WORDS
from headwater.store.sqlite.tables import next_id
from headwater.store.verify import verify_database

_FILES_REMOVED_AT_ONCE: Final = 4


class SqliteEngine:
    name = "sqlite"
    lease = None
    membership = None

    def __init__(
        self, directory: Path, producers_preloaded_max: int = 1_000, step: Step = nothing
    ) -> None:
        self._lock = prepare_directory(directory)
        self._path = directory / DATABASE_NAME
        self._local = threading.local()
        self._readers: list[apsw.Connection] = []
        try:
            self._writer = open_writer(self._path)
            # Not before it is certain that the directory is ours.
            close_to_others(directory)
        except BaseException:
            self._lock.release()
            raise
        self.history = SqliteHistory(
            directory / DIRECTORY_NAME, self._transaction, self._reader, self._query, step
        )
        self._filing = Filing(self.history.directory, self._query, self.history.new_id, step)
        self._sync_seconds = Histogram(SECONDS)
        self._collector = Collector()
        self._commits = Commits(self._writer, self._collector)
        self._reserve = DiskReserve(directory)
        self.committer = SqliteCommitter(
            self._path,
            self._lock.descriptor,
            self.history,
            self._committed_elsewhere,
            self._committer_ended,
            # The thread knows what to do if the disk is full.
            lambda: self._reserve.is_there,
        )
        self.appends = Appends(self._reader, self._query, self.history.open_segments)
        self.streams = Streams(self._query, next_id, WORDS, producers_preloaded_max)
        self.groups = Groups(self._query, next_id)
        self.subscriptions = Subscriptions(self._query, next_id)
        self.templates = Templates(self._query)
        self.snapshots = Snapshots(self._query)
        try:
            self.history.sweep(lambda sql, values: self._writer.execute(sql, values).fetchall())
        except (apsw.Error, OSError) as error:
            self.close()
            raise DataDirectoryError(
                f"{directory} cannot be used ({error}); run 'headwater verify {directory}'"
            ) from None

    # ── Writing ──────────────────────────────────────────────────────────────────────────────

    def commit(self, mutations: Sequence[AnyMutation]) -> None:
        reserve = self._reserve
        if not reserve.is_there:
            grows = any(isinstance(mutation, GROWING) for mutation in mutations)
            if not reserve.build() and grows:
                raise StorageFull
        try:
            self._commit(mutations)
        except StorageFull:
            # The reserve is free now, for operations that make room.
            if any(isinstance(mutation, GROWING) for mutation in mutations):
                raise
            self._commit(mutations)

    def has_room(self) -> bool:
        return self._reserve.has_room()

    def _commit(self, mutations: Sequence[AnyMutation]) -> None:
        appends: Sequence[Appended] = [one for one in mutations if isinstance(one, Appended)]
        try:
            if large_appends.has_any(appends):
                with self._filing.of(appends) as drafts:
                    self._commits.commit(mutations, drafts)
                if drafts:
                    self.history.changed()
                    appends = large_appends.in_rows(appends, drafts)
            else:
                self._commits.commit(mutations)
        except (apsw.Error, OSError) as error:
            raise self._refusal(error) from error
        self._sync_seconds.observe(self._commits.sync_s)
        self.history.ledger.note(appends)
        if len(appends) < len(mutations):
            for mutation in mutations:
                if isinstance(mutation, Undeleted):
                    self.history.look_again(mutation.stream_id)

    def _committed_elsewhere(self, mutations: Sequence[AnyMutation], sync_s: float) -> None:
        self._sync_seconds.observe(sync_s)
        self._note_rows(mutations)

    def _note_rows(self, mutations: Sequence[AnyMutation]) -> None:
        appends = [one for one in mutations if isinstance(one, Appended)]
        if large_appends.has_any(appends):
            # The committer takes large ones only if all of them go into files.
            appends = [one for one in appends if not large_appends.is_large(one)]
            self.history.changed()
        self.history.ledger.note(appends)

    def _committer_ended(self, mutations: Sequence[AnyMutation]) -> None:
        self._commits.void()
        # It may be stored. Sealing looks at the rows themselves.
        self._note_rows(mutations)

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        try:
            with self._commits.transaction() as write:
                yield write
            self._sync_seconds.observe(self._commits.sync_s)
        except apsw.Error as error:
            raise self._refusal(error) from error

    def _refusal(self, error: apsw.Error | OSError) -> Exception:
        if is_full(error):
            self._reserve.release()
            return StorageFull()
        return translated(error)

    def reap(self, max_appends: int) -> bool:
        try:
            with self._transaction() as write:
                releases = SqliteReleases(write)
                more = releases.drop_deleted(max_appends)
                more = more or self._collector.step(releases, max_appends)
        except BaseException:
            # What it had found may depend on what was just rolled back.
            self._collector.begin_again()
            raise
        if releases.extents_dropped:
            self.history.shrunk()
        if not self._reserve.is_there:
            self._note_reusable()
        # Files are removed when they have no extents left.
        return more or self.history.remove_unused(_FILES_REMOVED_AT_ONCE)

    def _note_reusable(self) -> None:
        """Measure how much of the database is free, and truncate its log."""
        with suppress(apsw.Error):
            # Do not wait for current readers: it is tried again.
            self._writer.set_busy_timeout(0)
            empty_log(self._writer)
        self._writer.set_busy_timeout(BUSY_TIMEOUT_MS)
        with suppress(apsw.Error):
            pages = self._writer.pragma("freelist_count")
            self._reserve.reusable_bytes = pages * self._writer.pragma("page_size")
            self._reserve.build()

    # ── Reading ──────────────────────────────────────────────────────────────────────────────

    def _query(self, sql: str, values: tuple[object, ...] = ()) -> list[Row]:
        try:
            return self._reader().execute(sql, values).fetchall()
        except apsw.Error as error:
            raise translated(error) from error

    def _reader(self) -> apsw.Connection:
        reader: apsw.Connection | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = connect(self._path, read_only=True)
            self._readers.append(reader)
        return reader

    def verify(self) -> Iterator[Problem | str]:
        return verify_database(self._path)

    def figures(self) -> EngineFigures:
        history = self.history.figures()
        beside = {"segments": history.local_bytes, "cache": self.history.open_segments.cached_bytes}
        return EngineFigures(self._sync_seconds, disk_bytes(self._path) | beside, history)

    def close(self) -> None:
        self.committer.close()
        self._filing.close()
        self.history.open_segments.close()
        for reader in self._readers:
            reader.close()
        self._writer.close()
        self._lock.release()
