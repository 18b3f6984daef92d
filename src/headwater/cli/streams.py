"""`headwater create`, `close`, `fork`, `clear`, `rm` and `undelete`: the life of a stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from headwater.cli import remote
from headwater.cli.exits import CliError, ExitCode, usage
from headwater.cli.failures import explain
from headwater.cli.inputs import check_json
from headwater.cli.output import Json, report, tell
from headwater.cli.positions import GRAMMAR, locate, parse_where
from headwater.cli.quantities import parse_size
from headwater.cli.records import ChangeRecord, ClearRecord, RemovalRecord
from headwater.cli.shell import say
from headwater.cli.stream_options import (
    Description,
    Durability,
    ExpiresAt,
    IdPointer,
    Keep,
    KeepBytes,
    Ttl,
    UniqueIds,
    moment_of,
    seconds_of,
)
from headwater.cli.target import Target, with_target
from headwater.cli.units import Unit
from headwater.client import (
    START,
    ConfigConflict,
    HeadwaterError,
    Stream,
    StreamExists,
    StreamInfo,
    StreamNotFound,
)
from headwater.core.offsets import format_offset

# The start of a stream for forks: they need a real offset, not the "-1" of reads.
FIRST_OFFSET: Final = format_offset(0, 0)

TYPES: Final = {
    "json": "application/json",
    "text": "text/plain",
    "bytes": "application/octet-stream",
}

Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]


@with_target
def create(
    target: Target,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="Path of the new stream.")],
    type: Annotated[
        str,
        typer.Option(
            "-t", "--type", help="json for messages, text for lines, bytes, or any media type."
        ),
    ] = "json",
    ttl: Ttl = None,
    expires_at: ExpiresAt = None,
    keep: Keep = None,
    keep_bytes: KeepBytes = None,
    durability: Durability = None,
    unique_ids: UniqueIds = None,
    id_pointer: IdPointer = None,
    description: Description = None,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            min=1,
            metavar="NUMBER",
            help="Version of these settings: a stream with an older version gets them, one with a "
            "newer version stays as it is.",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="MESSAGE", help="First message.")
    ] = None,
    closed: Annotated[
        bool, typer.Option("--closed", help="Create it closed, with --data as its content.")
    ] = False,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Succeed if it exists with the same settings.")
    ] = False,
    json: Json = False,
) -> None:
    """Create a stream.

    If the stream exists, that is an error (exit code 4), unless it has the
    same settings and --if-missing is given, or --version says which
    settings are newer. To change individual settings, use `headwater set`.

    Examples:

      headwater create orders
      headwater create logs --type text --ttl 7d
      headwater create metrics --keep 30d --keep-bytes 10GiB
      headwater create clicks --durability relaxed
      headwater create jobs/42/output --type text --if-missing
      headwater create payments --unique-ids succeed --id-pointer /id
      headwater create metrics --keep 90d --version 2
    """
    kind = TYPES.get(type, type)
    if "/" not in kind:
        raise usage(f"{type!r} is not a type; use json, text, bytes or a media type like image/png")
    first: dict[str, Any] = {} if data is None else {"data": _first_message(data, Unit.of(kind))}
    if version is not None and (first or closed):
        raise usage("--version is about settings; append --data afterwards")
    headers = {
        "Stream-Unique-Ids": unique_ids,
        "Stream-Id-Pointer": id_pointer,
        "Stream-Description": description,
    }
    settings: dict[str, Any] = {
        "content_type": kind,
        "ttl_s": seconds_of(ttl),
        "expires_at": moment_of(expires_at, ttl),
        "retention_s": seconds_of(keep),
        "retention_bytes": None if keep_bytes is None else parse_size(keep_bytes),
        "durability": durability,
        "headers": {name: value for name, value in headers.items() if value is not None},
    }
    with target.connect(stream=stream) as client:
        handle = remote.open_stream(client, stream)
        if version is not None:
            _report(handle, handle.ensure(**settings, version=version), "ensured", json=json)
            return
        try:
            info = handle.create(**settings, closed=closed, **first)
        except ConfigConflict:
            raise
        except StreamExists:
            if not if_missing:
                raise
            info = handle.head()
        _report(handle, info, "created", json=json)


@with_target
def fork(
    target: Target,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="Path of a stream.", autocompletion=remote.complete_stream
        ),
    ],
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="Path of the new stream.")],
    where: Annotated[
        str | None, typer.Option("--at", metavar="WHERE", help=f"Where to fork: {GRAMMAR}.")
    ] = None,
    ttl: Ttl = None,
    expires_at: ExpiresAt = None,
    keep: Keep = None,
    keep_bytes: KeepBytes = None,
    durability: Durability = None,
    json: Json = False,
) -> None:
    """Create a stream that shares the history of another.

    The new stream starts with what SOURCE has now, or had at --at, and then
    goes its own way. Nothing is copied.

    Examples:

      headwater fork orders what-if
      headwater fork orders before-the-bug --at @2h
      headwater fork orders all-but-the-last --at -1
    """
    with target.connect(stream=source) as client:
        origin = remote.open_stream(client, source)
        offset, skip = None, None
        if where is not None and where != "now":
            unit = Unit.of(origin.head().content_type)
            position = locate(client, origin, parse_where(where), unit)
            offset = FIRST_OFFSET if position.offset == START else position.offset
            skip = position.skip or None
        fork = origin.fork(
            remote.open_stream(client, stream).path,
            offset=offset,
            sub_offset=skip,
            ttl_s=seconds_of(ttl),
            expires_at=moment_of(expires_at, ttl),
            retention_s=seconds_of(keep),
            retention_bytes=None if keep_bytes is None else parse_size(keep_bytes),
            durability=durability,
        )
        _report(fork, fork.head(), "forked", json=json)


@with_target
def close(target: Target, streams: remote.StreamPaths, json: Json = False) -> None:
    """Close streams: they keep their messages and accept no more.

    Readers learn that they have reached the end. Closing a closed stream is
    not an error.

    Examples:

      headwater close jobs/42/output
    """

    def close_one(stream: Stream) -> None:
        stream.close()
        _report_change(stream, "closed", json=json)

    _each(target, streams, close_one)


@with_target
def clear(
    target: Target, streams: remote.StreamPaths, yes: Yes = False, json: Json = False
) -> None:
    """Drop all messages of streams and keep the streams.

    Settings and producers stay, and groups continue with the next message.
    The messages cannot be brought back. Asks first, like `rm`.

    Examples:

      headwater clear orders
    """
    if not yes:
        confirm(target, f"all messages of {_listed(streams)}")

    def clear_one(stream: Stream) -> None:
        # No HEAD: a caller that may delete may not be allowed to read.
        record = ClearRecord(name=stream.path, url=stream.url, next_offset=stream.clear())
        report(record, f"cleared {stream.path}", json=json)

    _each(target, streams, clear_one)


@with_target
def rm(
    target: Target,
    streams: remote.StreamPaths,
    purge: Annotated[bool, typer.Option("--purge", help="Keep nothing to undelete.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete streams and everything in them.

    Asks first. Without a terminal, it does nothing unless --yes is given. A
    server may keep deleted streams for a while: see `undelete`. With
    --purge, it keeps neither these streams nor earlier ones deleted at the
    same paths.

    Examples:

      headwater rm orders
      headwater rm secrets --purge
      headwater ls --prefix tmp/ | xargs headwater rm --yes
    """
    if not yes:
        confirm(target, _listed(streams), for_good=purge)

    def remove(stream: Stream) -> None:
        stream.delete(purge=purge)
        report(RemovalRecord(name=stream.path), f"deleted {stream.path}", json=json)

    _each(target, streams, remove)


