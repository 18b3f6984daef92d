"""Streams and groups as commands name them, and what only Headwater offers, or None.

Other servers have no details and no positions, and commands work without them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

import typer

from headwater.cli.deadlines import within
from headwater.cli.exits import CliError, usage
from headwater.cli.output import instant
from headwater.cli.records import DeletedRecord, DetailRecord, StreamRecord
from headwater.cli.server_options import OPTIONS
from headwater.cli.target import find_target
from headwater.client import (
    BadRequest,
    Group,
    Headwater,
    NotSupported,
    Position,
    Stream,
    StreamDetails,
    StreamInfo,
    StreamSummary,
)

PAGE: Final = 1_000
COMPLETION_S: Final = 2.0
# Names that shells take verbatim. Others would be split, and zsh would run what it finds in them.
_OFFERED: Final = re.compile(r"[\w./:@%+=,][\w./:@%+=,-]*")

T = TypeVar("T")


def _fields(stream: StreamSummary) -> dict[str, Any]:
    """A listed stream, with the field names of records and tables."""
    return {
        "name": stream.name,
        "content_type": stream.content_type or None,
        "next_offset": stream.tail or None,
        "closed": stream.closed,
        "messages": stream.messages,
        "bytes": stream.size_bytes,
        "created_at": instant(stream.created),
        "ttl_s": stream.ttl_s,
        "expires_at": instant(stream.expires_at),
    }


def stream_record(stream: StreamSummary) -> StreamRecord:
    return StreamRecord(**_fields(stream))


def deleted_record(stream: StreamSummary) -> DeletedRecord:
    return DeletedRecord(
        **_fields(stream),
        deleted_at=instant(stream.deleted_at),
        kept_until=instant(stream.kept_until),
    )


def detail_record(details: StreamDetails, url: str, head: StreamInfo) -> DetailRecord:
    fields = _fields(details)
    fields["expires_at"] = fields["expires_at"] or head.expires_at
    return DetailRecord(
        **fields,
        url=url,
        retention_s=details.retention_s,
        retention_bytes=details.retention_bytes,
        durability=head.durability,
        forked_from=details.forked_from,
        forks=details.forks,
        producers=details.producers,
        readers=details.readers,
    )


def open_stream(client: Headwater, path: str, content_type: str | None = None) -> Stream:
    """A handle for a stream, if the name is valid."""
    try:
        return client.stream(path, content_type=content_type)
    except ValueError:
        raise usage(f"{path!r} is not the path of a stream; write it as NAME or DIR/NAME") from None


def open_group(stream: Stream, name: str) -> Group:
    """A handle for a group, if the name is valid."""
    try:
        return stream.group(name)
    except ValueError:
        raise usage(f"{name!r} is not the name of a group") from None


def list_streams(
    client: Headwater, prefix: str = "", limit: int = PAGE, *, deleted: bool = False
) -> Iterator[list[StreamSummary]]:
    """All streams, or all deleted ones, page by page, in order of their names."""
    after: str | None = ""
    while after is not None:
        try:
            page = client.stream_page(prefix, after=after, limit=limit, deleted=deleted)
        except NotSupported:
            if deleted:
                raise CliError(f"{server_url(client)} has no list of deleted streams") from None
            raise CliError(
                f"{server_url(client)} has no list of streams; name the stream, as in "
                "`headwater info NAME`"
            ) from None
        yield page.streams
        after = page.next


def find_details(stream: Stream) -> StreamDetails | None:
    """Everything about a stream; None if the server does not offer it."""
    return _if_offered(stream.details)


def find_last(stream: Stream, count: int) -> Position | None:
    """Where the last `count` messages begin, or appends if the stream has no messages."""
    return _if_offered(lambda: stream.position(last=count))


def find_time(stream: Stream, at_ms: int) -> Position | None:
    """Where everything stored since a time begins."""
    at = datetime.fromtimestamp(max(0, at_ms) / 1000, UTC)
    return _if_offered(lambda: stream.position(time=at))


def info_details(name: str, info: StreamInfo) -> StreamDetails:
    """The answer to a HEAD request, which every server supports."""
    return StreamDetails(
        name,
        content_type=info.content_type or "",
        tail=info.next_offset or "",
        closed=info.closed,
        ttl_s=info.ttl_s,
        retention_s=info.retention_s,
        retention_bytes=info.retention_bytes,
    )


def _if_offered(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except (NotSupported, BadRequest):
        return None


def server_url(client: Headwater) -> str:
    """The address of the server, as a person would write it."""
    return client.url.removesuffix("/v1/stream")


def complete_stream(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of streams with this prefix, for shell completion; none if the server is slow."""
    return _complete(ctx, lambda client: _first_names(client, incomplete))


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """The groups with this prefix, of the stream on the command line."""

    def names(client: Headwater) -> list[str]:
        groups = client.stream(ctx.params["stream"]).groups()
        return [group.name for group in groups if group.name.startswith(incomplete)]

    return _complete(ctx, names)


def complete_deleted(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of deleted streams with this prefix."""
    return _complete(ctx, lambda client: _first_names(client, incomplete, deleted=True))


def _first_names(client: Headwater, prefix: str, *, deleted: bool = False) -> list[str]:
    page = client.stream_page(prefix, limit=100, deleted=deleted)
    return [stream.name for stream in page.streams]


def _complete(ctx: typer.Context, names: Callable[[Headwater], list[str]]) -> list[str]:
    given = {**ctx.find_root().params, **{k: v for k, v in ctx.params.items() if v}}
    try:
        target = find_target(**{name: given.get(name) for name in OPTIONS})

        def ask() -> list[str]:
            with target.connect(patience_s=0, timeout_s=COMPLETION_S) as client:
                return names(client)

        return [name for name in within(COMPLETION_S, ask) if _OFFERED.fullmatch(name)]
    except Exception:
        return []  # a failing completion must not disturb the line being typed


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
DeletedPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="STREAM...", help="Paths of the streams.", autocompletion=complete_deleted
    ),
]
GroupName = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="Name of the group.", autocompletion=complete_group),
]
