"""From rows to recorded extents; see the package docstring for the order of steps.

`gather` and everything before it runs on its own thread and touches nothing that a commit needs.
`record` runs between two commits, a bounded slice at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Set
from contextlib import AbstractContextManager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Final

from headwater.store.history.gathering import as_columns, count_fitting, count_sound, in_slices
from headwater.store.history.interleaving import Share, Unsound, add_together, is_worthwhile
from headwater.store.history.ledger import Due, Ledger
from headwater.store.history.open_segments import OpenSegments
from headwater.store.history.segment import Segment
from headwater.store.history.segment_writer import (
    ExtentDraft,
    Mark,
    SegmentBuilder,
    SegmentDraft,
    Step,
    nothing,
)
from headwater.store.rows import Query, Row
from headwater.store.syncing import ensure_directory

# One transaction drops about this much, so that commits are not delayed for long.
_SLICE_APPENDS: Final = 1_000
_SLICE_EXTENTS: Final = 250


class Stopped(Exception):
    """Sealing was told to stop; unfinished work is left as it was."""


class Recording:
    """How far a segment has been recorded."""

    def __init__(
        self, draft: SegmentDraft, cut: Set[int] = frozenset(), *, is_at_its_place: bool = True
    ) -> None:
        self.draft = draft
        self.cut = cut
        """Runs that had more rows than were taken."""
        self.is_at_its_place = is_at_its_place
        """Whether the file is where it will be read. Nothing is recorded before."""
        self.begun = False
        """Whether the database knows the segment."""
        self._left = _parts(draft)
        self.skipped: set[int] = set()
        """Runs whose rows changed since the file was written: deleted meanwhile."""
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
    """In write order: what is adjacent in the database is dropped together.

    Rows of streams written at the same time share pages. Dropping them stream by stream would write
    every page as often as there are streams on it.
    """
    parts: list[tuple[int, Part]] = []
    for extent in draft.extents:
        written_ms = 0
        for since, to in zip((None, *extent.marks), extent.marks, strict=False):
            # Whatever clocks do, the parts of an extent stay in order.
            written_ms = max(written_ms, to.last_at_ms)
            parts.append((written_ms, (extent, since, to)))
    parts.sort(key=itemgetter(0))
    return (part for _, part in parts)


class History(ABC):
    """The history of one database."""

    def __init__(self, directory: Path, query: Query, step: Step = nothing) -> None:
        self.directory = directory
        self.ledger = Ledger()
        self.open_segments = OpenSegments(directory)
        self.stopping = False
        self.making: set[int] = set()
        """Segments that are not fully recorded yet: nothing else may remove or rewrite them."""
        self.damaged: set[int] = set()
        """Segments that could not be read for a rewrite."""
        self.query = query
        self.step = step
        self._has_directory = False

    # ── What there is ────────────────────────────────────────────────────────────────────────

    @property
    @abstractmethod
    def needs_survey(self) -> bool:
        """Whether there are earlier rows that the ledger does not know."""

    @abstractmethod
    def keep_ledger(self) -> None:
        """Start recording commits. On the thread that commits."""

    @abstractmethod
    def survey(self) -> None:
        """Find earlier rows, a part at a time: there may be many."""

    @abstractmethod
    def look_again(self, *runs: int) -> None:
        """Record what some runs have in rows."""

    def forget(self, due: Sequence[Due]) -> None:
        """There was nothing to seal in these: update the ledger."""
        self.look_again(*(one.run for one in due))

    # ── Writing a file ───────────────────────────────────────────────────────────────────────

    def gather(self, due: Sequence[Due], segment_bytes: int) -> Recording | None:
        """Write the rows of some runs into a file that is synced and verified."""
        shares = self._shares(due, segment_bytes)
        if is_worthwhile(shares):
            # If that does not work out, run by run will show why.
            with suppress(Unsound):
                return self._gather_together(shares)
        builder = self.begin_file()
        try:
            cut: set[int] = set()
            for one in due:
                room_bytes = min(one.size_bytes, segment_bytes - builder.size_bytes)
                if self._gather_run(builder, one.run, room_bytes):
                    cut.add(one.run)
                if builder.size_bytes >= segment_bytes:
                    break
            if builder.has_extents:
                return self._recording(self.finish_file(builder), cut)
        except BaseException:
            self.give_up(builder)
            raise
        self.give_up(builder)
        return None

    def _shares(self, due: Sequence[Due], segment_bytes: int) -> list[Share]:
        """What a file would take of each run; none if rows cannot be read in write order."""
        return []

    def _batches(self, shares: Sequence[Share]) -> Iterator[list[Row]]:
        """At least the rows of some shares, in write order, some at a time."""
        raise NotImplementedError

    def _gather_together(self, shares: Sequence[Share]) -> Recording:
        builder = self.begin_file()
        try:
            add_together(builder, shares, self._batches(shares))
            cut = {one.run for one in shares if one.is_cut}
            return self._recording(self.finish_file(builder), cut)
        except BaseException:
            self.give_up(builder)
            raise

    def _recording(self, draft: SegmentDraft, cut: Set[int]) -> Recording:
        return Recording(draft, cut)

    @abstractmethod
    def new_id(self) -> int:
        """For a segment."""

    def ensure_directory(self) -> None:
        if not self._has_directory:
            ensure_directory(self.directory)
            self._has_directory = True

    def begin_file(self) -> SegmentBuilder:
        self.ensure_directory()
        builder = SegmentBuilder(self.directory, self.new_id(), self.step)
        self.making.add(builder.id)
        return builder

    def finish_file(self, builder: SegmentBuilder) -> SegmentDraft:
        """Sync a file, read it back and compare it."""
        draft = builder.finish()
        Segment.open(self.directory / draft.name, draft.row()).check_all()
        self.step("verified")
        return draft

    def give_up(self, builder: SegmentBuilder) -> None:
        """Remove a file that nothing refers to."""
        builder.abandon()
        self.made(builder.id)

    def made(self, segment_id: int) -> None:
        """A segment is fully recorded; by now it may have no extents."""
        self.making.discard(segment_id)

    @abstractmethod
    def _rows_of(self, run: int) -> AbstractContextManager[Iterator[Row]]:
        """The rows of a run, in order; none if its stream is gone."""

    def _gather_run(self, builder: SegmentBuilder, run: int, room_bytes: int) -> bool:
        """Add an extent with the rows of a run, as far as there is room.

        Returns whether there was too little room.
        """
        position: int | None = None
        with self._rows_of(run) as rows:
            for taken in in_slices(rows):
                if self.stopping:
                    raise Stopped
                sound = count_sound(taken, position)
                if sound < len(taken):
                    # Damaged rows stay where they are.
                    self.ledger.bar(run)
                fitting = count_fitting(taken[:sound], room_bytes)
                if position is None and sound:
                    # One append has to fit, or it never would.
                    fitting = max(1, fitting)
                    builder.begin(run, taken[0][1], taken[0][2])
                if fitting:
                    columns, bodies = as_columns(taken[:fitting])
                    builder.add_all(columns, bodies)
                    builder.mark()
                    position = columns.end
                    room_bytes -= len(bodies)
                if fitting < len(taken):
                    return fitting < sound
        return False

    # ── Recording it ─────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def record(self, recording: Recording, now_ms: int) -> bool:
        """Record a slice of a segment and drop the rows it holds; True when there is more.

        On the thread that commits.
        """

    def settle(self, recording: Recording) -> None:
        """Update the ledger with what was recorded, and clean up what was not."""
        looked_at: list[int] = []
        for extent in recording.draft.extents:
            if extent.run in recording.cut - recording.skipped:
                # Counting what is left would take longer than sealing it.
                end = extent.marks[-1]
                self.ledger.seal(extent.run, end.end - extent.start, end.last_at_ms)
            else:
                looked_at.append(extent.run)
        self.look_again(*looked_at)
        if not recording.begun:
            (self.directory / recording.draft.name).unlink(missing_ok=True)
        self.made(recording.draft.id)
