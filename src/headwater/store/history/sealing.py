"""From rows to recorded extents; see the package's own notes for the order of things.

`gather` and everything before it runs on a thread of its own and touches nothing that a commit
needs. `record` runs between two commits, a bounded slice at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Final

import apsw

from headwater.store.engine.figures import HistoryFigures
from headwater.store.history.gathering import as_columns, count_fitting, count_sound, in_slices
from headwater.store.history.ledger import Due, Ledger
from headwater.store.history.open_segments import OpenSegments
from headwater.store.history.segment import ABSENT, Segment
from headwater.store.history.segment_writer import (
    ExtentDraft,
    Mark,
    SegmentBuilder,
    SegmentDraft,
    Step,
    nothing,
)
from headwater.store.permissions import make_directory
from headwater.store.rows import OP_COLUMNS, Query
from headwater.store.sqlite import segments as tables
from headwater.store.sqlite.database import translating
from headwater.store.syncing import sync

# One transaction drops about this much, so that commits are not held up for long.
_SLICE_APPENDS: Final = 500
_SLICE_EXTENTS: Final = 250
_SURVEY_ROWS: Final = 50_000

Transaction = Callable[[], AbstractContextManager[apsw.Connection]]


class Stopped(Exception):
    """Sealing was told to stop; what was under way is left as it was."""


class Recording:
    """How far a segment has been recorded."""

    def __init__(self, draft: SegmentDraft) -> None:
        self.draft = draft
        self.begun = False
        """Whether the database knows the segment."""
        self._left = _parts(draft)
        self.skipped: set[int] = set()
        """Runs whose rows are not what they were when the file was written: deleted meanwhile."""
        self._next: list[Part] | None = None

    def slice(self) -> list[Part]:
        """The parts for one transaction. The same ones again until `done` is called."""
        if self._next is None:
            self._next = []
            appends = 0
            for part in self._left:
                self._next.append(part)
                appends += part[2].appends - (part[1].appends if part[1] else 0)
                if appends >= _SLICE_APPENDS or len(self._next) >= _SLICE_EXTENTS:
                    break
        return self._next

    def done(self, skipped: set[int], *, begun: bool) -> None:
        self.skipped, self.begun = skipped, begun
        self._next = None


Part = tuple[ExtentDraft, Mark | None, Mark]


def _parts(draft: SegmentDraft) -> Iterator[Part]:
    """In the order in which they were written: what lies side by side in the database goes at once.

    Rows of streams that are written at the same time share pages. To drop them stream by stream
    would write every page as often as there are streams on it.
    """
    parts: list[tuple[int, Part]] = []
    for extent in draft.extents:
        written_ms = 0
        for since, to in zip((None, *extent.marks), extent.marks, strict=False):
            # Whatever clocks do, the parts of an extent stay in their order.
            written_ms = max(written_ms, to.last_at_ms)
            parts.append((written_ms, (extent, since, to)))
    parts.sort(key=itemgetter(0))
    return (part for _, part in parts)


class History:
    """The history of one database."""

    def __init__(
        self,
        directory: Path,
        transaction: Transaction,
        reader: Callable[[], apsw.Connection],
        query: Query,
        step: Step = nothing,
    ) -> None:
        self.directory = directory
        self.ledger = Ledger()
        self.open_segments = OpenSegments(directory)
        self.stopping = False
        self.has_shrunk = True
        """Whether extents may have gone since unused files were last looked for."""
        self.has_shrunk_elsewhere = True
        """The same for files that are only in object storage."""
        self.making: set[int] = set()
        """Segments that are not recorded completely yet: nobody else may remove or rewrite them."""
        self.damaged: set[int] = set()
        """Segments that could not be read when they were to be rewritten."""
        self._transaction = transaction
        self._changes = 0
        self._counted: tuple[int, HistoryFigures] | None = None
        self.reader = reader
        self.query = query
        self.step = step
        self._surveyed_to = 0
        self._ids = count(1)

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """For every change to the table of segments."""
        try:
            with self._transaction() as write:
                yield write
        finally:
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

    def keep_ledger(self) -> None:
        """From now on commits are noted. On the thread that commits."""
        found = self.query("SELECT max(id) FROM ops", ())
        self._surveyed_to = int(found[0][0] or 0)
        self.ledger.keep()

    def survey(self) -> None:
        """Find out what is in rows from earlier on, a part at a time: there may be a lot."""
        for first in range(0, self._surveyed_to, _SURVEY_ROWS):
            if self.stopping:
                return
            found = self.query(
                "SELECT stream_id, sum(length(body)), min(created_at) FROM ops"
                " WHERE id > ? AND id <= ? GROUP BY stream_id",
                (first, min(first + _SURVEY_ROWS, self._surveyed_to)),
            )
            self.ledger.survey((run, size, oldest_ms) for run, size, oldest_ms in found)

    # ── Writing a file ───────────────────────────────────────────────────────────────────────

    def gather(self, due: Sequence[Due], segment_bytes: int) -> Recording | None:
        """Write the rows of some runs into a file that is synced and verified."""
        if not self.directory.is_dir():
            make_directory(self.directory)
            sync(self.directory.parent)
        builder = self.begin_file()
        try:
            empty = True
            for one in due:
                empty &= not self._gather_run(builder, one.run, segment_bytes)
                if builder.size_bytes >= segment_bytes:
                    break
            if not empty:
                return Recording(self.finish_file(builder))
        except BaseException:
            self.give_up(builder)
            raise
        self.give_up(builder)
        return None

    def begin_file(self) -> SegmentBuilder:
        builder = SegmentBuilder(self.directory, next(self._ids), self.step)
        self.making.add(builder.id)
        return builder

    def finish_file(self, builder: SegmentBuilder) -> SegmentDraft:
        """Sync a file, read it back and compare it."""
        draft = builder.finish()
        Segment.open(self.directory / draft.name, draft.row()).check_all()
        self.step("verified")
        return draft

    def give_up(self, builder: SegmentBuilder) -> None:
        """Leave nothing of a file that nothing refers to."""
        builder.abandon()
        self.made(builder.id)

    def made(self, segment_id: int) -> None:
        """A segment is recorded as far as it ever will be; maybe nothing lies in it by now."""
        self.making.discard(segment_id)
        self.shrunk()

    def _gather_run(self, builder: SegmentBuilder, run: int, segment_bytes: int) -> bool:
        """Add an extent with what is in rows of a run, as far as the file has room."""
        position: int | None = None
        with translating(), closing(self.reader().cursor()) as cursor:
            rows = cursor.execute(
                f"SELECT {OP_COLUMNS} FROM ops WHERE stream_id = ?1 AND EXISTS"
                " (SELECT 1 FROM streams WHERE id = ?1 AND status < 2) ORDER BY start",
                (run,),
            )
            for taken in in_slices(rows):
                if self.stopping:
                    raise Stopped
                sound = count_sound(taken, position)
                if sound < len(taken):
                    # Rows that are not what was committed stay where they are.
                    self.ledger.bar(run)
                fitting = count_fitting(taken[:sound], segment_bytes - builder.size_bytes)
                if position is None and sound:
                    # One append has to fit, or it never would.
                    fitting = max(1, fitting)
                    builder.begin(run, taken[0][1], taken[0][2])
                if fitting:
                    columns, bodies = as_columns(taken[:fitting])
                    builder.add_all(columns, bodies)
                    builder.mark()
                    position = columns.end
                if fitting < len(taken):
                    break
        return position is not None

    # ── Recording it ─────────────────────────────────────────────────────────────────────────

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
            for extent, since, to in parts:
                if extent.run in skipped:
                    continue
                if tables.record_extent(write, draft.id, extent, since, to):
                    if not begun:
                        tables.insert_segment(write, draft, now_ms)
                    begun = True
                else:
                    skipped.add(extent.run)
            self.step("before commit")
        recording.done(skipped, begun=begun)
        self.step("committed")
        return True

    def settle(self, recording: Recording) -> None:
        """Bring the ledger up to date with what was recorded, and tidy up what was not."""
        for extent in recording.draft.extents:
            self.look_again(extent.run)
        if not recording.begun:
            (self.directory / recording.draft.name).unlink(missing_ok=True)
        self.made(recording.draft.id)

    def forget(self, due: Sequence[Due]) -> None:
        """There was nothing to seal in these: bring the ledger up to date with that."""
        for one in due:
            self.look_again(one.run)

    def look_again(self, run: int) -> None:
        """Note what of a run is in rows."""
        alive = self.query("SELECT 1 FROM streams WHERE id = ? AND status < 2", (run,))
        found = self.query(
            "SELECT sum(length(body)), min(created_at) FROM ops WHERE stream_id = ?", (run,)
        )
        size, oldest_ms = found[0]
        self.ledger.settle(run, (size, oldest_ms) if alive and size else None)

    # ── Removing files ───────────────────────────────────────────────────────────────────────

    def shrunk(self) -> None:
        """Extents have gone, and maybe the last ones of a file with them."""
        self.has_shrunk = self.has_shrunk_elsewhere = True

    def remove_unused(self, most: int) -> bool:
        """Remove files that nothing lies in any more; True when there may be more of them.

        On the thread that commits. First the file goes and then its row, so that a crash in
        between leaves a row to start over from. What is in object storage is for others to remove.
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
