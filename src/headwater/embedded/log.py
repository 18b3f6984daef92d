"""The log of a process: the client of a server that is in the same process.

Handles, groups, transactions and live queries are the client's own, over `EmbeddedTransport`. The
methods that take a path go to the log without a request in between, and raise the errors of
`headwater.core.errors`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import msgspec
import structlog

from headwater.client.aio.client import AsyncHeadwater
from headwater.core import json_mode
from headwater.core.content_types import DEFAULT, check_content_type
from headwater.core.decisions import Append, AppendReply, Create, CreateReply
from headwater.core.durability import parse_relaxed
from headwater.core.errors import StreamError
from headwater.core.expiry import parse_lifetime
from headwater.core.lineage import parse_fork
from headwater.core.offsets import BEGINNING, parse_offset
from headwater.core.paths import check_path
from headwater.core.payloads import encode_append, encode_body
from headwater.core.producers import ProducerStamp
from headwater.core.retention import Retention, locate
from headwater.embedded.parts import Parts
from headwater.embedded.transport import URL
from headwater.service.chunks import Chunk
from headwater.service.clearing import clear
from headwater.service.entries import Event
from headwater.service.following import FollowedStream
from headwater.service.log import Log
from headwater.store.engine.streams import StreamSummary

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
    """What a subscriber gets: data, or the news that the stream is closed or deleted."""

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

    async def __aexit__(self, *_: object) -> None:
        await self.cancel()


class EmbeddedLog(AsyncHeadwater):
    """The streams of a data directory, or streams in memory, in your own process.

        async with headwater.open("data") as log:
            orders = log.stream("orders")
            await orders.ensure()
            await orders.append({"id": 1})
            print(await orders.read_json())

    It has everything that `AsyncHeadwater` has, and works as with a server: `stream`, with its
    producers, groups and live queries, `streams`, `transaction`, `subscription`. Only webhooks are
    not sent, because nothing listens for their answers.

    The methods below that take a path are shortcuts to the same streams.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        super().__init__(URL, transport=parts.transport)

    @property
    def _log(self) -> Log:
        self._parts.transport.check()
        return self._parts.log

    async def aclose(self) -> None:
        """Finish what is in progress, and release the directory. You can call it more than once."""
        await self._parts.stop(super().aclose)

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
        durability: Literal["synced", "relaxed"] = "synced",
    ) -> CreateReply:
        """Create a stream, or confirm that it exists with this configuration.

        Appends to a `relaxed` one return before their commit, which follows at once.
        """
        kind = content_type or DEFAULT
        command = Create(
            path=check_path(path),
            content_type=check_content_type(content_type) if content_type else None,
            body=b"" if data is None else encode_body([encode_append(data, kind)], kind),
            lifetime=parse_lifetime(None if ttl_s is None else str(ttl_s), expires_at),
            closed=closed,
            retention=retention,
            relaxed=parse_relaxed(durability),
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
        """Create a stream that shares its source up to an offset and then goes its own way."""
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
        """Append bytes or text; in a JSON stream, any JSON value.

        In a JSON stream, a list is several messages, as over HTTP, and bytes are JSON text; `[[1,
        2]]` is one message that is an array.

        `producer` is an id, an epoch and a sequence number: sent again, it is stored once.
        """
        entry = await self._log.entry(path)
        content_type = self._log.view(entry).config.content_type
        stamp = ProducerStamp(*producer) if producer else None
        body = encode_body([encode_append(data, content_type)], content_type)
        command = Append(body, content_type, close, stamp, stream_seq)
        return await self._log.append(path, command)

    async def close(self, path: str) -> AppendReply:
        """Close a stream for good. Closing it again is not an error."""
        return await self._log.append(path, Append(close=True))

    async def delete(self, path: str, *, purge: bool = False) -> None:
        """Delete a stream. It can be undeleted for as long as `Limits.undelete_grace_s` says.

        With `purge`, nothing is kept, not even what was deleted at its path before.
        """
        await (self._log.purge if purge else self._log.delete)(path)

    async def undelete(self, path: str) -> str:
        """Bring a deleted stream back as it was; returns where it ends."""
        return await self._log.grace.undelete(check_path(path))

    async def clear(self, path: str) -> str:
        """Drop all messages and keep the stream; returns where it now begins."""
        return str(await clear(self._log, self._parts.groups, path))

    async def read(self, path: str, offset: str = BEGINNING) -> ReadResult:
        """One chunk from an offset; continue at its `next_offset` until it is `up_to_date`."""
        return _result(await self._log.read(path, parse_offset(offset)))

    async def list(
        self, prefix: str = "", *, after: str = "", limit: int = 100
    ) -> list[StreamSummary]:
        return await self._log.list_streams(prefix, after, limit)

    async def subscribe(self, path: str, offset: str, callback: Callback) -> Subscription:
        """Call back with everything after an offset, stored and new.

        The callback gets an `Update`. One call at a time: the next waits until the callback, if it
        is a coroutine, is done. After `closed` or `deleted` there is nothing more.
        """
        entry = await self._log.entry(path)
        view = self._log.view(entry)
        near = locate(view.config, parse_offset(offset), view.tail)
        position = await self._log.boundary(view, near)
        stream = FollowedStream(self._log, entry, view)
        news = asyncio.Event()

        def on_event(event: Event) -> None:
            news.set()

        # From here on, not from the task's first step: while someone listens, the stream stays.
        stream.listen(on_event)
        task = asyncio.get_running_loop().create_task(_follow(stream, position, news, callback))
        task.add_done_callback(lambda _: stream.stop_listening(on_event))
        return Subscription(task)


async def _follow(
    stream: FollowedStream, position: int, news: asyncio.Event, callback: Callback
) -> None:
    """Bring a subscriber to the tail and keep it there until the stream ends."""

    async def call(update: Update) -> None:
        outcome = callback(update)
        if inspect.isawaitable(outcome):
            await outcome

    try:
        while True:
            news.clear()
            async for chunk in stream.catch_up(position):
                position = chunk.end
                if chunk.bodies:
                    await call(Update("data", chunk.next_offset, _result(chunk)))
                if chunk.closed:
                    await call(Update("closed", chunk.next_offset))
                    return
            await news.wait()
    except StreamError:
        if stream.view is not None:
            logger.exception("subscription_failed", path=stream.path)
            raise
        await call(Update("deleted", stream.token(position)))


def _result(chunk: Chunk) -> ReadResult:
    stored = b"".join(chunk.bodies)
    return ReadResult(
        data=json_mode.as_array(stored) if chunk.config.is_json else stored,
        content_type=chunk.config.content_type,
        next_offset=chunk.next_offset,
        up_to_date=chunk.up_to_date,
        closed=chunk.closed,
    )
