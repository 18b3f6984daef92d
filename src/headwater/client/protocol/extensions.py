"""What Headwater has beyond the public protocol: requests and answers as values. No IO.

The list of streams, details, positions by time and number, ranges, messages in bulk, snapshots,
clearing and undeleting.
Other servers answer for these as for a stream that does not exist, or with something else entirely.
That is `NotSupported`, and not a failure of the server.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar
from urllib.parse import urljoin

import msgspec

from headwater.client.errors import (
    BadRequest,
    NotSupported,
    ResponseError,
    StreamNotFound,
    UnexpectedAnswer,
)
from headwater.client.protocol.addresses import DEFAULT_ROOT
from headwater.client.protocol.batch import Position
from headwater.client.protocol.streams import START, Request, Response
from headwater.client.protocol.values import UNREADABLE

PAGE: Final = 1_000
BULK_BYTES: Final = 8 << 20
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
LATEST: Final = "latest"
_WHOLE: Final = 2**40
"""More bytes than a range can have: do not cut by size."""

T = TypeVar("T")
Key = TypeVar("Key", str, int)
"""What pages are in order of."""


class StreamSummary(msgspec.Struct):
    """A stream in the server's list; times are in milliseconds since 1970.

    Of a deleted stream, `deleted_at` says when that was, and `kept_until` how long it can be
    undeleted.
    """

    name: str
    content_type: str = ""
    tail: str = ""
    closed: bool = False
    created: int | None = None
    size_bytes: int | None = None
    messages: int | None = None
    ttl_s: int | None = None
    expires_at: int | None = None
    profile: str | None = None
    deleted_at: int | None = None
    kept_until: int | None = None


class StreamDetails(StreamSummary):
    """A stream, with everything that the server has to say about it."""

    earliest: str | None = None
    retention_s: int | None = None
    retention_bytes: int | None = None
    unique_ids: str | None = None
    forked_from: str | None = None
    forks: int | None = None
    producers: int | None = None
    readers: int | None = None


class StreamPage(msgspec.Struct):
    """A part of the list of streams; `next` is where the following one begins, if there is one."""

    streams: list[StreamSummary]
    next: str | None = None


class Place(msgspec.Struct):
    """A position as the server names it."""

    offset: str
    skip: int = 0

    @property
    def position(self) -> Position:
        return Position(self.offset, self.skip)


class Reach(msgspec.Struct, frozen=True):
    """How far a read gets with so many messages or bytes, and how much is left."""

    offset: str
    messages: int
    bytes: int
    tail: str
    messages_behind: int


class SealedFile(msgspec.Struct, frozen=True):
    """A file of history, and where to read it, if the server says that."""

    name: str
    size_bytes: int
    checksum: str
    index_offset: int
    location: str | None = None


class Range(msgspec.Struct, frozen=True):
    """Consecutive messages, and the file that holds them, if one does."""

    offset: str
    until: str
    bytes: int = 0
    messages: int = 0
    first_timestamp: int = 0
    file: SealedFile | None = None


class Ranges(msgspec.Struct, frozen=True):
    """A part of a stream, cut into ranges."""

    ranges: list[Range]
    content_type: str = ""


class Bulk(msgspec.Struct, frozen=True):
    """Messages as an Arrow stream, and the offset where the next ones begin."""

    data: bytes
    next_offset: str


class SnapshotInfo(msgspec.Struct, frozen=True):
    """A snapshot that the server keeps."""

    offset: str
    content_type: str
    size_bytes: int
    created: int


class SnapshotList(msgspec.Struct, frozen=True):
    snapshots: list[SnapshotInfo]


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a stream at an offset: take it, and read on from there."""

    offset: str
    content_type: str
    data: bytes


# --- Requests ------------------------------------------------------------------------------------


def list_request(
    root: str, prefix: str, after: str, limit: int = PAGE, *, deleted: bool = False
) -> Request:
    """The list is next to the streams, wherever a proxy has put them."""
    url = f"{root}s" if root.endswith(DEFAULT_ROOT) else urljoin(root, f"{DEFAULT_ROOT}s")
    params = _given(
        limit=limit,
        prefix=prefix or None,
        after=after or None,
        deleted="true" if deleted else None,
    )
    return Request("GET", url, params=params)


def clear_request(url: str) -> Request:
    """What comes between two attempts comes before the clear is done, so repeating does no harm."""
    return Request("POST", f"{url}/_clear")


def undelete_request(url: str) -> Request:
    return Request("POST", f"{url}/_undelete")


def details_request(url: str) -> Request:
    return Request("GET", f"{url}/_details")


def position_request(url: str, **fields: Any) -> Request:
    return Request("GET", f"{url}/_position", params=_given(**fields))


def ranges_request(
    url: str, offset: str, until: str | None, max_bytes: int | None = None, *, files: bool = True
) -> Request:
    params = _given(
        offset=offset,
        until=until,
        max_bytes=max_bytes or _WHOLE,
        files=None if files else "false",
    )
    return Request("GET", f"{url}/_segments", params=params)


def bulk_request(url: str, offset: str, until: str, max_bytes: int, *, headers: bool) -> Request:
    params = _given(
        offset=offset, until=until, max_bytes=max_bytes, headers="true" if headers else None
    )
    return Request("GET", f"{url}/_bulk", params=params, headers={"Accept": ARROW_TYPE})


def snapshot_url(url: str, name: str = "") -> str:
    return f"{url}/_snapshots/{name}".rstrip("/")


def _given(**fields: Any) -> dict[str, str]:
    return {name: str(value) for name, value in fields.items() if value is not None}


# --- Answers -------------------------------------------------------------------------------------


def parse(response: Response, type: type[T]) -> T:
    """The body of a granted request."""
    try:
        return msgspec.json.decode(response.body, type=type)
    except UNREADABLE as error:
        raise NotSupported("the server does not offer this") from error


def not_supported(error: ResponseError) -> NotSupported | None:
    """What a refusal means that does not come from Headwater; None if it does."""
    if isinstance(error, StreamNotFound | BadRequest) and error.code is None:
        return NotSupported("the server does not offer this", where=error.where)
    return None


def following(after: Key, next: Key | None) -> Key | None:
    """Where the page after this one begins; without an order, there would be no end to them."""
    if next is not None and next <= after:
        raise UnexpectedAnswer(f"the page after {after!r} leads back to {next!r}", status=200)
    return next


def check_deleted(page: StreamPage) -> StreamPage:
    """The page, if the server knows that only deleted streams were asked for."""
    if any(stream.deleted_at is None for stream in page.streams):
        raise NotSupported("the server does not list deleted streams")
    return page


def next_offset(response: Response) -> str:
    """The offset that a granted request has to name."""
    if response.next_offset is None:
        raise NotSupported("the server does not offer this")
    return response.next_offset


def bulk(response: Response) -> Bulk:
    return Bulk(response.body, next_offset(response))


def snapshot(response: Response) -> Snapshot:
    return Snapshot(
        response.next_offset or START, response.headers.get("content-type", ""), response.body
    )
