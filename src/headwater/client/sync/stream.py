"""The blocking client. Written by scripts/make_sync.py from aio/stream.py: DO NOT EDIT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar, overload

from headwater.client.aio.producer import ProducerOptions
from headwater.client.aio.stream import BATCH_BYTES_MAX, AsyncStream
from headwater.client.errors import HeadwaterError
from headwater.client.protocol.batch import Position
from headwater.client.protocol.groups import GroupInfo
from headwater.client.protocol.resources import BULK_BYTES, Bulk, Ranges, Reach, StreamDetails
from headwater.client.protocol.streams import (
    NOTHING,
    START,
    Durability,
    Live,
    ProducerTag,
    Receipt,
    StreamInfo,
)
from headwater.client.sync.group import Group
from headwater.client.sync.live import LiveStream
from headwater.client.sync.portal import Blocking
from headwater.client.sync.producer import Producer
from headwater.client.sync.reader import Reader
from headwater.client.sync.snapshots import Snapshots
from headwater.core.payloads import encode_batches, encode_body

T = TypeVar("T")


class Stream(Blocking[AsyncStream]):
    """One stream on a server. Making a handle costs nothing and sends nothing.

        orders = client.stream("orders")
        orders.ensure(content_type="application/json")
        orders.append({"id": 1, "item": "tea"})
        print(orders.read_json())

    Appends have to name the stream's content type. A handle that was not told asks for it once.
    """

    @property
    def path(self) -> str:
        """The stream's path on the server."""
        return self._async.path

    @property
    def url(self) -> str:
        """The stream's full address."""
        return self._async.url

    @property
    def content_type(self) -> str | None:
        """The stream's media type, as far as it is known here."""
        return self._async.content_type

    def create(
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
        return self._portal.call(
            self._async.create(
                content_type=content_type,
                ttl_s=ttl_s,
                expires_at=expires_at,
                retention_s=retention_s,
                retention_bytes=retention_bytes,
                durability=durability,
                closed=closed,
                data=data,
                headers=headers,
            )
        )

    def ensure(
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
        return self._portal.call(
            self._async.ensure(
                content_type=content_type,
                ttl_s=ttl_s,
                expires_at=expires_at,
                retention_s=retention_s,
                retention_bytes=retention_bytes,
                durability=durability,
                version=version,
                headers=headers,
            )
        )

    def head(self) -> StreamInfo:
        """What the server knows about the stream, without its content."""
        return self._portal.call(self._async.head())

    def delete(self, *, purge: bool = False) -> None:
        """Delete the stream; `StreamNotFound` if there is none.

        Headwater keeps it for a while, so that it can be undeleted. With `purge`, nothing is kept,
        of this stream or of those that were deleted at its path before.
        """
        self._portal.call(self._async.delete(purge=purge))

    def fork(
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
    ) -> Stream:
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
        return Stream(
            self._portal,
            self._portal.call(
                self._async.fork(
                    path,
                    offset=offset,
                    sub_offset=sub_offset,
                    ttl_s=ttl_s,
                    expires_at=expires_at,
                    retention_s=retention_s,
                    retention_bytes=retention_bytes,
                    durability=durability,
                    headers=headers,
                )
            ),
        )

    def append(
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
        return self._portal.call(
            self._async.append(message, close=close, seq=seq, id=id, headers=headers)
        )

    def append_all(
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
        content_type = self._portal.call(self._async._resolve_content_type())
        last = None
        count = 0
        for batch in encode_batches(messages, content_type, max_batch_bytes):
            body = encode_body(batch, content_type)
            try:
                last = self._portal.call(self._async._append(body, content_type))
            except HeadwaterError as error:
                error.add_note(f"{count} messages had been appended before this")
                raise
            count += len(batch)
        return last

    def append_tagged(
        self,
        messages: Iterable[Any],
        tag: ProducerTag,
        *,
        seq: str | None = None,
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
        return self._portal.call(self._async.append_tagged(messages, tag, seq=seq))

    def close(self) -> Receipt:
        """Close the stream: it keeps its content and takes no more. May be repeated."""
        return self._portal.call(self._async.close())

    def producer(
        self,
        producer_id: str | None = None,
        *,
        epoch: int | None = None,
        auto_claim: bool = False,
        options: ProducerOptions | None = None,
    ) -> Producer:
        """A producer that writes every message exactly once, in order and in batches.

        Args:
            producer_id: who writes; a new random name by default.
            epoch: the number of this incarnation; a new one, above all before, by default, which
                fences earlier incarnations off. With a number of your own, batch n of it is stored
                once whatever is in it, so repeat the same batches or choose a higher number.
            auto_claim: when fenced off, take over again with a higher epoch.
            options: batching, buffering and patience.
        """
        return Producer(
            self._portal,
            self._async.producer(producer_id, epoch=epoch, auto_claim=auto_claim, options=options),
        )

    def read(self, offset: str | Position = START) -> Reader:
        """Read from an offset or a saved position to the present end."""
        return Reader(self._portal, self._async.read(offset))

    def follow(self, offset: str | Position = START, *, live: Live = "long-poll") -> Reader:
        """Read from an offset or a saved position on, and wait for what comes.

        Ends when the stream is closed. `live` chooses how to wait: `"long-poll"` works through
        every proxy, `"sse"` costs less per message. Both yield the same.
        """
        return Reader(self._portal, self._async.follow(offset, live=live))

    def read_bytes(self, offset: str | Position = START) -> bytes:
        """Everything from an offset to the present end, as bytes."""
        return self._portal.call(self._async.read_bytes(offset))

    def read_text(self, offset: str | Position = START) -> str:
        """Everything from an offset to the present end, as text."""
        return self._portal.call(self._async.read_text(offset))

    @overload
    def read_json(self, offset: str | Position = START) -> list[Any]: ...
    @overload
    def read_json(self, offset: str | Position = START, *, type: type[T]) -> list[T]: ...
    def read_json(self, offset: str | Position = START, *, type: Any = Any) -> list[Any]:
        """All messages from an offset to the present end, decoded to `type`."""
        return self._portal.call(self._async.read_json(offset, type=type))

    def clear(self) -> str:
        """Drop all messages and keep the stream; returns the offset where it begins from then on.

        Settings and producers stay, and groups continue from there. Nothing brings the messages
        back.
        """
        return self._portal.call(self._async.clear())

    def undelete(self) -> None:
        """Bring the deleted stream back as it was, if the server still keeps it.

        `StreamNotFound` if it does not; `Conflict` if there is another stream at the path by now,
        or if the source of a fork has not what the fork needs.
        """
        self._portal.call(self._async.undelete())

    def details(self) -> StreamDetails:
        """Everything that the server has to say about the stream."""
        return self._portal.call(self._async.details())

    def position(self, *, time: datetime | None = None, last: int | None = None) -> Position:
        """Where to begin reading.

        Args:
            time: at what was stored at that moment or later. Needs a time zone.
            last: at the last so many messages; appends, in a stream of bytes.
        """
        return self._portal.call(self._async.position(time=time, last=last))

    def reach(
        self,
        offset: str = START,
        *,
        messages: int | None = None,
        size_bytes: int | None = None,
    ) -> Reach:
        """How far a read from an offset gets with so many messages or bytes.

        Without a limit it gets to the present end, which tells how much there is.
        """
        return self._portal.call(
            self._async.reach(offset, messages=messages, size_bytes=size_bytes)
        )

    def ranges(
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
        return self._portal.call(
            self._async.ranges(offset, until, max_bytes=max_bytes, files=files)
        )

    def bulk(
        self,
        offset: str,
        until: str,
        *,
        max_bytes: int = BULK_BYTES,
        headers: bool = False,
    ) -> Bulk:
        """Messages between two offsets as an Arrow stream, about `max_bytes` at a time."""
        return self._portal.call(
            self._async.bulk(offset, until, max_bytes=max_bytes, headers=headers)
        )

    def wait(self, offset: str, timeout_s: float) -> bool:
        """Wait until something follows an offset or the stream is closed; False if nothing does."""
        return self._portal.call(self._async.wait(offset, timeout_s))

    @property
    def snapshots(self) -> Snapshots:
        """The states of this stream that the server keeps for new readers."""
        return Snapshots(self._portal, self._async.snapshots)

    def group(self, name: str) -> Group:
        """A handle for a group that works on this stream, whether or not there is one yet."""
        return Group(self._portal, self._async.group(name))

    def groups(self) -> list[GroupInfo]:
        """All groups of this stream."""
        return self._portal.call(self._async.groups())

    def live(self) -> LiveStream:
        """The live side of this stream: queries that wait for its changes."""
        return LiveStream(self._portal, self._async.live())

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncStream", type(self).__name__)
