"""Reading: what is committed, chunk by chunk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from headwater.core import decisions
from headwater.core.errors import HistoryUnavailable, InvalidQuery, StreamError, UnknownOffset
from headwater.core.expiry import FOREVER
from headwater.core.frames import Frame
from headwater.core.limits import Limits
from headwater.core.lineage import Span
from headwater.core.offsets import Anchor, Offset
from headwater.core.retention import locate
from headwater.service.chunks import (
    SENT_BYTES_MIN,
    Chunk,
    known_pieces,
    make_chunk,
    read_bodies,
    read_frames,
    read_pieces,
)
from headwater.service.entries import Entry, View
from headwater.service.history.fetching import Fetching
from headwater.service.registry import Registry
from headwater.service.writer import Writer
from headwater.store.engine import Engine
from headwater.store.engine.streams import DeletedStream, StreamSummary
from headwater.store.history.cold_segments import FetchNeeded

R = TypeVar("R")
_READ_THREADS: Final = 4
_FETCHES_MAX: Final = 200


class ReadingLog:
    """Everything that only reads, and records accesses for streams with a TTL."""

    engine: Engine
    limits: Limits
    clock: Callable[[], int]
    writer: Writer
    _registry: Registry
    _fetching: Fetching

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="headwater-read")

    async def in_thread(self, work: Callable[..., R], *arguments: object) -> R:
        """Query the engine without blocking the loop.

        Data in object storage is fetched first, without holding one of these threads.
        """
        loop = asyncio.get_running_loop()
        for _ in range(_FETCHES_MAX):
            try:
                return await loop.run_in_executor(self._threads, work, *arguments)
            except FetchNeeded as need:
                await self._fetching.bring(need)
        raise HistoryUnavailable("what was fetched was evicted before it could be used; try again")

    @property
    def streams_in_memory(self) -> int:
        return len(self._registry)

    @property
    def hot_bytes(self) -> int:
        return self._registry.hot_bytes

    def ready(self, path: str) -> Entry | None:
        """The stream's entry if it is in memory; otherwise use `entry`."""
        return self._registry.ready(path)

    async def entry(self, path: str) -> Entry:
        return await self._registry.get(path)

    def touch(self, entry: Entry, now_ms: int) -> None:
        """Record an access, which restarts the stream's time to live."""
        state = entry.state
        if state is None or state.config.lifetime.ttl_s is None:
            return
        if state.deleted or state.soft_deleted:
            # It is being deleted, even if readers still see it: its life cannot be extended.
            return
        state.touched_at_ms = max(state.touched_at_ms, now_ms)
        due = decisions.decide_touch(state, now_ms)
        if due is not None:
            # If the queue is full the access still counts; it is stored with the next one.
            with suppress(StreamError):
                self.writer.submit([(entry, due)], None)

    def view(self, entry: Entry) -> View:
        """The committed stream that readers may see now."""
        view, state = entry.require_view(), entry.state
        if (
            state is not None
            # Most streams never expire, and then it does not matter what time it is.
            and state.config.lifetime is not FOREVER
            and state.config.id == view.config.id
            and state.is_expired(self.clock())
        ):
            decisions.require(state, entry.path, self.clock())
        return view

    async def read(self, path: str, offset: Anchor | Offset) -> Chunk:
        """One chunk, starting at an offset."""
        entry = self._registry.ready(path) or await self._registry.get(path)
        chunk = self.read_hot(entry, offset)
        return chunk if chunk is not None else await self.read_cold(entry, offset)

    def read_hot(
        self, entry: Entry, offset: Anchor | Offset, until: Offset | None = None
    ) -> Chunk | None:
        """One chunk without waiting, or None if it has to come from the engine."""
        view = self.view(entry)
        near = locate(view.config, offset, view.tail)
        self.touch(entry, self.clock())
        position = view.hot.boundary(near)
        if until is None:
            return None if position is None else self.chunk_at(view, position)
        end = view.hot.boundary(_end_of_range(view, near, until))
        if position is None or end is None:
            return None
        if position == end:
            return make_chunk(view, position, [])
        return self.chunk_at(view, position, min(self.limits.chunk_bytes_max, end - position))

    def chunk_at(self, view: View, position: int, max_bytes: int | None = None) -> Chunk | None:
        if position == view.tail:
            return make_chunk(view, position, [])
        bodies = view.hot.read(position, max_bytes or self.limits.chunk_bytes_max)
        return None if bodies is None else make_chunk(view, position, bodies)

    def read_known(self, entry: Entry, offset: Anchor | Offset) -> Chunk | None:
        """One chunk of history without waiting, if it was read before and can be sent at once."""
        view = self.view(entry)
        position = locate(view.config, offset, view.tail)
        spans = view.config.lineage.spans(position, view.tail)
        pieces = known_pieces(self.engine, spans, self.limits.chunk_bytes_max)
        if pieces is None or min(map(len, pieces)) < SENT_BYTES_MIN:
            return None
        return make_chunk(view, position, [], pieces, is_history=True)

    async def read_cold(
        self, entry: Entry, offset: Anchor | Offset, max_bytes: int | None = None
    ) -> Chunk:
        """One chunk from the engine, as bodies."""
        view, position, bodies = await self._ask(entry, offset, None, read_bodies, max_bytes)
        return make_chunk(view, position, bodies)

    async def read_pieces(
        self, entry: Entry, offset: Anchor | Offset, until: Offset | None = None
    ) -> Chunk:
        """The same chunk, for callers that can send file ranges without reading them."""
        view, position, found = await self._ask(entry, offset, until, read_pieces)
        pieces, is_history = found
        return make_chunk(view, position, [], pieces, is_history=is_history)

    async def read_frames(
        self, entry: Entry, offset: Anchor | Offset, until: Offset | None, max_bytes: int
    ) -> tuple[View, int, list[Frame]]:
        """Appends with everything known about them, and the position where they begin."""
        return await self._ask(entry, offset, until, read_frames, max_bytes)

    async def _ask(
        self,
        entry: Entry,
        offset: Anchor | Offset,
        until: Offset | None,
        read: Callable[[Engine, list[Span], int], R],
        max_bytes: int | None = None,
    ) -> tuple[View, int, R]:
        """Read from an offset. Only if no append begins there, find the one that contains it."""
        max_bytes = max_bytes or self.limits.chunk_bytes_max
        view, position, end = await self._bounds(entry, offset, until)
        lineage = view.config.lineage
        try:
            spans = lineage.spans(position, end)
            return view, position, await self.in_thread(read, self.engine, spans, max_bytes)
        except UnknownOffset:
            # The data of a stream deleted meanwhile may be gone: if so, report that.
            self.view(entry)
            start = await self.boundary(view, position)
            if start == position:
                raise
        spans = lineage.spans(start, end)
        return view, start, await self.in_thread(read, self.engine, spans, max_bytes)

    async def bounds(
        self, entry: Entry, offset: Anchor | Offset, until: Offset | None
    ) -> tuple[View, int, int]:
        """The append boundaries of a read."""
        view, position, end = await self._bounds(entry, offset, until)
        return view, await self.boundary(view, position), end

    async def _bounds(
        self, entry: Entry, offset: Anchor | Offset, until: Offset | None
    ) -> tuple[View, int, int]:
        """The same, but the first may still lie inside an append."""
        view = self.view(entry)
        position = locate(view.config, offset, view.tail)
        if until is None:
            return view, position, view.tail
        end = await self.boundary(view, _end_of_range(view, position, until))
        return view, min(position, end), end

    async def boundary(self, view: View, position: int) -> int:
        """The position itself, or the start of the append that contains it."""
        if position == view.config.kept_from:
            return position
        start = view.hot.boundary(position)
        if start is None:
            span = view.config.lineage.spans(position, view.tail)[0]
            append = await self.in_thread(self.engine.appends.outline_at, span.run, position)
            if append is None:
                raise UnknownOffset(view.config.lineage.token_at(position))
            start = append.start
        return start

    async def list_streams(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        return await self.in_thread(self.engine.streams.summaries, prefix, after, limit)

    async def list_deleted(self, prefix: str, after: str, limit: int) -> list[DeletedStream]:
        return await self.in_thread(self.engine.streams.deleted, prefix, after, limit)


def _end_of_range(view: View, position: int, until: Offset) -> int:
    end = view.config.lineage.approach(until, view.tail)
    if end < position:
        raise InvalidQuery("until lies before offset; swap them")
    return end
