"""A stream that is followed for as long as it is the same stream.

A path can be deleted and given to another stream while someone follows it. Every follower (live
readers over HTTP, subscribers in this process, live queries, consumer groups) holds a
`FollowedStream`, which knows whether the stream still exists, whether it is "not found" or "gone",
what comes after a position, and when something changes. Nothing else compares stream ids.

The stream may be another node's: then the entry is a mirror (`headwater.cluster.mirrors`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from headwater.core.errors import StreamError
from headwater.service.chunks import Chunk
from headwater.service.entries import Entry, Listener, View
from headwater.service.reading import ReadingLog


class Update:
    """What has become readable: from one position to the tail at one moment."""

    __slots__ = ("chunks", "closed", "end", "shared")

    def __init__(self, chunks: list[Chunk]) -> None:
        self.chunks = chunks
        # Every reader asks for these.
        self.end = chunks[-1].end
        self.closed = chunks[-1].closed
        self.shared: Any = None
        """The form that the first reader encoded, for the others to reuse."""


class FollowedStream:
    __slots__ = ("_log", "config", "entry")

    def __init__(self, log: ReadingLog, entry: Entry, view: View) -> None:
        self._log = log
        self.entry = entry
        self.config = view.config

    @property
    def id(self) -> int:
        return self.config.id

    @property
    def path(self) -> str:
        return self.entry.path

    @property
    def view(self) -> View | None:
        """The committed stream, or None once it is deleted or replaced."""
        return self.entry.shown(self.config.id)

    def missing(self) -> StreamError:
        """Why it can no longer be followed."""
        return self.entry.missing()

    def listen(self, listener: Listener) -> None:
        """Subscribe to changes. The stream stays in memory while it has listeners."""
        self.entry.listeners.add(listener)

    def stop_listening(self, listener: Listener) -> None:
        self.entry.listeners.discard(listener)

    def token(self, position: int) -> str:
        return self.config.lineage.token_at(position)

    def chunk_at(self, position: int, max_bytes: int | None = None) -> Chunk | None:
        """What comes after a position, if it is in memory."""
        view = self.view
        return None if view is None else self._log.chunk_at(view, position, max_bytes)

    async def read(self, position: int, max_bytes: int | None = None) -> Chunk:
        """What comes after a position, wherever it is stored."""
        chunk = self.chunk_at(position, max_bytes)
        if chunk is not None:
            return chunk
        if self.view is None:
            raise self.missing()
        try:
            offset = self.config.lineage.offset_at(position)
            return await self._log.read_cold(self.entry, offset, max_bytes)
        except StreamError:
            if self.view is None:
                raise self.missing() from None
            raise

    async def catch_up(self, position: int) -> AsyncIterator[Chunk]:
        """Chunk after chunk up to the tail; at the tail, an empty one."""
        while True:
            chunk = await self.read(position)
            position = chunk.end
            yield chunk
            if chunk.up_to_date:
                return
