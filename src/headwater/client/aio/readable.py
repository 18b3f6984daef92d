"""The reading side of a stream: its messages, where they are, and what is known of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar, overload
from urllib.parse import urlsplit

from headwater.client.aio.reader import AsyncReader, Begin
from headwater.client.aio.records import AsyncRecords
from headwater.client.aio.sender import Sender
from headwater.client.aio.snapshots import AsyncSnapshots
from headwater.client.errors import HeadwaterError
from headwater.client.protocol.addresses import stream_path, stream_url
from headwater.client.protocol.batch import Position
from headwater.client.protocol.extensions import (
    BULK_BYTES,
    Bulk,
    Place,
    Ranges,
    Reach,
    StreamDetails,
    bulk,
    bulk_request,
    details_request,
    position_request,
    ranges_request,
)
from headwater.client.protocol.records import time_ms
from headwater.client.protocol.streams import (
    START,
    Live,
    Request,
    StreamInfo,
    read_request,
    stream_info,
)

T = TypeVar("T")

Since = datetime | timedelta
"""A moment, or how long before now."""


class AsyncReadableStream:
    """What can be read of a stream: the part of `AsyncStream` that changes nothing.

    Reading starts at an offset or a saved position. Instead, `last` starts at the last messages
    (appends, in a stream of bytes), and `since` at a time: a datetime with a time zone, or a
    timedelta before now. Only Headwater servers support these two.
    """

    def __init__(
        self, sender: Sender, root: str, path: str, *, content_type: str | None = None
    ) -> None:
        self._sender = sender
        self._root = root
        self._path = stream_path(root, path)
        self._url = stream_url(root, path)
        self._content_type = content_type

    @property
    def path(self) -> str:
        """The stream's path on the server."""
        return self._path

    @property
    def url(self) -> str:
        """The stream's full address."""
        return self._url

    @property
    def content_type(self) -> str | None:
        """The stream's media type, as far as it is known here."""
        return self._content_type

    # --- What there is ---------------------------------------------------------------------------

    async def head(self) -> StreamInfo:
        """What the server knows about the stream, without its content."""
        answer = await self._sender.perform(Request("HEAD", self._url), stream_info)
        return self._learned(stream_info(answer.response))

    async def details(self) -> StreamDetails:
        """Everything that the server knows about the stream."""
        return await self._sender.ask(details_request(self._url), StreamDetails)

    async def position(self, *, time: datetime | None = None, last: int | None = None) -> Position:
        """Where to start reading.

        Args:
            time: at the first message stored at this time or later. Needs a time zone.
            last: at this many messages before the end; appends, in a stream of bytes.
        """
        if (time is None) == (last is None):
            raise ValueError("give time or last, one of the two")
        return await self._find(last, time)

    async def reach(
        self, offset: str = START, *, messages: int | None = None, size_bytes: int | None = None
    ) -> Reach:
        """How far a read from an offset gets with this many messages or bytes.

        Without a limit, it gets to the current end, which tells you how much there is.
        """
        request = position_request(self._url, offset=offset, messages=messages, bytes=size_bytes)
        return await self._sender.ask(request, Reach)

    async def ranges(
        self,
        offset: str = START,
        until: str | None = None,
        *,
        max_bytes: int | None = None,
        files: bool = True,
    ) -> Ranges:
        """A part of the stream, split into ranges that can be read in parallel.

        Args:
            offset: where the part begins.
            until: where it ends; the current end by default.
            max_bytes: approximate size of a range; any size by default.
            files: also split where history files begin and end, and name those files. Such ranges
                change over time; others are the same whenever you ask.
        """
        request = ranges_request(self._url, offset, until, max_bytes, files=files)
        return await self._sender.ask(request, Ranges)

    async def bulk(
        self, offset: str, until: str, *, max_bytes: int = BULK_BYTES, headers: bool = False
    ) -> Bulk:
        """Messages between two offsets as an Arrow stream, about `max_bytes` at a time."""
        request = bulk_request(self._url, offset, until, max_bytes, headers=headers)
        return bulk(await self._sender.extra(request))

    async def wait(self, offset: str, timeout_s: float) -> bool:
        """Wait until there is something after an offset or the stream is closed; False if not."""
        request = read_request(self._url, offset=offset, live="long-poll")
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._sender.once(request)
        except TimeoutError:
            return False
        return response.closed or response.next_offset != offset

    @property
    def snapshots(self) -> AsyncSnapshots:
        """The states of this stream that the server stores for new readers."""
        return AsyncSnapshots(self._sender, self._url)

    # --- Reading ---------------------------------------------------------------------------------

    def read(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
    ) -> AsyncReader:
        """Read from an offset or a saved position to the current end."""
        return self._reader(offset, last, since, live=None)

    def follow(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
        live: Live = "long-poll",
    ) -> AsyncReader:
        """Read from an offset or a saved position, then wait for more.

        Ends when the stream is closed. `live` chooses how to wait: `"long-poll"` works through
        every proxy, `"sse"` costs less per message. Both yield the same.
        """
        return self._reader(offset, last, since, live=live)

    async def read_bytes(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
    ) -> bytes:
        """Everything from an offset to the current end, as bytes."""
        reader = self.read(offset, last=last, since=since)
        return b"".join([piece async for piece in reader.bytes()])

    async def read_text(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
    ) -> str:
        """Everything from an offset to the current end, as text."""
        reader = self.read(offset, last=last, since=since)
        return "".join([piece async for piece in reader.text()])

    @overload
    async def read_json(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
    ) -> list[Any]: ...
    @overload
    async def read_json(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
        type: type[T],
    ) -> list[T]: ...
    async def read_json(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
        type: Any = Any,
    ) -> list[Any]:
        """All messages from an offset to the current end.

        With a `type` (a dataclass, a msgspec struct, a pydantic model, …) they are converted to it;
        an `InvalidMessage` names the first one that does not match.
        """
        reader = self.read(offset, last=last, since=since)
        try:
            batches = [batch.messages(type) async for batch in reader if batch]
        except HeadwaterError as error:
            error.where = error.where or urlsplit(self._url).path
            raise
        return [message for batch in batches for message in batch]

    @overload
    def records(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
        follow: bool = False,
    ) -> AsyncRecords[Any]: ...
    @overload
    def records(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
        follow: bool = False,
        type: type[T],
    ) -> AsyncRecords[T]: ...
    def records(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
        follow: bool = False,
        type: Any = Any,
    ) -> AsyncRecords[Any]:
        """Messages with their offsets, times, ids and producers, to the current end or without end.

        Only Headwater servers have them (`NotSupported` elsewhere). `follow` waits for more, and
        ends when the stream is closed; `type` works as in `read_json`.
        """
        start, begin = self._start(offset, last, since)
        return AsyncRecords(
            self._sender, self._url, start=start, begin=begin, follow=follow, type=type
        )

    # --- Inside ----------------------------------------------------------------------------------

    def _reader(
        self,
        offset: str | Position,
        last: int | None,
        since: Since | None,
        *,
        live: Live | None,
    ) -> AsyncReader:
        start, begin = self._start(offset, last, since)
        return AsyncReader(self._sender, self._url, start=start, begin=begin, live=live)

    def _start(
        self, offset: str | Position, last: int | None, since: Since | None
    ) -> tuple[Position, Begin | None]:
        """Where to begin, or how to find that out once somebody reads."""
        if (offset != START) + (last is not None) + (since is not None) > 1:
            raise ValueError("give an offset, last or since, one of the three")
        known = last is None and since is None
        return Position.parse(offset), None if known else partial(self._find, last, since)

    async def _find(self, last: int | None, since: Since | None) -> Position:
        at_ms = None if since is None else time_ms(since, datetime.now(UTC))
        request = position_request(self._url, last=last, at=at_ms)
        return (await self._sender.ask(request, Place)).position

    def _learned(self, info: StreamInfo) -> StreamInfo:
        self._content_type = info.content_type or self._content_type
        return info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url}>"
