"""`headwater backup` and `headwater restore`: a data directory as it was at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.engines import is_address
from headwater.cli.exits import CliError, usage
from headwater.cli.output import Json, Progress, instant, size, write_json, write_line
from headwater.cli.records import BackupRecord, MissingRecord, RestoreRecord
from headwater.cli.shell import say

if TYPE_CHECKING:
    from headwater.store import backup as backups


def backup(
    place: Annotated[str, typer.Argument(metavar="DIR", help="A data directory.")],
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="PATH",
            help="A new directory, a new file that ends in .tar, or an existing "
            "directory, in which a new one with the date in its name is created.",
        ),
    ],
    json: Json = False,
) -> None:
    """Copy a data directory while a server is using it.

    The copy is consistent and has everything that was acknowledged before
    it began: streams, history files, keys. Data that is only in object
    storage stays there. Nothing is overwritten. Run it on the server's
    machine.

    Examples:

      headwater backup data --to backups/monday
      headwater backup data --to /mnt/backups          # headwater-20260131T120000Z in there
      headwater backup data --to monday.tar
    """
    from headwater.store.backup import make_backup

    if is_address(place):
        raise usage(
            "back up PostgreSQL with its own tools (pg_dump, pg_basebackup, the service's), or "
            "`headwater copy` the database into a directory while no node runs"
        )
    directory = Path(place)
    if not directory.is_dir():
        raise usage(f"{directory} is not a directory; name the one given to --data")
    target = to / _dated() if to.is_dir() else to
    manifest = follow(f"copying {directory}", make_backup(directory, target))
    if manifest.elsewhere:
        say(elsewhere_notice(manifest.elsewhere))
    if json:
        write_json(
            BackupRecord(
                path=str(target),
                created_at=manifest.created_at,
                bytes=manifest.bytes,
                streams=manifest.streams,
                headwater=manifest.headwater,
            )
        )
        return
    write_line(
        f"{target}: {manifest.streams:,} streams, {size(manifest.bytes)},"
        f" as of {manifest.created_at}"
    )


def elsewhere_notice(files: int) -> str:
    return f"{files:,} files of history are only in object storage and needed from there"


def _dated() -> str:
    return datetime.now(UTC).strftime("headwater-%Y%m%dT%H%M%SZ")


def follow(label: str, steps: Iterator[backups.Progress | backups.Manifest]) -> backups.Manifest:
    from headwater.store.backup import BackupError, Manifest

    try:
        with Progress(label) as progress:
            for step in steps:
                if isinstance(step, Manifest):
                    return step
                progress.expect(step.total or None)
                progress.update(step.done, step.what, in_bytes=False)
    except BackupError as error:
        raise CliError(str(error)) from None
    raise AssertionError("a backup ends with what it made")


def restore(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PATH|URL",
            help="A backup made by `headwater backup`, or the URL of a server's object storage.",
        ),
    ],
    data: Annotated[
        Path,
        typer.Option("--data", metavar="DIR", help="The data directory to create; new or empty."),
    ],
    json: Json = False,
) -> None:
    """Create a data directory from a backup or from object storage.

    From a backup, every file, page and append is verified before the
    command succeeds. From object storage, streams come back as far as their
    history was uploaded, and the command lists what each of them is
    missing. Serve such a directory with the same URL as --history-store:
    its history stays there.

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
    say(f"everything in {source} is intact")
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
