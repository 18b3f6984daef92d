"""The appends of a run, wherever they are: in rows of the database or in extents.

Sealing moves appends from rows to extents and never back. So looking for a position first in the
rows and then in the extents always finds it, whatever is being sealed meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from headwater.core.errors import DataCorrupt, UnknownOffset
from headwater.core.frames import Frame
from headwater.core.lineage import Span
from headwater.core.offsets import format_offset
from headwater.core.stream import Appended
from headwater.store import rows
from headwater.store.engine.appends import Outline, Piece, SealedExtent, SeekBy
from headwater.store.history.chunk_cache import ChunkCache
from headwater.store.history.extent import Extent
from headwater.store.history.open_segments import OpenSegments
from headwater.store.rows import OP_COLUMNS, Query
from headwater.store.seeking import last_before
from headwater.store.sql.extents import FoundExtent, extent_at, sealed_extents

P = TypeVar("P", bytes, Piece)
_TRIES: Final = 3
_EXTENT_KEYS: Final[dict[SeekBy, str]] = {"first_message": "first_message", "at_ms": "first_at"}


class StoredAppends(ABC):
    def __init__(self, query: Query, open_segments: OpenSegments) -> None:
        self._query = query
        self._segments = open_segments
        self._known = ChunkCache(open_segments)

    # ── Bodies ───────────────────────────────────────────────────────────────────────────────

    def read(self, span: Span, max_bytes: int) -> list[bytes]:
        return self._gather(span, max_bytes, Extent.bodies)

    def read_pieces(self, span: Span, max_bytes: int) -> list[Piece]:
        pieces = self._gather(span, max_bytes, _range)
        self._known.note(span, max_bytes, pieces)
        return pieces

    def known_pieces(self, span: Span, max_bytes: int) -> list[Piece] | None:
        return self._known.find(span, max_bytes)

    def _gather(
        self, span: Span, max_bytes: int, take: Callable[[Extent, int, int], Sequence[P]]
    ) -> list[P]:
        """Appends from the start of a span on. Where they end depends only on their sizes."""
        found: list[P] = []
        position, limit = span.start, span.start + max_bytes
        while position < span.end:
            in_rows = self._rows(span._replace(start=position), limit, at_least_one=not found)
            if in_rows is not None:
                # Nothing follows the rows of a run.
                found += in_rows
                break
            sealed = self._extent(span.run, position)
            if sealed is None:
                break
            row, extent = sealed
            number = extent.number_at(position)
            if extent.start_of(number) != position:
                raise UnknownOffset(format_offset(span.run, position))
            stop = extent.cut(position, limit, row.until)
            if stop == position and not found:
                stop = extent.start_of(number + 1)
            if stop > position:
                found += take(extent, position, min(stop, span.end))
            position = stop
            if stop < row.until or stop >= limit:
                break
        if not found:
            raise UnknownOffset(format_offset(span.run, span.start))
        return found

    @abstractmethod
    def _rows(self, span: Span, limit: int, *, at_least_one: bool) -> list[bytes] | None:
        """Bodies from rows, the last one cut at the span's end; None if no row begins there."""

    def _extent(self, run: int, position: int) -> tuple[FoundExtent, Extent] | None:
        """The extent that holds a position."""
        for _ in range(_TRIES):
            found = extent_at(self._query, run, position)
            if found is None:
                return None
            try:
                extent = self._segments.segment(found.segment).extent(found.index_offset)
            except FileNotFoundError:
                # The data may have just moved to another file.
                continue
            header = extent.header
            if (header.run, header.start) != (run, found.start) or header.end < found.until:
                raise extent.segment.damaged(f"it does not hold stream {run} at {position}")
            return found, extent
        raise DataCorrupt(f"the file of stream {run} at {position} is missing")

    def frames(self, span: Span, max_bytes: int, max_messages: int) -> list[Frame]:
        """Appends from the start of a span on, whose bodies `read` returns."""
        found: list[Frame] = []
        position, limit = span.start, span.start + max_bytes
        while position < span.end and (not found or (position < limit and max_messages > 0)):
            rest = span._replace(start=position)
            appends = self._whole_rows(rest, limit - position, max_messages)
            if appends:
                frame = Frame.of(appends, span.end)
            else:
                sealed = self._extent(span.run, position)
                if sealed is None:
                    break
                row, extent = sealed
                frame = extent.frame(position, min(row.until, span.end), limit, max_messages)
            if found and frame.messages > max_messages:
                break
            found.append(frame)
            position = frame.end
            max_messages -= frame.messages
        if not found:
            raise UnknownOffset(format_offset(span.run, span.start))
        return found

    @abstractmethod
    def _whole_rows(self, span: Span, max_bytes: int, max_messages: int) -> list[Appended]:
        """Appends in rows; none if no row begins there."""

    def sealed_extents(self, span: Span) -> list[SealedExtent]:
        return sealed_extents(self._query, span, self._segments)

    # ── Single appends ───────────────────────────────────────────────────────────────────────

    def append_at(self, run: int, position: int) -> Appended | None:
        append = self._row_at(run, position)
        if append is not None:
            return append
        sealed = self._extent(run, position)
        return sealed[1].appended(sealed[1].number_at(position)) if sealed else None

    def outline_at(self, run: int, position: int) -> Outline | None:
        outline = self._row_outline_at(run, position)
        sealed = None if outline is not None else self._extent(run, position)
        if sealed is None:
            return outline
        extent = sealed[1]
        number = extent.number_at(position)
        append = extent.append(number)
        end = extent.start_of(number + 1)
        return Outline(append.start, end, append.first_message, append.at_ms)

    def _row_at(self, run: int, position: int) -> Appended | None:
        found = self._query(
            f"SELECT {OP_COLUMNS} FROM ops WHERE stream_id = ? AND start <= ?"
            " ORDER BY start DESC LIMIT 1",
            (run, position),
        )
        if not found:
            return None
        if not rows.op_is_intact(found[0]):
            raise DataCorrupt(f"stream {run} at {found[0][1]}")
        append = rows.read_op(found[0])
        return append if position < append.end else None

    def _row_outline_at(self, run: int, position: int) -> Outline | None:
        found = self._query(
            "SELECT start, start + length(body), first_message, created_at FROM ops"
            " WHERE stream_id = ? AND start <= ? ORDER BY start DESC LIMIT 1",
            (run, position),
        )
        return Outline(*found[0]) if found and position < found[0][1] else None

    def seek(self, span: Span, by: SeekBy, value: int) -> Appended | None:
        interval = self._narrow(span, by, value)
        found = last_before(self.outline_at, span.run, interval, by, value)
        return self.append_at(span.run, found.start) if found else None

    def _narrow(self, span: Span, by: SeekBy, value: int) -> tuple[int, int]:
        """The part of a span that can hold the answer, according to the extents' rows.

        In one query: an extent that appeared between two would seem to follow the answer.
        """
        ((last, following),) = self._query(
            "WITH last AS (SELECT (SELECT start FROM extents"
            f" WHERE run = ? AND start >= ? AND start < ? AND {_EXTENT_KEYS[by]} <= ?"
            " ORDER BY start DESC LIMIT 1) AS start)"
            " SELECT last.start, (SELECT min(e.start) FROM extents e"
            " WHERE e.run = ? AND e.start > coalesce(last.start, ?) AND e.start < ?) FROM last",
            (*span, value, span.run, span.start - 1, span.end),
        )
        low = span.start if last is None else last
        return low, span.end if following is None else following


def _range(extent: Extent, start: int, end: int) -> list[Piece]:
    return [extent.range(start, end)]
