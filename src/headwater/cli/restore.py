"""`headwater restore`: a data directory out of object storage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.exits import CliError, usage
from headwater.cli.output import Json, instant, size, write_json, write_line
from headwater.cli.records import MissingRecord, RestoreRecord
from headwater.cli.shell import say


def restore(
    source: Annotated[
        str, typer.Option("--from", metavar="URL", help="The object storage of a server.")
    ],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="A directory to make.")],
    json: Json = False,
) -> None:
    """Make a data directory out of object storage.

    Streams come back as far as their history was uploaded; what is missing is
    said for each of them. Serve the directory with the same URL as
    --history-store: its history stays there.

    Examples:

      headwater restore --from s3://bucket/prefix --data data
      headwater serve --data data --history-store s3://bucket/prefix
    """
    from headwater.core.errors import StreamError
    from headwater.store.database import DataDirectoryError
    from headwater.store.history.remote import Remote
    from headwater.store.history.restoring import restore as rebuild

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
    if json:
        missing = [
            MissingRecord(name=m.path, bytes=m.size_bytes, messages=m.messages, all=m.whole_stream)
            for m in restored.missing
        ]
        record = RestoreRecord(
            streams=restored.streams, bytes=restored.size_bytes, as_of=as_of, missing=missing
        )
        write_json(record)
        return
    for lost in restored.missing:
        if lost.whole_stream:
            write_line(f"{lost.path}: not restored, {lost.size_bytes:,} bytes it inherits are gone")
        else:
            write_line(
                f"{lost.path}: the last {lost.size_bytes:,} bytes"
                f" ({lost.messages:,} messages) are missing"
            )
    write_line(f"{restored.streams:,} streams, {size(restored.size_bytes)}, as of {as_of}")
    say(f"whatever was written after {as_of} and not uploaded is missing too")
