"""`headwater backup`: a data directory as it was at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.exits import CliError
from headwater.cli.output import Json, size, write_json, write_line
from headwater.cli.progress import Progress
from headwater.cli.records import BackupRecord
from headwater.cli.shell import say

if TYPE_CHECKING:
    from headwater.store import backup as backups


def backup(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A data directory.", exists=True, file_okay=False)
    ],
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="PATH",
            help="A new directory, a new file that ends in .tar, or a directory that exists, to "
            "put a new one with the date in its name there.",
        ),
    ],
    json: Json = False,
) -> None:
    """Copy a data directory while a server goes on using it.

    The copy holds everything that was acknowledged before it began, and
    nothing by halves: streams, history in files, keys. What is only in object
    storage stays there. Nothing is overwritten. Run it on the machine of the
    server.

    Examples:

      headwater backup data --to backups/monday
      headwater backup data --to /mnt/backups          # headwater-20260131T120000Z in there
      headwater backup data --to monday.tar
    """
    from headwater.store.backup import make_backup

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
