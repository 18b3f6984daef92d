"""Streams inside your own process: the same log that the server runs, without HTTP.

    async with headwater.open("data") as log:
        await log.create("orders", content_type="application/json")
        await log.append("orders", {"id": 1})
        async with await log.subscribe("orders", "-1", print):
            ...

Everything the server promises holds here too: when `append` returns, the data is committed, and
nobody reads what is not. One process uses a directory at a time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
import structlog

from headwater.core import json_mode
from headwater.core.content_types import check_content_type
from headwater.core.decisions import Append, AppendReply, Create, CreateReply
from headwater.core.errors import StreamError, StreamGone, StreamNotFound
from headwater.core.expiry import parse_lifetime
from headwater.core.limits import Limits
from headwater.core.lineage import parse_fork
from headwater.core.offsets import BEGINNING, parse_offset
from headwater.core.paths import check_path
from headwater.core.producers import ProducerStamp
from headwater.core.retention import Retention, locate
from headwater.core.stream import StreamConfig
from headwater.service.entries import Entry, Event
from headwater.service.log import Log
from headwater.service.reading import Chunk
from headwater.store.engine import Engine, StreamSummary
from headwater.store.history.policies import SealPolicy
from headwater.store.memory import MemoryEngine
from headwater.store.sqlite import SqliteEngine

logger = structlog.get_logger()

Data = bytes | str | Any
Callback = Callable[["Update"], object | Awaitable[object]]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A piece of a stream, and where it ends."""

    data: bytes
    content_type: str
    next_offset: str
    up_to_date: bool
    closed: bool
    """The stream is closed and this is its end."""

    @property
    def messages(self) -> list[Any]:
        """The JSON values of a JSON stream."""
        values: list[Any] = msgspec.json.decode(self.data)
        return values


@dataclass(frozen=True, slots=True)
class Update:
    """What a subscriber is told: data, or that the stream is closed or deleted."""

    kind: Literal["data", "closed", "deleted"]
    next_offset: str
    result: ReadResult | None = None


