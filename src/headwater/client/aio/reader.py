"""Reading a stream, now and live."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Self, TypeVar, overload
from urllib.parse import urlsplit

from headwater.client.aio.sender import Sender
from headwater.client.aio.transport import OpenResponse
from headwater.client.errors import ConnectionFailed, HeadwaterError
from headwater.client.protocol.batch import Batch, Position
from headwater.client.protocol.reading import EventSession, ReadSession
from headwater.client.protocol.retry import Retries
from headwater.client.protocol.state import Change, MaterializedState
from headwater.client.protocol.streams import Live
from headwater.client.protocol.unpack import (
    ItemQueue,
    UnpackBytes,
    UnpackChanges,
    Unpacker,
    UnpackMessages,
    UnpackText,
)

T = TypeVar("T")

Begin = Callable[[], Awaitable[Position]]
"""Finds out where to begin, once somebody reads."""


class AsyncReader:
    """One pass over a stream, from a position to its end, or for as long as the stream exists.

    Iterate over the reader itself for batches, or over one of `messages`, `text`, `bytes` and
    `changes` for items. Nothing is requested before you ask for the first item.

        async with stream.follow(saved_position) as reader:
            async for message in reader.messages():
                await handle(message)
                save(str(reader.position))

    You can cancel at any time and lose nothing: `position` is always after the last item that was
    yielded, and you can use the same reader again. The reader survives lost connections and busy
    servers; an error it raises is final.
    """

    def __init__(
        self,
        sender: Sender,
        url: str,
        *,
        start: Position,
        live: Live | None,
        begin: Begin | None = None,
    ) -> None:
        self._sender = sender
        self._session = ReadSession(url, start=start, live=live)
        self._begin = begin
        self._retries = Retries(sender.retry)
        self._where = urlsplit(url).path
        self._position = start
        self._items: AsyncItems[Any] | None = None
        self._connection: OpenResponse | None = None
        self._events: EventSession | None = None
        self._held_error: HeadwaterError | None = None

    @property
    def position(self) -> Position:
        """The place after everything that has been yielded; save it to resume."""
        return self._position if self._items is None else self._items._queue.position

    @property
    def up_to_date(self) -> bool:
        """Whether everything that the server had when it last answered has been yielded."""
        return self._session.up_to_date and not self._holds_something

    @property
    def closed(self) -> bool:
        """Whether the stream is closed and has been yielded to its end."""
        return self._session.closed and not self._holds_something

    @property
    def close_reason(self) -> str | None:
        """Why a durable response ended early, once it has been yielded to its end."""
        return self._session.close_reason if self.closed else None

    async def next_batch(self, timeout_s: float | None = None) -> Batch | None:
        """The next batch; None at the end. Raises `TimeoutError` if nothing arrived in time."""
        if self._items is not None:
            raise RuntimeError("this reader yields items; open another one for batches")
        async with asyncio.timeout(timeout_s):
            batch = await self._peek()
        if batch is not None:
            self._position = self._session.ready.popleft().position
        return batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        batch = await self.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch

    @overload
    def messages(self) -> AsyncItems[Any]: ...
    @overload
    def messages(self, type: type[T]) -> AsyncItems[T]: ...
    def messages(self, type: Any = Any) -> AsyncItems[Any]:
        """The JSON messages one by one.

        With a `type` (a dataclass, a msgspec struct, a pydantic model, …) they are converted to it;
        an `InvalidMessage` names the first one that does not match.
        """
        return self._as_items(UnpackMessages(type))

    def text(self) -> AsyncItems[str]:
        """The stream as pieces of text, never split inside a character.

        A server splits text into lines to send it as events, so over `live="sse"` every line break
        arrives as a line feed.
        """
        return self._as_items(UnpackText())

    def bytes(self) -> AsyncItems[bytes]:
        """The stream as pieces of bytes."""
        return self._as_items(UnpackBytes())

    def changes(self, state: MaterializedState) -> AsyncItems[Change]:
        """Apply a State Protocol stream to `state`, and yield what changes."""
        return self._as_items(UnpackChanges(state))

    async def aclose(self) -> None:
        """Release the connection. You can use the reader again; it reconnects."""
        connection, self._connection, self._events = self._connection, None, None
        if connection is not None:
            await connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        await self.aclose()

    @property
    def _holds_something(self) -> bool:
        return bool(self._session.ready) or (self._items is not None and bool(self._items._queue))

    def _as_items(self, unpacker: Unpacker[T]) -> AsyncItems[T]:
        if self._items is not None:
            raise RuntimeError("this reader yields items already; keep the iterator to go on")
        items = AsyncItems(self, ItemQueue(unpacker, self._position))
        self._items = items
        return items

    async def _peek(self) -> Batch | None:
        """The batch that comes next, left where it is until the caller has made use of it."""
        if self._begin is not None:
            await self._find_begin(self._begin)
        session = self._session
        while not session.ready:
            if session.finished:
                await self.aclose()
                return None
            await self._fetch()
        return session.ready[0]

    async def _find_begin(self, begin: Begin) -> None:
        start = await begin()
        self._begin = None
        self._position = start
        self._session = ReadSession(self._session.url, start=start, live=self._session.live)
        if self._items is not None:
            self._items._queue.begin(start)

    async def _fetch(self) -> None:
        """Make one attempt to receive something; a failure that can pass is waited out."""
        if self._held_error is not None:
            error, self._held_error = self._held_error, None
            await self._sender.pause_or_raise(self._retries, error)
        try:
            if self._connection is None:
                await self._ask()
            else:
                await self._listen(self._connection)
        except HeadwaterError as error:
            # Held back until the batches that came before it have been yielded.
            error.where = error.where or self._where
            self._held_error = error
            await self.aclose()
        except BaseException:
            # Cancelled in the middle of an answer: what is left of it cannot be made sense of.
            await asyncio.shield(self.aclose())
            raise

    async def _ask(self) -> None:
        request = self._session.next_request()
        if request.patience != "sse":
            self._session.answered(await self._sender.once(request))
            self._succeeded()
            return
        self._connection = await self._sender.open(request)
        self._events = self._session.events(self._connection.headers)

    async def _listen(self, connection: OpenResponse) -> None:
        assert self._events is not None
        chunk = await connection.next_chunk()
        if chunk is not None:
            self._events.feed(chunk)
            if self._events.control_events:
                self._succeeded()
            return
        events = self._events
        await self.aclose()
        # Servers end event streams after a while, and the reader just connects again. One that
        # ends them at once must not be asked in a tight loop.
        if not self._session.finished and events.control_events < 2:
            raise ConnectionFailed("the event stream ended before it had begun")

    def _succeeded(self) -> None:
        self._retries.succeeded()
        if self._session.live is not None:
            # A server that was there once is worth waiting for.
            self._retries.policy = self._sender.retry.forever()


class AsyncItems(Generic[T]):
    """The items of a reader, one at a time."""

    def __init__(self, reader: AsyncReader, queue: ItemQueue[T]) -> None:
        self._reader = reader
        self._queue = queue

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while True:
            for item in self._queue.iterator:
                return item
            if not await self._fetch():
                raise StopAsyncIteration
            self._unpack()

    async def _fetch(self) -> bool:
        """Wait until there is something to unpack; False at the end."""
        return await self._reader._peek() is not None

    def _unpack(self) -> None:
        """Take the next batch apart, and off the reader's queue if that worked."""
        ready = self._reader._session.ready
        try:
            self._queue.load(ready[0])
        except HeadwaterError as error:
            error.where = self._reader._where
            raise
        ready.popleft()
