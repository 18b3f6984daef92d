"""`headwater snapshot`: states of a stream that new readers start from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.cli import remote
from headwater.cli.exits import one_line, usage
from headwater.cli.inputs import read_whole
from headwater.cli.output import (
    Json,
    instant,
    new_table,
    report,
    size,
    stdout,
    write_list,
)
from headwater.cli.records import SnapshotRecord, SnapshotRemovalRecord
from headwater.cli.shell import say
from headwater.cli.streams import TYPES, Yes, confirm
from headwater.cli.target import Target, with_target

if TYPE_CHECKING:
    from rich.table import Table

LATEST: Final = "latest"

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _snapshot() -> None:
    """Store states of a stream, so that readers can start from them.

    Examples:

      headwater snapshot put orders now --file state.json
      headwater snapshot get orders > state.json
      headwater snapshot ls orders
    """


@app.command()
@with_target
def ls(target: Target, stream: remote.StreamPath, json: Json = False) -> None:
    """List the snapshots of a stream: a table on a terminal, otherwise one offset per line.

    Examples:

      headwater snapshot ls orders
      headwater snapshot ls orders --json | jq .bytes
    """
    with target.connect(stream=stream) as client:
        handle = remote.open_stream(client, stream)
        found = handle.snapshots.list()
    records = [
        SnapshotRecord(
            name=handle.path,
            offset=one.offset,
            content_type=one.content_type,
            bytes=one.size_bytes,
            created_at=instant(one.created),
        )
        for one in found
    ]
    write_list(
        records,
        json=json,
        record=lambda one: one,
        line=lambda one: one.offset,
        table=_table,
        nothing=f"no snapshots; leave one with `headwater snapshot put {stream} OFFSET`",
    )


@app.command()
@with_target
def get(
    target: Target,
    stream: remote.StreamPath,
    offset: Annotated[
        str,
        typer.Argument(metavar="[OFFSET]", help="Offset of the snapshot; the latest by default."),
    ] = LATEST,
) -> None:
    """Write a snapshot to stdout. On a terminal, also say where to continue reading.

    Examples:

      headwater snapshot get orders > state.json
      headwater snapshot get orders 0000000000000001_0000000000000042
    """
    with target.connect(stream=stream) as client:
        snapshot = remote.open_stream(client, stream).snapshots.get(offset)
    stdout().write(snapshot.data)
    stdout().flush()
    say(f"to continue from here: headwater read {stream} --from {snapshot.offset}")


@app.command()
@with_target
def put(
    target: Target,
    stream: remote.StreamPath,
    offset: Annotated[
        str, typer.Argument(metavar="OFFSET", help="Offset of the state; now for the current end.")
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", exists=True, dir_okay=False, help="Read this file instead of stdin."
        ),
    ] = None,
    type: Annotated[
        str, typer.Option("-t", "--type", help="json, text, bytes, or any media type.")
    ] = "json",
    json: Json = False,
) -> None:
    """Store a state at an offset, replacing any that is there.

    The state is what a reader would have after reading everything before
    the offset. The server keeps the newest snapshots.

    Examples:

      headwater snapshot put orders now --file state.json
      jq -s add rows.json | headwater snapshot put orders 0000000000000001_0000000000000042
    """
    kind = TYPES.get(type, type)
    if "/" not in kind:
        raise usage(f"{type!r} is not a type; use json, text, bytes or a media type like image/png")
    data = read_whole([file] if file else [])
    with target.connect(stream=stream) as client:
        handle = remote.open_stream(client, stream)
        at = (handle.head().next_offset or offset) if offset == "now" else offset
        handle.snapshots.put(at, data, content_type=kind)
    record = SnapshotRecord(
        name=handle.path, offset=at, content_type=kind, bytes=len(data), created_at=None
    )
    report(record, f"left {size(len(data))} at {at}", json=json)


@app.command()
@with_target
def rm(
    target: Target,
    stream: remote.StreamPath,
    offset: Annotated[str, typer.Argument(metavar="OFFSET", help="Which one.")],
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete a snapshot. The stream stays as it is.

    Examples:

      headwater snapshot rm orders 0000000000000001_0000000000000042
    """
    if not yes:
        confirm(target, f"the snapshot of {stream} at {offset}")
    with target.connect(stream=stream) as client:
        handle = remote.open_stream(client, stream)
        handle.snapshots.delete(offset)
    record = SnapshotRemovalRecord(name=handle.path, offset=offset)
    report(record, f"deleted the snapshot at {offset}", json=json)


def _table(records: list[SnapshotRecord]) -> Table:
    table = new_table("OFFSET", "TYPE", "#SIZE", "CREATED")
    for one in records:
        row = (one_line(one.content_type), size(one.bytes), one.created_at)
        table.add_row(one_line(one.offset), *row)
    return table
