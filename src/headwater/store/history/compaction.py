"""Compaction: merging files that are small or mostly unneeded.

Streams sealed by age leave many short extents, and files with mostly deleted data still take space.
What is needed of such files is written into a new one, the extents of each run in order and joined
where they touch:

1. The new file is written in slices, synced, and read back, exactly as in sealing.
2. The database records the file, with no extents yet. If any of the old ones is in object storage,
   the new one has to be uploaded before the next step, or a catalog could name less than the one
   before it.
3. In transactions of bounded size, extents are moved to the new file. One that was dropped or cut
   off meanwhile stays as it is.
4. The old files are removed like all unused ones: readers that hold them open may finish, and
   objects in object storage stay until no catalog names them.

After a crash at any point each extent is in the old file or in the new one, and a file without
extents is unused. Readers notice nothing: positions and bytes stay the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from headwater.core.errors import DataCorrupt
from headwater.core.limits import KIB
from headwater.store.history import segment_format
from headwater.store.history.cold_segments import fetching
from headwater.store.history.compaction_choice import FileUse, choose
from headwater.store.history.extent import Extent
from headwater.store.history.sealing import History, Stopped
from headwater.store.history.segment import ABSENT, PRESENT, Segment, SegmentRow
from headwater.store.history.segment_writer import SegmentDraft
from headwater.store.sql.extents import ExtentRow, find_segments
from headwater.store.sqlite import segments as tables
from headwater.store.sqlite.history import SqliteHistory

_SLICE_BYTES: Final = 512 * KIB
_SLICE_S: Final = 0.01
_SLICE_APPENDS: Final = 4_096
_SLICE_EXTENTS: Final = 250


class Compacted(NamedTuple):
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def compact(history: SqliteHistory, segment_bytes: int, now_ms: int) -> Compacted:
    """Rewrite everything that is worth it. Nothing else may use the database meanwhile."""
    old: list[SegmentRow] = []
    new: dict[int, SegmentDraft] = {}
    while groups := choose(usable(history), segment_bytes, company=2):
        for files in groups:
            # A new file may still be small, and is then merged into the next one.
            old += [one.row for one in files if not new.pop(one.row.id, None)]
            draft = _rewrite(history, files, now_ms)
            new[draft.id] = draft
    history.shrunk()
    while history.remove_unused(100):
        pass
    return Compacted(
        len(old),
        len(new),
        sum(row.size_bytes for row in old),
        sum(draft.size_bytes for draft in new.values()),
    )


def _rewrite(history: SqliteHistory, files: Sequence[FileUse], now_ms: int) -> SegmentDraft:
    rewriting = Rewriting(history, [one.row for one in files])
    try:
        while rewriting.copy():
            pass
        draft = rewriting.finish()
        rewriting.note(now_ms)
        while rewriting.record():
            pass
    finally:
        rewriting.end()
    return draft


def usable(history: SqliteHistory, *, uploads: bool = True) -> list[FileUse]:
    """Files on this machine that can be rewritten: those in object storage only with `uploads`."""
    left_out = history.making | history.damaged
    return [
        use
        for use in tables.uses(history.query)
        if use.row.id not in left_out and (uploads or use.row.remote == ABSENT)
    ]


class Copying(ABC):
    """Copies what is still needed of some old files into a new one, step by step."""

    def __init__(
        self, history: History, segments: Mapping[int, Segment], extents: Sequence[ExtentRow]
    ) -> None:
        """The segments can be read to the end, even if they are removed."""
        self._history = history
        self._segments = segments
        self._joined = [*_touching(extents)]
        self._builder = history.begin_file()
        self._copying = self._copy()
        self._draft: SegmentDraft | None = None
        self._recorded = 0

    @property
    def draft(self) -> SegmentDraft:
        assert self._draft is not None
        return self._draft

    def copy(self) -> int:
        """Copy a slice and return how many bytes that was; 0 when there is no more."""
        return next(self._copying, 0)

    def _copy(self) -> Iterator[int]:
        began_s, copied = monotonic(), 0
        for touching in self._joined:
            self._builder.begin(touching[0].run, touching[0].start, touching[0].first_message)
            for row in touching:
                for columns, bodies in self._read(row):
                    self._builder.add_all(columns, bodies)
                    copied += len(bodies)
                    if copied >= _SLICE_BYTES or monotonic() - began_s > _SLICE_S:
                        # A little at a time, because a long sync delays those of others.
                        self._builder.sync()
                        yield copied
                        began_s, copied = monotonic(), 0
            self._builder.mark()
        if copied:
            yield copied

    def _read(self, row: ExtentRow) -> Iterator[tuple[segment_format.Columns, bytes]]:
        try:
            segment = self._segments[row.segment_id]
            extent = fetching(partial(segment.extent, row.index_offset))
            number = 0
            while number < row.appends:
                if self._history.stopping:
                    raise Stopped
                stop = fetching(partial(_end_of_slice, extent, number, row.appends))
                columns = fetching(partial(extent.columns, number, stop))
                yield columns, fetching(partial(extent.body, columns.starts[0], columns.end))
                number = stop
        except DataCorrupt:
            # It stays as it is; reads and `verify` will report it.
            self._history.damaged.add(row.segment_id)
            raise

    def finish(self) -> SegmentDraft:
        """Sync the file, read it back and compare it."""
        self._draft = self._history.finish_file(self._builder)
        return self._draft

    def next_slice(self) -> int:
        """Where to stop moving extents in one transaction."""
        stop, extents = self._recorded, 0
        while stop < len(self._joined) and extents < _SLICE_EXTENTS:
            extents += len(self._joined[stop])
            stop += 1
        return stop

    @abstractmethod
    def end(self) -> None:
        """Nothing more will be recorded."""


class Rewriting(Copying):
    """A new file out of some old ones, in the history of a SQLite database."""

    _history: SqliteHistory

    def __init__(self, history: SqliteHistory, files: Sequence[SegmentRow]) -> None:
        """Raises FileNotFoundError if one of the files is gone."""
        segments = {row.id: history.open_segments.segment(row) for row in files}
        super().__init__(history, segments, tables.extents_of(history.query, segments))
        self._noted = False

    def note(self, now_ms: int) -> None:
        """Record the file in the database. On the thread that commits, like `record`."""
        with self._history.transaction() as write:
            if not tables.has_segment(write, self.draft.id):
                tables.insert_segment(write, self.draft, now_ms)
        self._noted = True
        self._history.step("noted")

    def is_awaited(self) -> bool:
        """Whether the file has to be uploaded first and is not."""
        query = self._history.query
        (row,) = find_segments(query, "id = ?", (self.draft.id,))
        return row.remote != PRESENT and tables.are_elsewhere(query, self._segments)

    def record(self, *, uploads: bool = False) -> bool:
        """Move some extents to the new file; True when there is more.

        With `uploads`, nothing is done until the new file is in object storage.
        """
        stop = self.next_slice()
        with self._history.transaction() as write:
            if uploads and self.is_awaited():
                return True
            for number in range(self._recorded, stop):
                tables.move_extents(
                    write, self._joined[number], self.draft.id, self.draft.extents[number]
                )
            self._history.step("before moving")
        # If that failed, the same is tried again: extents already moved are then left as they are.
        self._recorded = stop
        self._history.step("moved")
        return stop < len(self._joined)

    def end(self) -> None:
        """Nothing more will be recorded."""
        self._segments = {}
        if self._noted:
            self._history.made(self.draft.id)
        else:
            self._history.give_up(self._builder)


def _touching(extents: Sequence[ExtentRow]) -> Iterator[list[ExtentRow]]:
    """Extents that touch, to be joined into one."""
    touching: list[ExtentRow] = []
    for row in extents:
        if touching and (touching[-1].run, touching[-1].until) != (row.run, row.start):
            yield touching
            touching = []
        touching.append(row)
    if touching:
        yield touching


def _end_of_slice(extent: Extent, first: int, stop: int) -> int:
    """Where to stop with appends from this one on; at least after it."""
    limit = extent.start_of(first) + _SLICE_BYTES
    if stop - first <= _SLICE_APPENDS and extent.start_of(stop) <= limit:
        return stop
    numbers = range(first, min(stop, first + _SLICE_APPENDS))
    return max(first + 1, first + bisect_right(numbers, limit, key=extent.start_of))
