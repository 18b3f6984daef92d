"""`headwater ls`, `headwater info` and `headwater ranges`: what exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import remote
from headwater.cli.exits import one_line, usage
from headwater.cli.output import Json, instant, new_table, size, write_facts, write_json, write_list
from headwater.cli.quantities import parse_size
from headwater.cli.records import DetailRecord, RangeRecord
from headwater.cli.stream_options import Prefix
from headwater.cli.target import Target, with_target
from headwater.client import StreamSummary

if TYPE_CHECKING:
    from rich.table import Table


@with_target
def ls(
    target: Target,
    prefix: Prefix = "",
    deleted: Annotated[
        bool, typer.Option("--deleted", help="List deleted streams that can be undeleted instead.")
    ] = False,
    json: Json = False,
) -> None:
    """List streams: a table on a terminal, otherwise one path per line.

    Examples:

      headwater ls
      headwater ls --prefix jobs/
      headwater ls --json | jq -r 'select(.closed) | .name'
      headwater ls --deleted
    """
    with target.connect() as client:
        pages = remote.list_streams(client, prefix, deleted=deleted)
        write_list(
            (stream for page in pages for stream in page),
            json=json,
            record=remote.deleted_record if deleted else remote.stream_record,
            line=lambda stream: stream.name,
            table=_deleted_table if deleted else _table,
            nothing="no deleted streams"
            if deleted
            else "no streams; make one with `headwater create NAME`",
        )


@with_target
def info(target: Target, stream: remote.StreamPath, json: Json = False) -> None:
    """Show what is known about a stream.

    Examples:

      headwater info orders
      headwater info orders --json | jq .messages
    """
    with target.connect(stream=stream) as client:
        handle = remote.open_stream(client, stream)
        head = handle.head()
        # Only Headwater has details. Every server answers HEAD.
        details = remote.find_details(handle) or remote.info_details(handle.path, head)
        record = remote.detail_record(details, handle.url, head)
    if json:
        write_json(record)
        return
    write_facts(
        {
            "stream": record.name,
            "url": record.url,
            "type": record.content_type,
            "closed": record.closed,
            "messages": record.messages,
            "bytes": record.bytes,
            "next offset": record.next_offset,
            "created": record.created_at,
            "expires": record.expires_at,
            "time to live": None if record.ttl_s is None else f"{record.ttl_s:,} s",
            "keeps": _kept(record),
            "durability": record.durability,
            "forked from": record.forked_from,
            "forks": record.forks,
            "producers": record.producers,
            "readers": record.readers,
        }
    )


@with_target
def ranges(
    target: Target,
    stream: remote.StreamPath,
    max_bytes: Annotated[
        str | None,
        typer.Option(
            "--max-bytes", metavar="SIZE", help="Approximate size of a range, such as 64MiB."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Split a stream into ranges that can be read in parallel.

    Splits where history files begin and end, and names those files. Read
    each range with `headwater read --from OFFSET --until UNTIL`.

    Examples:

      headwater ranges orders
      headwater ranges orders --max-bytes 64MiB --json | jq -r .offset
    """
    limit = None if max_bytes is None else parse_size(max_bytes)
    if limit == 0:
        raise usage("a range has at least one byte")
    with target.connect(stream=stream) as client:
        found = remote.open_stream(client, stream).ranges(max_bytes=limit).ranges
    records = [
        RangeRecord(
            offset=one.offset,
            until=one.until,
            messages=one.messages,
            bytes=one.bytes,
            first_at=instant(one.first_timestamp) if one.messages else None,
            file=one.file.name if one.file else None,
        )
        for one in found
    ]
    write_list(
        records,
        json=json,
        record=lambda one: one,
        line=lambda one: f"{one.offset}\t{one.until}",
        table=_range_table,
        nothing="no ranges",
    )


def _range_table(records: list[RangeRecord]) -> Table:
    table = new_table("FROM", "UNTIL", "#MESSAGES", "#SIZE", "FIRST", "FILE", folding=2)
    for one in records:
        first = _moment(one.first_at)
        row = (f"{one.messages:,}", size(one.bytes), first, one_line(one.file or "database"))
        table.add_row(one_line(one.offset), one_line(one.until), *row)
    return table


def _kept(record: DetailRecord) -> str | None:
    """What a stream keeps of its data; None if it keeps all."""
    limits = []
    if record.retention_s is not None:
        limits.append(f"{record.retention_s:,} s")
    if record.retention_bytes is not None:
        limits.append(size(record.retention_bytes))
    return ", at most ".join(limits) or None


def _table(streams: list[StreamSummary]) -> Table:
    table = new_table("STREAM", "TYPE", "#MESSAGES", "#SIZE", "CREATED", "STATE", folding=2)
    for stream in streams:
        record = remote.stream_record(stream)
        table.add_row(
            one_line(record.name),
            one_line(record.content_type or ""),
            "" if record.messages is None else f"{record.messages:,}",
            "" if record.bytes is None else size(record.bytes),
            _moment(record.created_at),
            "closed" if record.closed else "open",
        )
    return table


def _deleted_table(streams: list[StreamSummary]) -> Table:
    table = new_table("STREAM", "#MESSAGES", "#SIZE", "DELETED", "KEPT UNTIL", folding=1)
    for stream in streams:
        record = remote.deleted_record(stream)
        table.add_row(
            one_line(record.name),
            "" if record.messages is None else f"{record.messages:,}",
            "" if record.bytes is None else size(record.bytes),
            _moment(record.deleted_at),
            _moment(record.kept_until),
        )
    return table


def _moment(instant: str | None) -> str:
    """A time as tables show it, to the second."""
    return (instant or "").partition(".")[0].rstrip("Z").replace("T", " ")
