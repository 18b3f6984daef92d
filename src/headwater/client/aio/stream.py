"""A handle for one stream: everything that can be asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar, overload

from headwater.client.aio.group import AsyncGroup
from headwater.client.aio.link import GroupLink
from headwater.client.aio.live import AsyncLiveStream
from headwater.client.aio.producer import AsyncProducer, ProducerOptions
from headwater.client.aio.reader import AsyncReader
from headwater.client.aio.sender import Sender
from headwater.client.aio.snapshots import AsyncSnapshots
from headwater.client.errors import HeadwaterError, StreamExists, StreamNotFound
from headwater.client.protocol.addresses import stream_path, stream_url
from headwater.client.protocol.batch import Position
from headwater.client.protocol.groups import GroupInfo, group_infos, groups_url
from headwater.client.protocol.resources import (
    BULK_BYTES,
    Bulk,
    Place,
    Ranges,
    Reach,
    StreamDetails,
    bulk,
    bulk_request,
    clear_request,
    details_request,
    next_offset,
    position_request,
    ranges_request,
    undelete_request,
)
from headwater.client.protocol.streams import (
    NOTHING,
    START,
    Durability,
    Live,
    ProducerTag,
    Receipt,
    Request,
    StreamInfo,
    append_request,
    create_request,
    fork_request,
    producer_receipt,
    read_request,
    receipt,
    stream_info,
)
from headwater.core.content_types import DEFAULT, JSON
from headwater.core.payloads import encode_append, encode_batches, encode_body, encode_message

T = TypeVar("T")

BATCH_BYTES_MAX: Final = 1 << 20
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class AsyncStream:
    """One stream on a server. Making a handle costs nothing and sends nothing.

        orders = client.stream("orders")
        await orders.ensure(content_type="application/json")
        await orders.append({"id": 1, "item": "tea"})
        print(await orders.read_json())

    Appends have to name the stream's content type. A handle that was not told asks for it once.
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

    # --- Life cycle ------------------------------------------------------------------------------

    async def create(
        self,
        *,
        content_type: str | None = None,
        ttl_s: int | None = None,
        expires_at: str | None = None,
        retention_s: int | None = None,
        retention_bytes: int | None = None,
        durability: Durability | None = None,
        closed: bool = False,
        data: Any = NOTHING,
        headers: Mapping[str, str] | None = None,
    ) -> StreamInfo:
        """Create the stream; `StreamExists` if it is already there.

        Args:
            content_type: `application/json` (the default) for messages, anything else for bytes.
            ttl_s: seconds without access after which the stream expires.
            expires_at: the instant (RFC 3339) at which it expires instead.
            retention_s: what is older than so many seconds goes.
            retention_bytes: what does not fit into so many bytes goes, the oldest first.
            durability: `relaxed` to acknowledge appends before their commit, which follows at once;
                a crash may lose the last of them. `synced` is the default.
            closed: create it closed, with `data` as its whole content.
            data: first content, as for `append`.
            headers: further headers for servers that know more settings.
        """
        request = self._create_request(
            content_type,
            ttl_s=ttl_s,
            expires_at=expires_at,
            retention_s=retention_s,
            retention_bytes=retention_bytes,
            durability=durability,
            closed=closed,
            data=data,
            headers=headers,
        )
        answer = await self._sender.perform(request)
        # After an attempt that got no answer, "exists" may mean that we have just created it.
        if answer.response.status == 200 and not answer.in_doubt:
            raise StreamExists(
                f"the stream {self._path!r} exists already",
                status=200,
                headers=answer.response.headers,
            )
        return self._learned(stream_info(answer.response))

    async def ensure(
        self,
        *,
        content_type: str | None = None,
        ttl_s: int | None = None,
        expires_at: str | None = None,
        retention_s: int | None = None,
        retention_bytes: int | None = None,
        durability: Durability | None = None,
        version: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> StreamInfo:
        """Create the stream unless it is there with the same configuration.

        Servers that keep a configuration version apply newer settings to an existing stream when
        `version` is higher than the one they have, and change nothing otherwise.
        """
        request = self._create_request(
            content_type,
            ttl_s=ttl_s,
            expires_at=expires_at,
            retention_s=retention_s,
            retention_bytes=retention_bytes,
            durability=durability,
            config_version=version,
            headers=headers,
        )
        answer = await self._sender.perform(request)
        return self._learned(stream_info(answer.response))

    async def head(self) -> StreamInfo:
        """What the server knows about the stream, without its content."""
        answer = await self._sender.perform(Request("HEAD", self._url))
        return self._learned(stream_info(answer.response))

    async def delete(self, *, purge: bool = False) -> None:
        """Delete the stream; `StreamNotFound` if there is none.

        Headwater keeps it for a while, so that it can be undeleted. With `purge`, nothing is kept,
        of this stream or of those that were deleted at its path before.
        """
        params = {"purge": "true"} if purge else {}
        try:
            await self._sender.perform(Request("DELETE", self._url, params=params))
        except StreamNotFound as error:
            # An attempt whose answer was lost has done it already.
            if not error.in_doubt:
                raise

    async def fork(
        self,
        path: str,
        *,
        offset: str | None = None,
        sub_offset: int | None = None,
        ttl_s: int | None = None,
        expires_at: str | None = None,
        retention_s: int | None = None,
        retention_bytes: int | None = None,
        durability: Durability | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncStream:
        """Make a new stream at `path` that begins with this one's content.

        Args:
            path: the path of the new stream.
            offset: how much to share; everything that is there now by default.
            sub_offset: so many messages (bytes, outside JSON) of the next append as well.
            ttl_s: as for `create`; the source's by default.
            expires_at: as for `create`; the source's by default.
            retention_s: as for `create`; the source's does not count.
            retention_bytes: as for `create`; the source's does not count.
            durability: as for `create`; the source's does not count.
            headers: further headers for servers that know more settings.
        """
        fork = AsyncStream(self._sender, self._root, path, content_type=self._content_type)
        request = fork_request(
            fork._url,
            self._url,
            offset=offset,
            sub_offset=sub_offset,
            ttl_s=ttl_s,
            expires_at=expires_at,
            retention_s=retention_s,
            retention_bytes=retention_bytes,
            durability=durability,
            headers=headers,
        )
        answer = await self._sender.perform(request)
        fork._learned(stream_info(answer.response))
        return fork

    # --- Writing ---------------------------------------------------------------------------------

    async def append(
        self,
        message: Any,
        *,
        close: bool = False,
        seq: str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Append a message: any JSON value in a JSON stream, else bytes or text.

        Without an id it is tried again only if it cannot have been written yet. When the answer is
        lost, the error's `in_doubt` is True; a producer is the way around that.

        Args:
            message: the message. In a JSON stream, a list is several messages, as it is over HTTP,
                and bytes are JSON text; `[[1, 2]]` is one message that is an array.
            close: close the stream in the same step.
            seq: a `Stream-Seq`, which must sort after the one before.
            id: the message's id, for a stream that takes each id once. With an id the request is
                tried again even if it may have been written: the stream sorts that out.
            headers: further headers for this request.
        """
        content_type = await self._resolve_content_type()
        body = encode_body([encode_append(message, content_type)], content_type)
        return await self._append(body, content_type, close=close, seq=seq, id=id, headers=headers)

    async def append_all(
        self,
        messages: Iterable[Any],
        *,
        max_batch_bytes: int = BATCH_BYTES_MAX,
    ) -> Receipt | None:
        """Append many messages in as few requests as their size allows.

        One request is written whole or not at all, several are not. The receipt is the last
        one; None if there were no messages.
        """
        if max_batch_bytes < 1:
            raise ValueError("max_batch_bytes must be at least 1")
        content_type = await self._resolve_content_type()
        last = None
        count = 0
        for batch in encode_batches(messages, content_type, max_batch_bytes):
            body = encode_body(batch, content_type)
            try:
                last = await self._append(body, content_type)
            except HeadwaterError as error:
                error.add_note(f"{count} messages had been appended before this")
                raise
            count += len(batch)
        return last

    async def append_tagged(
        self, messages: Iterable[Any], tag: ProducerTag, *, seq: str | None = None
    ) -> Receipt:
        """Append messages in one request, under a producer's epoch and number chosen by you.

        It is written whole or not at all, and once, however often it is sent: it is tried again
        when that can help, and may be repeated after a failure. For programs that derive these
        numbers from what they read; all others are better off with `producer`.

        Args:
            messages: at least one; each as for `append`.
            tag: who writes, in which epoch, and the number of this request in it, from 0.
            seq: a `Stream-Seq`, which must sort after the one before.
        """
        content_type = await self._resolve_content_type()
        encoded = [encode_message(message, content_type) for message in messages]
        request = append_request(
            self._url,
            encode_body(encoded, content_type),
            content_type=content_type,
            seq=seq,
            producer=tag,
        )
        answer = await self._sender.perform(request, lambda found: producer_receipt(found, tag))
        return producer_receipt(answer.response, tag)

    async def close(self) -> Receipt:
        """Close the stream: it keeps its content and takes no more. May be repeated."""
        return await self._append(b"", None, close=True)

    def producer(
        self,
        producer_id: str | None = None,
        *,
        epoch: int | None = None,
        auto_claim: bool = False,
        options: ProducerOptions | None = None,
    ) -> AsyncProducer:
        """A producer that writes every message exactly once, in order and in batches.

        Args:
            producer_id: who writes; a new random name by default.
            epoch: the number of this incarnation; a new one, above all before, by default, which
                fences earlier incarnations off. With a number of your own, batch n of it is stored
                once whatever is in it, so repeat the same batches or choose a higher number.
            auto_claim: when fenced off, take over again with a higher epoch.
            options: batching, buffering and patience.
        """
        return AsyncProducer(
            self._sender,
            self._url,
            self._resolve_content_type,
            producer_id=producer_id,
            epoch=epoch,
            auto_claim=auto_claim,
            options=options or ProducerOptions(),
        )

    # --- Reading ---------------------------------------------------------------------------------

    def read(self, offset: str | Position = START) -> AsyncReader:
        """Read from an offset or a saved position to the present end."""
        start = Position.parse(offset)
        return AsyncReader(self._sender, self._url, start=start, live=None)

    def follow(self, offset: str | Position = START, *, live: Live = "long-poll") -> AsyncReader:
        """Read from an offset or a saved position on, and wait for what comes.

        Ends when the stream is closed. `live` chooses how to wait: `"long-poll"` works through
        every proxy, `"sse"` costs less per message. Both yield the same.
        """
        start = Position.parse(offset)
        return AsyncReader(self._sender, self._url, start=start, live=live)

    async def read_bytes(self, offset: str | Position = START) -> bytes:
        """Everything from an offset to the present end, as bytes."""
        return b"".join([piece async for piece in self.read(offset).bytes()])

    async def read_text(self, offset: str | Position = START) -> str:
        """Everything from an offset to the present end, as text."""
        return "".join([piece async for piece in self.read(offset).text()])

    @overload
    async def read_json(self, offset: str | Position = START) -> list[Any]: ...
    @overload
    async def read_json(self, offset: str | Position = START, *, type: type[T]) -> list[T]: ...
    async def read_json(self, offset: str | Position = START, *, type: Any = Any) -> list[Any]:
        """All messages from an offset to the present end, decoded to `type`."""
        batches = [batch.messages(type) async for batch in self.read(offset) if batch]
        return [message for batch in batches for message in batch]

    # --- Beyond the public protocol --------------------------------------------------------------

    async def clear(self) -> str:
        """Drop all messages and keep the stream; returns the offset where it begins from then on.

        Settings and producers stay, and groups continue from there. Nothing brings the messages
        back.
        """
        return next_offset(await self._sender.extra(clear_request(self._url)))

    async def undelete(self) -> None:
        """Bring the deleted stream back as it was, if the server still keeps it.

        `StreamNotFound` if it does not; `Conflict` if there is another stream at the path by now,
        or if the source of a fork has not what the fork needs.
        """
        try:
            next_offset(await self._sender.extra(undelete_request(self._url)))
        except StreamNotFound as error:
            if not error.in_doubt:
                raise
            # An attempt whose answer was lost may have done it already: then the stream is there.
            await self.head()

    async def details(self) -> StreamDetails:
        """Everything that the server has to say about the stream."""
        return await self._sender.ask(details_request(self._url), StreamDetails)

    async def position(self, *, time: datetime | None = None, last: int | None = None) -> Position:
        """Where to begin reading.

        Args:
            time: at what was stored at that moment or later. Needs a time zone.
            last: at the last so many messages; appends, in a stream of bytes.
        """
        if (time is None) == (last is None):
            raise ValueError("give time or last, one of the two")
        if time is not None and time.tzinfo is None:
            raise ValueError("time needs a time zone, such as datetime.UTC")
        at_ms = None if time is None else max(0, (time - _EPOCH) // timedelta(milliseconds=1))
        request = position_request(self._url, last=last, at=at_ms)
        return (await self._sender.ask(request, Place)).position

    async def reach(
        self, offset: str = START, *, messages: int | None = None, size_bytes: int | None = None
    ) -> Reach:
        """How far a read from an offset gets with so many messages or bytes.

        Without a limit it gets to the present end, which tells how much there is.
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
        """A part of the stream cut into ranges, to be read side by side.

        Args:
            offset: where the part begins.
            until: where it ends; the present end by default.
            max_bytes: about how large a range may be; any size by default.
            files: also cut where files of history begin and end, and name those files. Such cuts
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
        """Wait until something follows an offset or the stream is closed; False if nothing does."""
        request = read_request(self._url, offset=offset, live="long-poll")
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._sender.once(request)
        except TimeoutError:
            return False
        return response.closed or response.next_offset != offset

    @property
    def snapshots(self) -> AsyncSnapshots:
        """The states of this stream that the server keeps for new readers."""
        return AsyncSnapshots(self._sender, self._url)

    # --- Groups ----------------------------------------------------------------------------------

    def group(self, name: str) -> AsyncGroup:
        """A handle for a group that works on this stream, whether or not there is one yet."""
        return AsyncGroup(GroupLink(self._sender, self._root, self._path, self._url, name))

    async def groups(self) -> list[GroupInfo]:
        """All groups of this stream."""
        answer = await self._sender.perform(Request("GET", groups_url(self._url)))
        return group_infos(answer.response)

    # --- Live queries ----------------------------------------------------------------------------

    def live(self) -> AsyncLiveStream:
        """The live side of this stream: queries that wait for its changes."""
        return AsyncLiveStream(self._sender, self._url)

    # --- Inside ----------------------------------------------------------------------------------

    def _create_request(
        self, content_type: str | None, *, data: Any = NOTHING, **settings: Any
    ) -> Request:
        kind = content_type or self._content_type or JSON
        body = b"" if data is NOTHING else encode_body([encode_append(data, kind)], kind)
        return create_request(self._url, content_type=kind, body=body, **settings)

    async def _append(
        self,
        body: bytes,
        content_type: str | None,
        *,
        close: bool = False,
        seq: str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Receipt:
        request = append_request(
            self._url, body, content_type=content_type, close=close, seq=seq, id=id, headers=headers
        )
        return receipt((await self._sender.perform(request)).response)

    async def _resolve_content_type(self) -> str:
        """The stream's type, which every append has to name. Asked for once."""
        if self._content_type is None:
            await self.head()
        return self._content_type or DEFAULT

    def _learned(self, info: StreamInfo) -> StreamInfo:
        self._content_type = info.content_type or self._content_type
        return info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url}>"
