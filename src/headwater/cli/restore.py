"""`headwater restore`: a data directory out of a backup, or out of object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.backup import elsewhere_notice, follow
from headwater.cli.exits import CliError, usage
from headwater.cli.output import Json, instant, size, write_json, write_line
from headwater.cli.records import MissingRecord, RestoreRecord
from headwater.cli.shell import say


def restore(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PATH|URL",
            help="A backup that `headwater backup` made, or the object storage of a server.",
        ),
    ],
    data: Annotated[
        Path,
        typer.Option("--data", metavar="DIR", help="The data directory to make: new or empty."),
    ],
    json: Json = False,
) -> None:
    """Make a data directory of a backup, or out of object storage.

    Of a backup, every file, page and append is verified before this says that
    it is done. Out of object storage, streams come back as far as their
    history was uploaded, and what is missing is said for each of them. Serve
    such a directory with the same URL as --history-store: its history stays
    there.

    Examples:

      headwater restore --from backups/monday --data data-of-monday
      headwater restore --from s3://bucket/prefix --data data
      headwater serve --data data --history-store s3://bucket/prefix
    """
    record = _out_of_storage(source, data) if "://" in source else _of_backup(Path(source), data)
    if json:
        write_json(record)
        return
    for lost in record.missing:
        if lost.all:
            write_line(f"{lost.name}: not restored, {lost.bytes:,} bytes it inherits are gone")
        else:
            write_line(
                f"{lost.name}: the last {lost.bytes:,} bytes"
                f" ({lost.messages:,} messages) are missing"
            )
    write_line(f"{record.streams:,} streams, {size(record.bytes)}, as of {record.as_of}")


def _of_backup(source: Path, data: Path) -> RestoreRecord:
    from headwater.store.restoring import restore_backup

    manifest = follow(f"restoring {data}", restore_backup(source, data))
    say(f"everything in {source} was whole")
    if manifest.elsewhere:
        say(elsewhere_notice(manifest.elsewhere))
    return RestoreRecord(
        path=str(data),
        streams=manifest.streams,
        bytes=manifest.bytes,
        as_of=manifest.created_at,
        missing=[],
    )


def _out_of_storage(source: str, data: Path) -> RestoreRecord:
    from headwater.core.errors import StreamError
    from headwater.store.history.object_storage import Remote
    from headwater.store.history.recovery import restore as rebuild
    from headwater.store.sqlite.database import DataDirectoryError

    try:
        remote = Remote(source)
    except ValueError as error:
        raise usage(str(error)) from None
    try:
        restored = rebuild(remote, data)
    except DataDirectoryError as error:
        raise CliError(str(error)) from None
    except StreamError as error:
        raise CliError(f"{source}: {error.message}") from None
    for damage in restored.skipped:
        say(f"skipped a damaged catalog: {damage}")
    as_of = instant(restored.made_at_ms) or ""
    say(f"whatever was written after {as_of} and not uploaded is missing too")
    return RestoreRecord(
        path=str(data),
        streams=restored.streams,
        bytes=restored.size_bytes,
        as_of=as_of,
        missing=[
            MissingRecord(name=m.path, bytes=m.size_bytes, messages=m.messages, all=m.whole_stream)
            for m in restored.missing
        ],
    )
