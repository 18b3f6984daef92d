"""The locations of chunks that were read before, so that they need not be looked up again.

History never changes, and neither does the end of a chunk of it, which depends only on the sizes of
the appends. So the thread that finds a chunk leaves a note here, and the next reader of it needs
neither a thread nor the database. A note holds numbers and no file: if its segment is no longer
open, the note is useless.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Final, NamedTuple

from headwater.core.lineage import Span
from headwater.store.engine.appends import FileRange, Piece
from headwater.store.history.open_segments import OpenSegments
from headwater.store.history.segment import Segment

_NOTES_MAX: Final = 4_096


class _Note(NamedTuple):
    end: int
    is_full: bool
    """Whether the chunk ended because it was full, not because there was no more to read."""
    parts: tuple[tuple[int, int, int], ...]
    """Segment, offset and length of each."""


class ChunkCache:
    def __init__(self, open_segments: OpenSegments) -> None:
        self._segments = open_segments
        self._notes: OrderedDict[tuple[int, int, int], _Note] = OrderedDict()
        self._lock = Lock()

    def note(self, span: Span, max_bytes: int, pieces: Sequence[Piece]) -> None:
        """Record that these pieces are the chunk at the start of a span."""
        parts: list[tuple[int, int, int]] = []
        for piece in pieces:
            if isinstance(piece, bytes) or not isinstance(piece.holder, Segment):
                return
            parts.append((piece.holder.row.id, piece.offset, piece.length))
        end = span.start + sum(map(len, pieces))
        note = _Note(end, end < span.end, tuple(parts))
        with self._lock:
            self._notes[span.run, span.start, max_bytes] = note
            if len(self._notes) > _NOTES_MAX:
                self._notes.popitem(last=False)

    def find(self, span: Span, max_bytes: int) -> list[Piece] | None:
        """A chunk that can be sent at once. Never blocks on a disk or a lock."""
        note = self._notes.get((span.run, span.start, max_bytes))
        if note is None or not (note.end == span.end or (note.is_full and note.end < span.end)):
            return None
        pieces: list[Piece] = []
        for segment_id, offset, length in note.parts:
            segment = self._segments.held(segment_id)
            if segment is None or not segment.is_at_hand(offset, length):
                return None
            pieces.append(FileRange(segment, segment.file, offset, length))
        return pieces
