"""The reading half of the log: what is committed, chunk by chunk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from headwater.core import decisions
from headwater.core.errors import StreamError, UnknownOffset
from headwater.core.limits import Limits
from headwater.core.lineage import Span
from headwater.core.offsets import Anchor, Offset
from headwater.core.stream import Appended, StreamConfig
from headwater.service.entries import Entry, Registry, View
from headwater.service.writer import Writer
from headwater.store.engine import Engine, SeekBy, StreamSummary

R = TypeVar("R")
_READ_THREADS: Final = 4


class Chunk(msgspec.Struct, frozen=True):
    """A piece of a stream as a reader gets it: whole appends, in stored form."""

    config: StreamConfig
    start: int
    end: int
    bodies: list[bytes]
    up_to_date: bool
    closed: bool
    """The stream is closed and this chunk reaches its end."""

    @property
    def next_offset(self) -> str:
        return str(self.config.lineage.offset_at(self.end))


class ReadingLog:
    """Everything that only looks, and the notes of having looked that a TTL needs."""

    engine: Engine
    limits: Limits
    clock: Callable[[], int]
    writer: Writer
    _registry: Registry

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="headwater-read")

    async def in_thread(self, work: Callable[..., R], *arguments: object) -> R:
        """Ask the engine something without holding up the loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)

    @property
    def streams_in_memory(self) -> int:
        return len(self._registry)

    @property
    def hot_bytes(self) -> int:
        return self._registry.hot_bytes

    def ready(self, path: str) -> Entry | None:
        """The stream's entry if it is in memory; without it, use `entry`."""
        return self._registry.ready(path)

    async def entry(self, path: str) -> Entry:
        return await self._registry.get(path)

    def touch(self, entry: Entry, now_ms: int) -> None:
        """Note an access, which starts the stream's time to live again."""
        state = entry.state
        if state is None or state.config.lifetime.ttl_s is None:
            return
        if state.deleted or state.soft_deleted:
            # On its way out, even if readers still see it: there is no life to lengthen any more.
            return
        state.touched_at_ms = max(state.touched_at_ms, now_ms)
        due = decisions.decide_touch(state, now_ms)
        if due is not None:
            # If the queue is full the access still counts; its note is written with the next one.
            with suppress(StreamError):
                self.writer.submit([(entry, due)], None).add_done_callback(_ignore)

    def view(self, entry: Entry) -> View:
        """The committed stream that readers may see now."""
        view, state = entry.require_view(), entry.state
        if (
            state is not None
            and state.config.id == view.config.id
            and state.is_expired(self.clock())
        ):
            decisions.require(state, entry.path, self.clock())
        return view

    async def read(self, path: str, offset: Anchor | Offset) -> Chunk:
        """One chunk from an offset on."""
        entry = self._registry.ready(path) or await self._registry.get(path)
        chunk = self.read_hot(entry, offset)
        return chunk if chunk is not None else await self.read_cold(entry, offset)

    def read_hot(self, entry: Entry, offset: Anchor | Offset) -> Chunk | None:
        """One chunk without waiting, or None when it has to come from the engine."""
        view = self.view(entry)
        position = view.config.lineage.locate(offset, view.tail)
        self.touch(entry, self.clock())
        return self.chunk_at(view, position)

    def chunk_at(self, view: View, position: int, max_bytes: int | None = None) -> Chunk | None:
        if position == view.tail:
            return _chunk(view, position, [])
        bodies = view.hot.read(position, max_bytes or self.limits.chunk_bytes_max)
        return None if bodies is None else _chunk(view, position, bodies)

    async def read_cold(
        self, entry: Entry, offset: Anchor | Offset, max_bytes: int | None = None
    ) -> Chunk:
        view = self.view(entry)
        position = view.config.lineage.locate(offset, view.tail)
        spans = view.config.lineage.spans(position, view.tail)
        try:
            bodies = await self.in_thread(
                _read_spans, self.engine, spans, max_bytes or self.limits.chunk_bytes_max
            )
        except UnknownOffset:
            # Data of a stream that was deleted meanwhile may be gone: say that, if it is so.
            self.view(entry)
            raise
        return _chunk(view, position, bodies)

    async def find_last(self, path: str, count: int) -> tuple[Offset, int]:
        """Where the last messages begin: an offset, and how many messages to skip behind it."""
        entry = await self._registry.get(path)
        view = self.view(entry)
        start, skip = await self.find_message(view, max(0, view.messages - count))
        return view.config.lineage.offset_at(start), skip

    async def find_message(self, view: View, number: int) -> tuple[int, int]:
        """Where a message is: the position of its append, and its place in that."""
        found = await self._seek(view, "first_message", number)
        if found is None or number >= view.messages:
            return view.tail, 0
        append, _ = found
        return append.start, number - append.first_message

    async def find_time(self, path: str, at_ms: int) -> Offset:
        """The offset behind which nothing is older than a moment."""
        entry = await self._registry.get(path)
        view = self.view(entry)
        found = await self._seek(view, "at_ms", at_ms - 1)
        if found is None:
            return view.config.lineage.offset_at(0)
        append, span = found
        # A fork may inherit only the first part of an append.
        return view.config.lineage.offset_at(min(append.end, span.end))

    async def message_number(self, entry: Entry, position: int) -> int:
        """The number of the message that begins at a position, which must begin an append."""
        append = await self._append_at(entry, position)
        if append.start != position:
            raise UnknownOffset(str(self.view(entry).config.lineage.offset_at(position)))
        return append.first_message

    async def written_at(self, entry: Entry, position: int) -> int:
        """When the append at a position was written."""
        return (await self._append_at(entry, position)).at_ms

    async def _append_at(self, entry: Entry, position: int) -> Appended:
        view = self.view(entry)
        span = view.config.lineage.spans(position, view.tail)[0]
        append = await self.in_thread(self.engine.append_at, span.run, position)
        if append is None:
            raise UnknownOffset(str(view.config.lineage.offset_at(position)))
        return append

    async def _seek(self, view: View, by: SeekBy, value: int) -> tuple[Appended, Span] | None:
        for span in reversed(view.config.lineage.spans(0, view.tail)):
            append = await self.in_thread(self.engine.seek, span, by, value)
            if append is not None:
                return append, span
        return None

    async def list_streams(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        return await self.in_thread(self.engine.list_streams, prefix, after, limit)


def _read_spans(engine: Engine, spans: list[Span], max_bytes: int) -> list[bytes]:
    """Appends across the pieces of a range, until the limit would be passed."""
    bodies: list[bytes] = []
    for span in spans:
        part = engine.read(span, max_bytes)
        size = sum(map(len, part))
        if bodies and size > max_bytes:
            break
        bodies += part
        max_bytes -= size
        if size < span.end - span.start or max_bytes <= 0:
            break
    return bodies


def _chunk(view: View, start: int, bodies: list[bytes]) -> Chunk:
    end = start + sum(map(len, bodies))
    up_to_date = end == view.tail
    return Chunk(view.config, start, end, bodies, up_to_date, view.closed and up_to_date)


def _ignore(future: asyncio.Future[None]) -> None:
    """Nobody waits for this one; the writer has logged what went wrong, if anything did."""
    future.exception()
