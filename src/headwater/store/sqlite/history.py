"""The history of a SQLite database: files next to it, and rows that say what is where.

See `headwater.store.history` for the order of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import apsw

from headwater.store.engine.figures import HistoryFigures
from headwater.store.history.gathering import SLICE_BYTES
from headwater.store.history.interleaving import Share, span
from headwater.store.history.ledger import Due
from headwater.store.history.sealing import History, Recording, Stopped
from headwater.store.history.segment import ABSENT
from headwater.store.history.segment_writer import ExtentDraft, Mark, Step, nothing
from headwater.store.rows import OP_COLUMNS, Query, Row
from headwater.store.sqlite import segments as tables
from headwater.store.sqlite.database import translating

_SURVEY_ROWS: Final = 50_000
_BATCH_ROWS: Final = 1_000
# Finding the shares of many short runs costs more than it saves.
_TOGETHER_MAX: Final = 256

Transaction = Callable[[], AbstractContextManager[apsw.Connection]]


class SqliteHistory(History):
    def __init__(
        self,
        directory: Path,
        transaction: Transaction,
        reader: Callable[[], apsw.Connection],
        query: Query,
        step: Step = nothing,
    ) -> None:
        super().__init__(directory, query, step)
        self.has_shrunk = True
        """Whether extents may have been dropped since the last search for unused files."""
        self.has_shrunk_elsewhere = True
        """The same for files that are only in object storage."""
        self._transaction = transaction
        self._changes = 0
        self._counted: tuple[int, HistoryFigures] | None = None
        self.reader = reader
        self._is_surveyed = False
        self._surveyed_to = 0
        self._ids = count(1)

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """For every change to the table of segments."""
        try:
            with self._transaction() as write:
                yield write
        finally:
            self.changed()

    def changed(self) -> None:
        """Segments were recorded or removed: what `figures` tells is to be counted again."""
        self._changes += 1

    def figures(self) -> HistoryFigures:
        """How much there is, counted again only if it may have changed."""
        changes = self._changes
        if self._counted is None or self._counted[0] != changes:
            self._counted = changes, tables.history_figures(self.query)
        return self._counted[1]

    # ── Starting ─────────────────────────────────────────────────────────────────────────────

    def sweep(self, query: Query) -> None:
        """Remove what a crash left: files that no transaction recorded."""
        found = query("SELECT seq FROM sqlite_sequence WHERE name = 'segments'", ())
        self._ids = count(int(found[0][0]) + 1 if found else 1)
        if not self.directory.is_dir():
            return
        recorded = tables.segment_names(query)
        for path in self.directory.iterdir():
            if path.name not in recorded and path.suffix in (".new", ".seg"):
                path.unlink()

    @property
    def needs_survey(self) -> bool:
        return not self._is_surveyed

    def keep_ledger(self) -> None:
        """Start recording commits. On the thread that commits."""
        found = self.query("SELECT max(id) FROM ops", ())
        self._surveyed_to = int(found[0][0] or 0)
        self.ledger.keep()

    def survey(self) -> None:
        """Find earlier rows, a part at a time: there may be many."""
        for first in range(0, self._surveyed_to, _SURVEY_ROWS):
            if self.stopping:
                return
            found = self.query(
                "SELECT stream_id, sum(length(body)), min(created_at) FROM ops"
                " WHERE id > ? AND id <= ? GROUP BY stream_id",
                (first, min(first + _SURVEY_ROWS, self._surveyed_to)),
            )
            self.ledger.survey((run, size, oldest_ms) for run, size, oldest_ms in found)
        self._is_surveyed = True

    # ── Sealing ──────────────────────────────────────────────────────────────────────────────

    def new_id(self) -> int:
        return next(self._ids)

    @contextmanager
    def _rows_of(self, run: int) -> Iterator[Iterator[Row]]:
        with translating(), closing(self.reader().cursor()) as cursor:
            yield cursor.execute(
                f"SELECT {OP_COLUMNS} FROM ops WHERE stream_id = ?1 AND EXISTS"
                " (SELECT 1 FROM streams WHERE id = ?1 AND status < 2) ORDER BY start",
                (run,),
            )

    def _shares(self, due: Sequence[Due], segment_bytes: int) -> list[Share]:
        shares: list[Share] = []
        if len(due) <= _TOGETHER_MAX:
            for one in due:
                share = tables.find_share(self.query, one.run, min(one.size_bytes, segment_bytes))
                if share is not None and segment_bytes > 0:
                    shares.append(share)
                    segment_bytes -= share.beginning.size_bytes
        return shares

    def _batches(self, shares: Sequence[Share]) -> Iterator[list[Row]]:
        """Each batch is its own query, so that the log can be checkpointed meanwhile."""
        sizes = [(one.appends, one.beginning.size_bytes) for one in shares]
        appends, size_bytes = map(sum, zip(*sizes, strict=True))
        rows = max(1, min(_BATCH_ROWS, SLICE_BYTES * appends // size_bytes))
        first, last = span(shares)
        marks = ",".join("?" * len(shares))
        # By id: the plus keeps SQLite from going through one stream after the other.
        condition = f"id >= ? AND id < ? AND +stream_id IN ({marks})"
        sql = f"SELECT {OP_COLUMNS} FROM ops WHERE {condition}"
        runs = [one.run for one in shares]
        for start in range(first, last + 1, rows):
            if self.stopping:
                raise Stopped
            yield self.query(sql, (start, start + rows, *runs))

    # ── Recording ────────────────────────────────────────────────────────────────────────────

    def record(self, recording: Recording, now_ms: int) -> bool:
        """Record a slice of a segment and drop the rows it holds; True when there is more.

        On the thread that commits.
        """
        parts, draft = recording.slice(), recording.draft
        if not parts:
            return False
        skipped = set(recording.skipped)
        with self.transaction() as write:
            begun = tables.has_segment(write, draft.id)
            if recording.begun and not begun:
                # All of it was deleted between two slices, and the file with it.
                return False
            held: dict[int, tuple[ExtentDraft, Mark]] = {}
            for extent, since, to in parts:
                if extent.run in skipped:
                    continue
                if tables.drop_rows(write, extent, since, to):
                    held[extent.index_offset] = extent, to
                else:
                    skipped.add(extent.run)
            if held and not begun:
                tables.insert_segment(write, draft, now_ms)
            tables.insert_extents(write, draft.id, held.values())
            begun = begun or bool(held)
            self.step("before commit")
        recording.done(skipped, begun=begun)
        self.step("committed")
        return True

    def look_again(self, *runs: int) -> None:
        self.ledger.look(runs)
        for run in runs:
            alive = self.query("SELECT 1 FROM streams WHERE id = ? AND status < 2", (run,))
            found = self.query(
                "SELECT sum(length(body)), min(created_at) FROM ops WHERE stream_id = ?", (run,)
            )
            size, oldest_ms = found[0]
            self.ledger.settle(run, (size, oldest_ms) if alive and size else None)

    def made(self, segment_id: int) -> None:
        super().made(segment_id)
        self.shrunk()

    # ── Removing files ───────────────────────────────────────────────────────────────────────

    def shrunk(self) -> None:
        """Extents were dropped, perhaps the last ones of a file."""
        self.has_shrunk = self.has_shrunk_elsewhere = True

    def remove_unused(self, most: int) -> bool:
        """Remove files without extents; True when there may be more of them.

        On the thread that commits. The file is removed before its row, so that a crash in between
        leaves a row to start over from. Objects in object storage are removed elsewhere.
        """
        if not self.has_shrunk:
            return False
        unused = tables.unused_segments(self.query, self.making, local=True)
        for row in unused[:most]:
            self.open_segments.drop(row.id)
            self.step("before removing")
            (self.directory / row.name).unlink(missing_ok=True)
            self.step("removed")
            with self.transaction() as write:
                if row.remote == ABSENT:
                    tables.delete_segment(write, row.id)
                else:
                    tables.note_not_local(write, row.id)
            self.has_shrunk_elsewhere = True
        self.has_shrunk = len(unused) > most
        return self.has_shrunk
