"""What Headwater offers beside the protocol: the list of streams, details, positions.

Other servers answer such a request as they answer for a stream that does not exist, so here that
means "not offered" (None), not a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer

from headwater.cli.exits import CliError, usage
from headwater.cli.output import instant
from headwater.cli.records import DetailRecord, StreamRecord
from headwater.cli.target import OPTIONS, find_target
from headwater.client import (
    BadRequest,
    Group,
    Headwater,
    Position,
    Stream,
    StreamInfo,
    StreamNotFound,
)

PAGE: Final = 1_000
COMPLETION_S: Final = 0.5

T = TypeVar("T")


class Summary(msgspec.Struct):
    """A stream in the server's list."""

    name: str
    content_type: str | None = None
    tail: str | None = None
    closed: bool = False
    created: int | None = None
    size_bytes: int | None = None
    messages: int | None = None
    ttl_s: int | None = None
    expires_at: int | None = None

    def fields(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "content_type": self.content_type,
            "next_offset": self.tail,
            "closed": self.closed,
            "messages": self.messages,
            "bytes": self.size_bytes,
            "created_at": instant(self.created),
            "ttl_s": self.ttl_s,
            "expires_at": instant(self.expires_at),
        }

    def record(self) -> StreamRecord:
        return StreamRecord(**self.fields())


class Details(Summary):
    """A stream, with everything that the server has to say about it."""

    retention_s: int | None = None
    retention_bytes: int | None = None
    forked_from: str | None = None
    forks: int | None = None
    producers: int | None = None
    readers: int | None = None

    def detail_record(self, url: str, expires_at: str | None = None) -> DetailRecord:
        fields = self.fields()
        fields["expires_at"] = fields["expires_at"] or expires_at
        return DetailRecord(
            **fields,
            url=url,
            retention_s=self.retention_s,
            retention_bytes=self.retention_bytes,
            forked_from=self.forked_from,
            forks=self.forks,
            producers=self.producers,
            readers=self.readers,
        )


class _Page(msgspec.Struct):
    streams: list[Summary]
    next: str | None = None


class _Place(msgspec.Struct):
    offset: str
    skip: int = 0


def open_stream(client: Headwater, path: str, content_type: str | None = None) -> Stream:
    """A handle for a stream, if it can be called so."""
    try:
        return client.stream(path, content_type=content_type)
    except ValueError:
        raise usage(f"{path!r} is not the path of a stream; write it as NAME or DIR/NAME") from None


def open_group(stream: Stream, name: str) -> Group:
    """A handle for a group, if it can be called so."""
    try:
        return stream.group(name)
    except ValueError:
        raise usage(f"{name!r} is not the name of a group") from None


def list_streams(client: Headwater, prefix: str = "", limit: int = PAGE) -> Iterator[list[Summary]]:
    """All streams, page by page, in order of their names."""
    after: str | None = ""
    while after is not None:
        params = {"limit": str(limit), "prefix": prefix, "after": after}
        page = _ask(client, _list_url(client), _Page, {k: v for k, v in params.items() if v})
        if page is None:
            raise CliError(
                f"{server_url(client)} has no list of streams; name the stream, as in "
                "`headwater info NAME`"
            )
        yield page.streams
        after = page.next


def find_details(client: Headwater, stream: Stream) -> Details | None:
    """Everything about a stream; None if the server has no such resource."""
    return _ask(client, f"{stream.url}/_details", Details)


def find_last(client: Headwater, stream: Stream, count: int) -> Position | None:
    """Where the last so many messages begin; appends, where there are no messages."""
    return _position(client, stream, {"last": str(count)})


def find_time(client: Headwater, stream: Stream, at_ms: int) -> Position | None:
    """Where everything begins that is no older than a moment."""
    return _position(client, stream, {"at": str(max(0, at_ms))})


def info_details(name: str, info: StreamInfo) -> Details:
    """What a HEAD request tells, which every server answers."""
    details = Details(
        name, content_type=info.content_type, tail=info.next_offset, closed=info.closed
    )
    details.ttl_s = info.ttl_s
    details.retention_s, details.retention_bytes = info.retention_s, info.retention_bytes
    return details


def _position(client: Headwater, stream: Stream, params: dict[str, str]) -> Position | None:
    place = _ask(client, f"{stream.url}/_position", _Place, params)
    return None if place is None else Position(place.offset, place.skip)


def _ask(
    client: Headwater, url: str, type: type[T], params: dict[str, str] | None = None
) -> T | None:
    try:
        answer = client.request("GET", url, params=params)
        return msgspec.json.decode(answer.body, type=type)
    except (StreamNotFound, BadRequest, msgspec.DecodeError, UnicodeDecodeError):
        return None


def server_url(client: Headwater) -> str:
    """The address of the server, as a person would write it."""
    return client.url.removesuffix("/v1/stream")


def _list_url(client: Headwater) -> str:
    """Beside the streams, wherever a proxy has put them."""
    root = client.url
    return f"{root}s" if root.endswith("/v1/stream") else "/v1/streams"


def complete_stream(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of streams that begin so, for the shell; none if the server takes long."""
    try:
        with _completing(ctx) as client:
            return [stream.name for stream in next(list_streams(client, incomplete, limit=100))]
    except Exception:
        return []  # a completion that fails must not disturb the line being typed


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of groups of the stream on the line that begin so."""
    try:
        with _completing(ctx) as client:
            groups = client.stream(ctx.params["stream"]).groups()
            return [group.name for group in groups if group.name.startswith(incomplete)]
    except Exception:
        return []  # a completion that fails must not disturb the line being typed


def _completing(ctx: typer.Context) -> AbstractContextManager[Headwater]:
    given = {**ctx.find_root().params, **{k: v for k, v in ctx.params.items() if v}}
    target = find_target(**{name: given.get(name) for name in OPTIONS})
    return target.connect(patience_s=0, timeout_s=COMPLETION_S)


StreamPath = Annotated[
    str,
    typer.Argument(metavar="STREAM", help="Path of the stream.", autocompletion=complete_stream),
]
StreamPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="STREAM...", help="Paths of the streams.", autocompletion=complete_stream
    ),
]
GroupName = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="Name of the group.", autocompletion=complete_group),
]
