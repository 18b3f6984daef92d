"""Reads of another node's streams, as far as they can be answered here.

History in object storage is accessible to every node and never changes. What changes is whether it
may still be read: its stream can be deleted, replaced, hidden or trimmed. So every read checks the
stream's row. The owner commits before it acknowledges, so no acknowledged change is missed.

But the database has a change a moment before the owner shows it, and a client that reads here first
and at the owner next must not go back in time. So anything that an unseen change could have moved
is left to the owner: the end of a stream, unless it was seen closed a while ago, and the beginning
of a trimmed one. So is a stream that expires by itself, because the owner keeps that time.
"""

from __future__ import annotations

from time import monotonic
from typing import Final, TypeVar

from headwater.core.errors import StreamError, UnknownOffset
from headwater.core.lineage import Span
from headwater.core.offsets import Anchor, Offset
from headwater.core.retention import locate
from headwater.service.chunks import Chunk, known_pieces, make_chunk, read_pieces, sendable
from headwater.service.entries import View
from headwater.service.hot_tail import HeldBytes
from headwater.service.reading import ReadingLog
from headwater.store.engine import Engine

K = TypeVar("K")
V = TypeVar("V")
_LOOK_AGAIN_S: Final = 10.0
_NOTES_MAX: Final = 10_000


class SealedReads:
    def __init__(self, log: ReadingLog, settled_s: float) -> None:
        self._log = log
        self._settled_s = settled_s
        """After this long an owner shows what it has committed, or nothing at all."""
        self._unsealed: dict[str, tuple[int, float]] = {}
        """From which position on a stream has nothing for us, and until when that is assumed, so
        that followers of a stream need not query the database first each time.
        """
        self._closed: dict[int, float] = {}
        """When each stream was first seen closed, by id."""

    def may_have(self, path: str, offset: Anchor | Offset) -> bool:
        """Whether it is worth trying."""
        position, until_s = self._unsealed.get(path, (0, 0.0))
        return _position(offset) < position or monotonic() >= until_s

    async def read(self, path: str, offset: Anchor | Offset) -> Chunk | None:
        """The chunk that the owner would answer with; None if only the owner can say."""
        log = self._log
        try:
            most = log.limits.chunk_bytes_max
            chunk = await log.in_thread(_read, log.engine, path, offset, most)
        except StreamError:
            # Leave it to the owner: it knows the reason, or newer data.
            return None
        if chunk is None or (chunk.up_to_date and not self._is_settled(chunk)):
            _note(self._unsealed, path, (_position(offset), monotonic() + _LOOK_AGAIN_S))
            return None
        return chunk

    def _is_settled(self, chunk: Chunk) -> bool:
        if not chunk.closed:
            return False
        now_s, stream_id = monotonic(), chunk.config.id
        if stream_id not in self._closed:
            _note(self._closed, stream_id, now_s)
        return now_s - self._closed[stream_id] >= self._settled_s


def _read(engine: Engine, path: str, offset: Anchor | Offset, max_bytes: int) -> Chunk | None:
    """Runs on a thread. If the data was read before, only the row is queried."""
    state = engine.streams.look(path)
    if state is None or state.soft_deleted or not state.config.lifetime.is_forever:
        return None
    config, tail = state.config, state.tail
    position = locate(config, offset, tail)
    if position == config.kept_from > 0:
        raise UnknownOffset(config.lineage.token_at(position))
    if position == tail:
        return None
    spans = config.lineage.spans(position, tail)
    known = known_pieces(engine, spans, max_bytes)
    if known is not None:
        pieces = sendable(known)
    else:
        near = config.lineage.spans(position, min(tail, position + max_bytes))
        if not all(_is_sealed(engine, span) for span in near):
            return None
        pieces, is_history = read_pieces(engine, spans, max_bytes)
        if not is_history:
            return None
    return make_chunk(View(state, HeldBytes()), position, [], pieces, is_history=True)


def _is_sealed(engine: Engine, span: Span) -> bool:
    position = span.start
    for part in engine.appends.sealed_extents(span):
        if part.start > position:
            return False
        position = part.end
    return position == span.end


def _position(offset: Anchor | Offset) -> int:
    return offset.position if isinstance(offset, Offset) else 0


def _note(notes: dict[K, V], key: K, value: V) -> None:
    if len(notes) >= _NOTES_MAX:
        notes.clear()
    notes[key] = value