class Subscription:
    """Runs until it is cancelled, or until the stream is closed or deleted."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    async def cancel(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def finished(self) -> None:
        """Wait until the stream is closed or deleted, or the callback failed, which raises here."""
        await self._task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.cancel()


class EmbeddedLog:
    def __init__(self, log: Log) -> None:
        self._log = log

    async def create(
        self,
        path: str,
        *,
        content_type: str | None = None,
        data: Data | None = None,
        ttl_s: int | None = None,
        expires_at: str | None = None,
        closed: bool = False,
        retention: Retention | None = None,
    ) -> CreateReply:
        """Create a stream, or confirm that it exists with this very configuration."""
        command = Create(
            path=check_path(path),
            content_type=check_content_type(content_type) if content_type else None,
            body=b"" if data is None else _body(data),
            lifetime=parse_lifetime(None if ttl_s is None else str(ttl_s), expires_at),
            closed=closed,
            retention=retention,
        )
        return await self._log.create(command)

    async def fork(
        self,
        source: str,
        path: str,
        *,
        offset: str | None = None,
        sub_offset: int = 0,
        ttl_s: int | None = None,
        expires_at: str | None = None,
    ) -> CreateReply:
        """Create a stream that reads as its source up to an offset and goes its own way then."""
        command = Create(
            path=check_path(path),
            lifetime=parse_lifetime(None if ttl_s is None else str(ttl_s), expires_at),
            fork=parse_fork(check_path(source), offset, str(sub_offset)),
        )
        return await self._log.create(command)

    async def append(
        self,
        path: str,
        data: Data,
        *,
        producer: tuple[str, int, int] | None = None,
        stream_seq: str | None = None,
        close: bool = False,
    ) -> AppendReply:
        """Append bytes or text as they are, anything else as JSON; a list is several messages.

        `producer` is an id, an epoch and a sequence number: sent again, it is stored once.
        """
        entry = await self._log.entry(path)
        content_type = self._log.view(entry).config.content_type
        stamp = ProducerStamp(*producer) if producer else None
        command = Append(_body(data), content_type, close, stamp, stream_seq)
        return await self._log.append(path, command)

    async def close(self, path: str) -> AppendReply:
        """Close a stream for good. Closing it again is no error."""
        return await self._log.append(path, Append(close=True))

    async def delete(self, path: str) -> None:
        await self._log.delete(path)

    async def read(self, path: str, offset: str = BEGINNING) -> ReadResult:
        """One chunk from an offset on; go on at its `next_offset` until it is `up_to_date`."""
        return _result(await self._log.read(path, parse_offset(offset)))

    async def list(
        self, prefix: str = "", *, after: str = "", limit: int = 100
    ) -> list[StreamSummary]:
        return await self._log.list_streams(prefix, after, limit)

    async def subscribe(self, path: str, offset: str, callback: Callback) -> Subscription:
        """Call back with everything past an offset, now and from now on.

        The callback gets an `Update`. One call at a time: the next waits until the callback, if it
        is a coroutine, is done. Behind `closed` or `deleted` there is nothing more.
        """
        entry = await self._log.entry(path)
        view = self._log.view(entry)
        near = locate(view.config, parse_offset(offset), view.tail)
        position = await self._log.boundary(view, near)
        follower = _Follower(self._log, path, view.config, position, callback)
        return Subscription(asyncio.get_running_loop().create_task(follower.run()))


class _Follower:
    """Brings a subscriber to the tail and keeps it there."""

    def __init__(
        self, log: Log, path: str, config: StreamConfig, position: int, callback: Callback
    ) -> None:
        self._log = log
        self._path = path
        self._config = config
        self._position = position
        self._callback = callback
        self._news = asyncio.Event()

    async def run(self) -> None:
        entry = await self._log.entry(self._path)
        entry.listeners.add(self._on_event)
        try:
            while not await self._step(entry):
                pass
        except StreamError:
            logger.exception("subscription_failed", path=self._path)
            raise
        finally:
            entry.listeners.discard(self._on_event)

    async def _step(self, entry: Entry) -> bool:
        """Tell of the next chunk, or wait for one; True when there will be no more."""
        self._news.clear()
        offset = self._config.lineage.offset_at(self._position)
        view = entry.view
        if view is None or view.config.id != self._config.id or view.soft_deleted:
            await self._call(Update("deleted", str(offset)))
            return True
        chunk = self._log.chunk_at(view, self._position)
        if chunk is None:
            try:
                chunk = await self._log.read_cold(entry, offset)
            except (StreamNotFound, StreamGone):
                return False
        if chunk.bodies:
            await self._call(Update("data", chunk.next_offset, _result(chunk)))
            self._position = chunk.end
        if chunk.closed:
            await self._call(Update("closed", chunk.next_offset))
        elif chunk.up_to_date:
            await self._news.wait()
        return chunk.closed

    def _on_event(self, event: Event) -> None:
        self._news.set()

    async def _call(self, update: Update) -> None:
        outcome = self._callback(update)
        if inspect.isawaitable(outcome):
            await outcome


def _body(data: Data) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    if isinstance(data, str):
        return data.encode()
    return msgspec.json.encode(data)


def _result(chunk: Chunk) -> ReadResult:
    stored = b"".join(chunk.bodies)
    return ReadResult(
        data=json_mode.as_array(stored) if chunk.config.is_json else stored,
        content_type=chunk.config.content_type,
        next_offset=chunk.next_offset,
        up_to_date=chunk.up_to_date,
        closed=chunk.closed,
    )


@asynccontextmanager
async def open(
    path: str | Path = "data",
    *,
    memory: bool = False,
    limits: Limits | None = None,
    linger_ms: int = 0,
) -> AsyncIterator[EmbeddedLog]:
    """The streams of a data directory, or of nothing but memory."""
    engine: Engine = MemoryEngine() if memory else SqliteEngine(Path(path))
    log = await Log.start(engine, limits, linger_ms=linger_ms, sealing=SealPolicy())
    try:
        yield EmbeddedLog(log)
    finally:
        await log.stop()
