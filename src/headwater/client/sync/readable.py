"""The blocking client. Written by scripts/make_sync.py from aio/readable.py: DO NOT EDIT."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar, overload

from headwater.client.aio.readable import AsyncReadableStream, Since
from headwater.client.protocol.batch import Position
from headwater.client.protocol.extensions import BULK_BYTES, Bulk, Ranges, Reach, StreamDetails
from headwater.client.protocol.streams import START, Live, StreamInfo
from headwater.client.sync.portal import Blocking
from headwater.client.sync.reader import Reader
from headwater.client.sync.records import Records
from headwater.client.sync.snapshots import Snapshots

T = TypeVar("T")


class ReadableStream(Blocking[AsyncReadableStream]):
    """What can be read of a stream: the part of `Stream` that changes nothing.

    Reading starts at an offset or a saved position. Instead, `last` starts at the last messages
    (appends, in a stream of bytes), and `since` at a time: a datetime with a time zone, or a
    timedelta before now. Only Headwater servers support these two.
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

    def head(self) -> StreamInfo:
        """What the server knows about the stream, without its content."""
        return self._portal.call(self._async.head())

    def details(self) -> StreamDetails:
        """Everything that the server knows about the stream."""
        return self._portal.call(self._async.details())

    def position(self, *, time: datetime | None = None, last: int | None = None) -> Position:
        """Where to start reading.

        Args:
            time: at the first message stored at this time or later. Needs a time zone.
            last: at this many messages before the end; appends, in a stream of bytes.
        """
        return self._portal.call(self._async.position(time=time, last=last))

    def reach(
        self,
        offset: str = START,
        *,
        messages: int | None = None,
        size_bytes: int | None = None,
    ) -> Reach:
        """How far a read from an offset gets with this many messages or bytes.

        Without a limit, it gets to the current end, which tells you how much there is.
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
        """A part of the stream, split into ranges that can be read in parallel.

        Args:
            offset: where the part begins.
            until: where it ends; the current end by default.
            max_bytes: approximate size of a range; any size by default.
            files: also split where history files begin and end, and name those files. Such ranges
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
        """Wait until there is something after an offset or the stream is closed; False if not."""
        return self._portal.call(self._async.wait(offset, timeout_s))

    @property
    def snapshots(self) -> Snapshots:
        """The states of this stream that the server stores for new readers."""
        return Snapshots(self._portal, self._async.snapshots)

    def read(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
    ) -> Reader:
        """Read from an offset or a saved position to the current end."""
        return Reader(self._portal, self._async.read(offset, last=last, since=since))

    def follow(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
        live: Live = "long-poll",
    ) -> Reader:
        """Read from an offset or a saved position, then wait for more.

        Ends when the stream is closed. `live` chooses how to wait: `"long-poll"` works through
        every proxy, `"sse"` costs less per message. Both yield the same.
        """
        return Reader(self._portal, self._async.follow(offset, last=last, since=since, live=live))

    def read_bytes(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
    ) -> bytes:
        """Everything from an offset to the current end, as bytes."""
        return self._portal.call(self._async.read_bytes(offset, last=last, since=since))

    def read_text(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
    ) -> str:
        """Everything from an offset to the current end, as text."""
        return self._portal.call(self._async.read_text(offset, last=last, since=since))

    @overload
    def read_json(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
    ) -> list[Any]: ...
    @overload
    def read_json(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
        type: type[T],
    ) -> list[T]: ...
    def read_json(
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
        return self._portal.call(self._async.read_json(offset, last=last, since=since, type=type))

    @overload
    def records(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
        follow: bool = False,
    ) -> Records[Any]: ...
    @overload
    def records(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
        follow: bool = False,
        type: type[T],
    ) -> Records[T]: ...
    def records(
        self,
        offset: str | Position = START,
        *,
        last: int | None = None,
        since: Since | None = None,
        follow: bool = False,
        type: Any = Any,
    ) -> Records[Any]:
        """Messages with their offsets, times, ids and producers, to the current end or without end.

        Only Headwater servers have them (`NotSupported` elsewhere). `follow` waits for more, and
        ends when the stream is closed; `type` works as in `read_json`.
        """
        return Records(
            self._portal,
            self._async.records(offset, last=last, since=since, follow=follow, type=type),
        )

    def __repr__(self) -> str:
        return repr(self._async).replace("AsyncReadableStream", type(self).__name__)
