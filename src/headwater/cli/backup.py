"""`headwater backup` and `headwater restore`: a data directory as it was at one moment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.exits import CliError, usage
from headwater.cli.output import Json, size, write_json, write_line
from headwater.cli.progress import Progress
from headwater.cli.records import BackupRecord

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
    nothing by halves. Nothing is overwritten. Run it on the machine of the
    server.

    Examples:

      headwater backup data --to backups/monday
      headwater backup data --to /mnt/backups          # headwater-20260131T120000Z in there
      headwater backup data --to monday.tar
    """
    from headwater.store.backup import make_backup

    target = to / _dated() if to.is_dir() else to
    manifest = _follow(f"copying {directory}", make_backup(directory, target))
    _report(manifest, target, f"{target}: {_summary(manifest)}", json=json)


def restore(
    source: Annotated[
        str, typer.Option("--from", metavar="PATH", help="A backup that `headwater backup` made.")
    ],
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The data directory to make.")
    ],
    json: Json = False,
) -> None:
    """Make a data directory of a backup.

    The directory must be new or empty. Every file, page and append is
    verified before this says that it is done.

    Examples:

      headwater restore --from backups/monday --data data-of-monday
      headwater serve --data data-of-monday
    """
    from headwater.store.backup import restore_backup

    if "://" in source:
        raise usage(f"{source} is not a path; name a directory or a file on this machine")
    manifest = _follow(f"restoring {data}", restore_backup(Path(source), data))
    _report(manifest, data, f"{data}: {_summary(manifest)}, all whole", json=json)


def _dated() -> str:
    return datetime.now(UTC).strftime("headwater-%Y%m%dT%H%M%SZ")


def _follow(label: str, steps: Iterator[backups.Progress | backups.Manifest]) -> backups.Manifest:
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


def _summary(manifest: backups.Manifest) -> str:
    return f"{manifest.streams:,} streams, {size(manifest.bytes)}, as of {manifest.created_at}"


def _report(manifest: backups.Manifest, path: Path, text: str, *, json: bool) -> None:
    if not json:
        write_line(text)
        return
    write_json(
        BackupRecord(
            path=str(path),
            created_at=manifest.created_at,
            bytes=manifest.bytes,
            streams=manifest.streams,
            headwater=manifest.headwater,
        )
    )
