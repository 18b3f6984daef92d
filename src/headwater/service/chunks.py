"""Chunks: what one read returns, gathered span by span. Engine queries run on a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from headwater.core.frames import Frame
from headwater.core.limits import KIB
from headwater.core.lineage import Span
from headwater.core.stream import StreamConfig
from headwater.service.entries import View
from headwater.store.engine import Engine
from headwater.store.engine.appends import FileRange, Piece

P = TypeVar("P", bytes, Piece)
Read = Callable[[Span, int], list[P]]
# The cost of a message in a bulk answer on top of its own bytes.
MESSAGE_BYTES: Final = 64
# Smaller file ranges are read at once: that is less work than sending them separately.
SENT_BYTES_MIN: Final = 32 * KIB


class Chunk(msgspec.Struct, frozen=True):
    """A part of a stream as a reader gets it: whole appends, in stored form."""

    config: StreamConfig
    start: int
    end: int
    bodies: list[bytes]
    up_to_date: bool
    closed: bool
    """The stream is closed and this chunk reaches its end."""
    pieces: list[Piece] | None = None
    """Replaces the bodies, if requested: their bytes, some of them still in files."""
    is_history: bool = False
    """None of this chunk is in rows any more. Only set for a chunk in pieces."""

    @property
    def is_empty(self) -> bool:
        return self.start == self.end

    @property
    def next_offset(self) -> str:
        return self.config.lineage.token_at(self.end)


def read_bodies(engine: Engine, spans: list[Span], max_bytes: int) -> list[bytes]:
    return _read_spans(engine.appends.read, spans, max_bytes)


def read_pieces(engine: Engine, spans: list[Span], max_bytes: int) -> tuple[list[Piece], bool]:
    """Pieces, and whether all of them are history. Small file ranges are read at once."""
    pieces = _read_spans(engine.appends.read_pieces, spans, max_bytes)
    is_history = not any(isinstance(piece, bytes) for piece in pieces)
    return sendable(pieces), is_history


def sendable(pieces: list[Piece]) -> list[Piece]:
    return [
        piece.read() if isinstance(piece, FileRange) and len(piece) < SENT_BYTES_MIN else piece
        for piece in pieces
    ]


def known_pieces(engine: Engine, spans: list[Span], max_bytes: int) -> list[Piece] | None:
    """The same pieces without a database query, if they were read before."""
    first = spans[0]
    pieces = engine.appends.known_pieces(first, max_bytes)
    if pieces is None:
        return None
    size = sum(map(len, pieces))
    if len(spans) > 1 and size == first.end - first.start and size < max_bytes:
        # There is room for some of what comes after the seam.
        return None
    return pieces


def read_frames(engine: Engine, spans: list[Span], max_bytes: int) -> list[Frame]:
    """Frames up to a limit. Each message counts more than its bytes, because its metadata takes
    more room than a small message.
    """
    found: list[Frame] = []
    max_messages = max_bytes // MESSAGE_BYTES
    for span in spans:
        if found and (max_bytes <= 0 or max_messages <= 0):
            break
        part = engine.appends.frames(span, max_bytes, max_messages)
        if found and part[0].messages > max_messages:
            break
        found += part
        max_bytes -= part[-1].end - span.start
        max_messages -= sum(frame.messages for frame in part)
        if part[-1].end < span.end:
            break
    return found


def _read_spans(read: Read[P], spans: list[Span], max_bytes: int) -> list[P]:
    """Appends of one span after the other, until the limit would be exceeded."""
    found: list[P] = []
    for span in spans:
        part = read(span, max_bytes)
        size = sum(map(len, part))
        if found and size > max_bytes:
            break
        found += part
        max_bytes -= size
        if size < span.end - span.start or max_bytes <= 0:
            break
    return found


def make_chunk(
    view: View,
    start: int,
    bodies: list[bytes],
    pieces: list[Piece] | None = None,
    *,
    is_history: bool = False,
) -> Chunk:
    end = start + sum(map(len, bodies if pieces is None else pieces))
    up_to_date = end == view.tail
    closed = view.closed and up_to_date
    return Chunk(view.config, start, end, bodies, up_to_date, closed, pieces, is_history)
