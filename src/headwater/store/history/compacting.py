"""Compaction: several files that are small, or that hardly anyone needs, become one.

Streams that are sealed by age leave many short extents, and files in which most was deleted since
still take their space. Compaction writes what is needed of such files into new ones, the extents of
each run behind each other and joined where they touch. The new file is synced and verified before
one transaction lets the extents point there, and then the old files go as all unused ones do.
Readers notice nothing: positions and bytes stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headwater.store import history_tables as tables
from headwater.store.history.building import SegmentBuilder, SegmentDraft
from headwater.store.history.sealing import History
from headwater.store.history.segment import Segment, SegmentRow
from headwater.store.history_tables import EXTENT_COLUMNS, ExtentRow


class Compacted(NamedTuple):
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def compact(history: History, segment_bytes: int, now_ms: int) -> Compacted:
    """Rewrite what is worth it. Nobody else may be sealing or removing meanwhile."""
    chosen = choose(history, segment_bytes)
    files = size = 0
    for batch in _batches(history, chosen, segment_bytes):
        draft = _rewrite(history, batch, now_ms)
        files, size = files + 1, size + draft.size_bytes
    history.shrunk()
    while history.remove_unused(100):
        pass
    return Compacted(len(chosen), files, sum(row.size_bytes for row in chosen), size)


def choose(history: History, segment_bytes: int) -> list[SegmentRow]:
    """Files on this machine that are small, or of which less than half is needed."""
    found = history.query(
        f"SELECT {', '.join(f's.{name}' for name in tables.SEGMENT_COLUMNS.split(', '))}"
        " FROM segments s JOIN extents e ON e.segment_id = s.id WHERE s.local = 1 GROUP BY s.id"
        " HAVING s.size < ?1 / 2 OR sum(e.until - e.start) < s.size / 2 ORDER BY s.id",
        (segment_bytes,),
    )
    rows = [SegmentRow(*row) for row in found]
    # One alone would only be copied, unless there is something to gain.
    wasteful = [row for row in rows if row.size_bytes >= segment_bytes // 2]
    return rows if len(rows) > 1 or wasteful else []


def _batches(
    history: History, chosen: list[SegmentRow], segment_bytes: int
) -> Iterator[list[ExtentRow]]:
    """The extents of these files, by run and position, in portions for one file each."""
    ids = {row.id for row in chosen}
    batch: list[ExtentRow] = []
    size = 0
    for row in history.query(f"SELECT {EXTENT_COLUMNS} FROM extents ORDER BY run, start", ()):
        extent = ExtentRow(*row)
        if extent.segment_id not in ids:
            continue
        length = extent.until - extent.start
        if batch and size + length > segment_bytes:
            yield batch
            batch, size = [], 0
        batch.append(extent)
        size += length
    if batch:
        yield batch


def _rewrite(history: History, batch: list[ExtentRow], now_ms: int) -> SegmentDraft:
    builder = SegmentBuilder(history.directory, history.take_id(), history.step)
    try:
        position: tuple[int, int] | None = None
        for row in batch:
            if (row.run, row.start) != position:
                builder.begin(row.run, row.start, row.first_message)
            _copy(history, row, builder)
            position = row.run, row.until
        draft = builder.finish()
    except BaseException:
        builder.abandon()
        raise
    made = SegmentRow(draft.id, draft.name, draft.size_bytes, draft.root)
    Segment.open(history.directory / draft.name, made).check_all()
    history.step("verified")
    with history.transaction() as write:
        for row in batch:
            tables.drop_extent(write, row.run, row.start)
        tables.insert_segment(write, draft, now_ms)
        for extent in draft.extents:
            tables.insert_extent(write, draft.id, extent, extent.marks[-1])
        history.step("before commit")
    history.step("committed")
    return draft


def _copy(history: History, row: ExtentRow, builder: SegmentBuilder) -> None:
    (segment,) = tables.find_segments(history.query, "id = ?", (row.segment_id,))
    extent = history.shelf.segment(segment).extent(row.index_offset)
    for number in range(row.appends):
        append, after = extent.append(number), number + 1
        messages = extent.first_message(after) - append.first_message
        builder.add(append, extent.body(append.start, extent.start_of(after)), messages)
    builder.mark()
