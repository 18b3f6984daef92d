"""Batches of mutations as transactions of one connection.

The server has two such connections, one in its own process and one in the committer's; see
`headwater.store.sqlite.committer`. They are never used at the same time.

A failed commit must stay failed, even if the process is killed now. If only its sync failed, it is
complete in the write-ahead log, and recovery would find it there. The next commit overwrites it, so
one that changes nothing is made at once. Whether that one can be synced does not matter. If it
cannot even be written, the outcome of the first is unknown, and nobody may be told otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Final

import apsw

from headwater.core.errors import OutcomeUnknown
from headwater.core.limits import MIB
from headwater.core.mutations import AnyMutation
from headwater.core.stream import Appended, Mutation
from headwater.store import rows
from headwater.store.garbage import Collector, note_release
from headwater.store.history import large_appends
from headwater.store.history.segment_writer import SegmentDraft
from headwater.store.rows import OP_COLUMNS
from headwater.store.sql.resources import write_resources
from headwater.store.sqlite import segments
from headwater.store.sqlite.producers import ProducerRows
from headwater.store.sqlite.releases import SqliteReleases
from headwater.store.sqlite.schema import SCHEMA_VERSION
from headwater.store.sqlite.streams import write_change
from headwater.store.sqlite.tables import ROWS_PER_INSERT, SqliteTables, insert_alone, insert_rows

# Whatever else fails, fails before the commit is complete in the log.
_AFTER_WRITING: Final = frozenset(
    {
        apsw.SQLITE_IOERR_FSYNC,
        apsw.SQLITE_IOERR_SHMMAP,
        apsw.SQLITE_IOERR_SHMSIZE,
        apsw.SQLITE_IOERR_NOMEM,
    }
)


class Commits:
    """Errors are those of SQLite. Whatever raises one has changed nothing.

    The exception is `OutcomeUnknown`.
    """

    def __init__(self, write: apsw.Connection, collector: Collector) -> None:
        self._write = write
        self._collector = collector
        self._producers = ProducerRows()
        self.sync_s = 0.0
        """How long the last sync took."""

    def commit(self, mutations: Sequence[AnyMutation], drafts: Sequence[SegmentDraft] = ()) -> None:
        """Store everything. Appends that a file holds are recorded as extents, not as rows."""
        if drafts:
            self._write_all(mutations, drafts)
            return
        alone = [one for one in mutations if isinstance(one, Appended) and one.stands_alone]
        if 0 < len(alone) == len(mutations) <= ROWS_PER_INSERT:
            self._insert_alone(alone)
        else:
            self._write_all(mutations)

    def _insert_alone(self, appends: Sequence[Appended]) -> None:
        """The usual case in one statement: the interpreter lock is released once."""
        values: list[object] = []
        for append in appends:
            values += rows.op_row(append)
        began = perf_counter()
        try:
            insert_alone(
                self._write, "ops", OP_COLUMNS, len(appends), values, again=_are_small(appends)
            )
        except apsw.Error as error:
            self._take_back(error)
            raise
        self.sync_s = perf_counter() - began

    def _write_all(
        self, mutations: Sequence[AnyMutation], drafts: Sequence[SegmentDraft] = ()
    ) -> None:
        producers: rows.Producers = {}
        with self.transaction() as write:
            for draft in drafts:
                last_ms = max(extent.marks[-1].last_at_ms for extent in draft.extents)
                segments.insert_segment(write, draft, last_ms)
                parts = [(extent, extent.marks[-1]) for extent in draft.extents]
                segments.insert_extents(write, draft.id, parts)
            appends: list[Appended] = []
            resources: list[AnyMutation] = []
            releases = SqliteReleases(write)
            for mutation in mutations:
                if isinstance(mutation, Appended):
                    appends.append(mutation)
                elif isinstance(mutation, Mutation):
                    # Appends are collected to be written together, but never past a change to a
                    # stream.
                    _write_appends(write, appends, drafts)
                    appends.clear()
                    note_release(self._collector, releases, mutation)
                    write_change(write, mutation)
                else:
                    resources.append(mutation)
                    continue
                rows.note_producer(producers, mutation)
            _write_appends(write, appends, drafts)
            write_resources(SqliteTables(write), resources)
            self._producers.write(write, producers)
        self._producers.committed(producers)

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        write = self._write
        committing = False
        try:
            write.execute("BEGIN IMMEDIATE")
            yield write
            committing = True
            began = perf_counter()
            write.execute("COMMIT")
            self.sync_s = perf_counter() - began
        except apsw.Error as error:
            if committing:
                self._take_back(error)
            raise
        finally:
            self._roll_back()

    def _roll_back(self) -> None:
        if self._write.in_transaction:
            with suppress(apsw.Error):
                self._write.execute("ROLLBACK")

    def _take_back(self, failure: apsw.Error) -> None:
        if not self.void() and _is_after_writing(failure):
            raise OutcomeUnknown from failure

    def void(self) -> bool:
        """Overwrite what a failed commit may have left in the log; False if that fails."""
        self._roll_back()
        try:
            self._write.pragma("user_version", SCHEMA_VERSION)
        except apsw.Error as error:
            return _is_after_writing(error)
        return True


def _is_after_writing(error: apsw.Error) -> bool:
    return getattr(error, "extendedresult", 0) in _AFTER_WRITING


def _write_appends(
    write: apsw.Connection, appends: Sequence[Appended], drafts: Sequence[SegmentDraft]
) -> None:
    in_rows = large_appends.in_rows(appends, drafts)
    values = [rows.op_row(append) for append in in_rows]
    insert_rows(write, "ops", OP_COLUMNS, values, again=_are_small(in_rows))
    ids = [(a.stream_id, *message_id) for a in appends for message_id in a.ids]
    insert_rows(write, "message_ids", "stream_id, message_id, position", ids)
    for append in appends:
        if append.stream_seq is not None:
            write.execute(
                "UPDATE streams SET last_stream_seq = ? WHERE id = ?",
                (append.stream_seq, append.stream_id),
            )
        if append.trim_due_ms is not None:
            write.execute(
                "UPDATE streams SET trim_due = ? WHERE id = ?",
                (append.trim_due_ms, append.stream_id),
            )


def _are_small(appends: Sequence[Appended]) -> bool:
    return sum([len(append.body) for append in appends]) < MIB