@with_target
def undelete(target: Target, streams: remote.DeletedPaths, json: Json = False) -> None:
    """Bring deleted streams back as they were.

    By default, a Headwater server keeps deleted streams for an hour.
    `headwater ls --deleted` lists them.

    Examples:

      headwater undelete orders
      headwater ls --deleted --prefix jobs/ | xargs headwater undelete
    """

    def bring_back(stream: Stream) -> None:
        try:
            stream.undelete()
        except StreamNotFound:
            raise CliError(
                f"no deleted stream {stream.path!r} is kept on {target.url}; "
                "`headwater ls --deleted` lists those that are",
                ExitCode.NOT_FOUND,
            ) from None
        _report_change(stream, "undeleted", json=json)

    _each(target, streams, bring_back)


def _listed(streams: list[str]) -> str:
    return streams[0] if len(streams) == 1 else f"{len(streams)} streams ({', '.join(streams)})"


def confirm(target: Target, what: str, *, for_good: bool = True) -> None:
    """Ask for confirmation before something is deleted."""
    if not sys.stdin.isatty():
        raise usage("deleting needs a confirmation and there is no terminal; add --yes")
    question = f"Delete {what} on {target.url}{' for good' if for_good else ''}?"
    typer.echo(f"{question} [y/N] ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CliError("nothing was deleted")


def _each(target: Target, paths: list[str], action: Callable[[Stream], None]) -> None:
    """Apply an action to every stream; a failure with one does not stop the others."""
    codes: list[ExitCode] = []
    with target.connect() as client:
        handles = [remote.open_stream(client, path) for path in paths]
        for handle in handles:
            try:
                action(handle)
            except (HeadwaterError, CliError) as error:
                explained = (
                    error
                    if isinstance(error, CliError)
                    else explain(error, url=target.url, stream=handle.path)
                )
                codes.append(explained.code)
                say(explained.message)
                if explained.code in (ExitCode.UNAVAILABLE, ExitCode.UNAUTHORISED):
                    break  # the others would fail too
    if codes:
        raise typer.Exit(codes[0])


def _report_change(stream: Stream, done: str, *, json: bool) -> None:
    """HEAD only for a record: a caller that may write or delete may not be allowed to read."""
    if json:
        _report(stream, stream.head(), done, json=True)
    else:
        tell(f"{done} {stream.path}")


def _report(stream: Stream, info: StreamInfo, done: str, *, json: bool) -> None:
    record = ChangeRecord(
        name=stream.path,
        url=stream.url,
        content_type=info.content_type,
        next_offset=info.next_offset,
        closed=info.closed,
    )
    report(record, f"{done} {stream.path}", json=json)


def _first_message(text: str, unit: Unit) -> bytes:
    if unit is Unit.MESSAGE:
        return check_json(os.fsencode(text), "the message")
    return os.fsencode(text) + (b"\n" if unit is Unit.LINE else b"")
