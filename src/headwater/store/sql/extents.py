"""Where the data of a run is in segments; see `headwater.store.history`."""

from __future__ import annotations

from typing import Final, NamedTuple

from headwater.core.lineage import Span
from headwater.store.engine.appends import SealedExtent
from headwater.store.history.open_segments import OpenSegments
from headwater.store.history.segment import SegmentRow
from headwater.store.history.segment_writer import ExtentDraft, Mark
from headwater.store.rows import Query

SEGMENT_COLUMNS: Final = "id, name, size, root, local, remote"
EXTENT_COLUMNS: Final = (
    "run, start, until, appends, first_message, messages, first_at, last_at, segment_id,"
    " index_offset"
)
_FOUND: Final = (
    "SELECT e.start, e.until, e.index_offset, s.id, s.name, s.size, s.root, s.local, s.remote"
    " FROM extents e JOIN segments s ON s.id = e.segment_id"
)


class ExtentRow(NamedTuple):
    """A row of EXTENT_COLUMNS."""

    run: int
    start: int
    until: int
    appends: int
    first_message: int
    messages: int
    first_at_ms: int
    last_at_ms: int
    segment_id: int
    index_offset: int


class FoundExtent(NamedTuple):
    """A span of a run and where it is stored."""

    start: int
    until: int
    index_offset: int
    segment: SegmentRow


def extent_at(query: Query, run: int, position: int) -> FoundExtent | None:
    """The extent that holds the byte after a position."""
    found = query(
        f"{_FOUND} WHERE e.run = ? AND e.start <= ? ORDER BY e.start DESC LIMIT 1", (run, position)
    )
    if not found or found[0][1] <= position:
        return None
    start, until, index_offset, *segment = found[0]
    return FoundExtent(start, until, index_offset, SegmentRow(*segment))


def sealed_extents(query: Query, span: Span, open_segments: OpenSegments) -> list[SealedExtent]:
    """The parts of a span that are in files."""
    found = query(
        f"{_FOUND} WHERE e.run = ? AND e.until > ? AND e.start < ? ORDER BY e.start", span
    )
    parts: list[SealedExtent] = []
    for start, until, index_offset, *columns in found:
        row = SegmentRow(*columns)
        place = max(start, span.start), min(until, span.end)
        about = row.name, row.size_bytes, row.root, index_offset
        parts.append(SealedExtent(*place, *about, *open_segments.locations(row)))
    return parts


def find_segments(
    query: Query, condition: str, values: tuple[object, ...] = ()
) -> list[SegmentRow]:
    """Segments by a condition on `segments s`, oldest first."""
    found = query(f"SELECT {SEGMENT_COLUMNS} FROM segments s WHERE {condition} ORDER BY id", values)
    return [SegmentRow(*row) for row in found]


def extent_row(segment_id: int, extent: ExtentDraft, to: Mark) -> ExtentRow:
    """An extent up to a mark."""
    return ExtentRow(
        extent.run,
        extent.start,
        to.end,
        to.appends,
        extent.first_message,
        to.messages,
        extent.first_at_ms,
        to.last_at_ms,
        segment_id,
        extent.index_offset,
    )
