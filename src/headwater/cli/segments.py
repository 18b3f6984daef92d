"""`headwater segments`: the history files of a data directory or a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from headwater.cli.engines import is_address, opening, shown
from headwater.cli.exits import CliError, usage
from headwater.cli.output import Json, instant, size, write_json, write_line
from headwater.cli.records import (
    CompactRecord,
    OrphanRecord,
    ProblemRecord,
    SegmentRecord,
    VerifyRecord,
)
from headwater.cli.shell import say
from headwater.core.limits import MIB

if TYPE_CHECKING:
    from headwater.store.history.object_storage import Remote
    from headwater.store.history.segment import SegmentRow
    from headwater.store.rows import Query

app = typer.Typer(no_args_is_help=True)

_PLACES: Final = {(1, False): "here", (0, True): "object storage", (1, True): "both"}

_NEEDED: Final = "EXISTS (SELECT 1 FROM extents WHERE segment_id = s.id)"

Place = Annotated[
    str, typer.Argument(metavar="DIR", help="A data directory, or postgresql://HOST/DATABASE.")
]


@app.callback()
def _segments() -> None:
    """Inspect and maintain history files.

    Older data is in immutable files on this machine, in object storage, or
    both. With PostgreSQL, it is in object storage.

    Examples:

      headwater segments ls data
      headwater segments verify data --store s3://bucket/prefix
      headwater segments compact data
      headwater segments ls postgresql://db/headwater
    """


class Noted(NamedTuple):
    """Where the files are recorded."""

    query: Query
    is_going: str
    """The condition that a file of `segments s` is no longer needed, if that is recorded too."""
    directory: Path | None = None
    owner: str = ""
    """The database's name in object storage, if its files are nowhere else."""


@contextmanager
def _reading(place: str) -> Iterator[Noted]:
    """Query the database of a directory, or PostgreSQL. A server may be running."""
    if is_address(place):
        with opening():
            from headwater.store.postgresql.inspection import reading

            with reading(place) as (query, owner):
                yield Noted(query, "s.unused_at IS NOT NULL", owner=owner)
        return
    from headwater.store.sqlite.database import connect

    with closing(connect(_database(place), read_only=True)) as connection:
        yield Noted(
            lambda sql, values: connection.execute(sql, values).fetchall(), "false", Path(place)
        )


def _database(directory: str) -> Path:
    """The database of a directory."""
    from headwater.store.sqlite.database import DATABASE_NAME

    path = Path(directory) / DATABASE_NAME
    if not path.is_file():
        raise usage(f"{directory} holds no headwater database; name the directory given to --data")
    return path


def _remote(store: str) -> Remote:
    from headwater.store.history.object_storage import Remote

    try:
        return Remote(store)
    except ValueError as error:
        raise usage(str(error)) from None


@contextmanager
def _asking(store: str, place: str) -> Iterator[None]:
    """End the command if object storage refuses, or belongs to another server."""
    from headwater.core.errors import HistoryUnavailable
    from headwater.store.history.orphans import NotItsOwn

    try:
        yield
    except NotItsOwn:
        raise CliError(f"{store} holds the history of another server than {shown(place)}") from None
    except HistoryUnavailable as error:
        raise CliError(f"{store} does not answer: {error.problem}") from None


@app.command()
def ls(place: Place, json: Json = False) -> None:
    """List the files, oldest first.

    Safe while a server is running.

    Examples:

      headwater segments ls data
      headwater segments ls postgresql://db/headwater
      headwater segments ls data --json | jq -s 'map(.bytes) | add'
    """
    with _reading(place) as noted:
        found = noted.query(
            "SELECT s.id, s.name, s.size, s.created_at, s.local, s.remote, count(e.run),"
            " count(DISTINCT e.run), CAST(coalesce(sum(e.until - e.start), 0) AS bigint),"
            f" {noted.is_going} FROM segments s"
            " LEFT JOIN extents e ON e.segment_id = s.id GROUP BY s.id ORDER BY s.id",
            (),
        )
        is_here = noted.directory is not None
    for number, name, bytes_, created, local, remote, extents, streams, needed, going in found:
        where = "going" if going else _where(local, remote, is_here=is_here)
        record = SegmentRecord(
            id=number,
            name=name,
            bytes=bytes_,
            needed_bytes=needed,
            streams=streams,
            extents=extents,
            created_at=instant(created) or "",
            place=where,
        )
        if json:
            write_json(record)
        else:
            write_line(f"{name}  {size(bytes_):>10}  {streams:>6} streams  {where}")


def _where(local: int, remote: int, *, is_here: bool) -> str:
    from headwater.store.history.segment import PRESENT

    # A node records a file before it uploads it. A directory has the file before it records it.
    return _PLACES.get((local, remote == PRESENT), "going" if is_here else "uploading")


@app.command()
def verify(
    place: Place,
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="Also check files in object storage.")
    ] = "",
    json: Json = False,
) -> None:
    """Check every block of every file against its checksum.

    Safe while a server is running. `headwater verify` checks the database
    and the files on this machine; this command checks only files, and with
    --store those in object storage too. With PostgreSQL, all files are
    there.

    Examples:

      headwater segments verify data
      headwater segments verify data --store s3://bucket/prefix
      headwater segments verify postgresql://db/headwater --store s3://bucket/prefix
    """
    if is_address(place) and not store:
        raise usage(
            "the files of a PostgreSQL database are in object storage; name it with --store"
        )
    remote = _remote(store) if store else None
    problems: list[ProblemRecord] = []
    checked = 0
    with _reading(place) as noted, _asking(store, place):
        rows = _needed(noted, remote)
        for row in rows:
            problem = _problem(noted, row, remote)
            if problem:
                problems.append(ProblemRecord(where=row.name, what=problem))
            checked += bool(row.local or remote)
    if json:
        write_json(VerifyRecord(ok=not problems, problems=problems))
    else:
        for one in problems:
            write_line(f"{one.where}: {one.what}")
    if problems:
        raise CliError(f"{len(problems):,} of {checked:,} files are not whole")
    if not json:
        write_line("ok")
    say(f"{checked:,} of {len(rows):,} files checked: all intact")


def _needed(noted: Noted, remote: Remote | None) -> list[SegmentRow]:
    """The files that hold data. Raises NotItsOwn if they cannot be in object storage."""
    from headwater.store.history.orphans import require_owner
    from headwater.store.sql.extents import find_segments

    rows = find_segments(noted.query, _NEEDED)
    if noted.owner and remote is not None:
        require_owner(noted.owner, remote, is_empty=not rows)
    return rows


def _problem(noted: Noted, row: SegmentRow, remote: Remote | None) -> str:
    """What is wrong with a file; empty if it is no longer needed by now."""
    from headwater.core.errors import DataCorrupt
    from headwater.store.history.open_segments import DIRECTORY_NAME
    from headwater.store.history.segment import PRESENT, Segment
    from headwater.store.sql.extents import find_segments

    try:
        if row.local and noted.directory is not None:
            Segment.open(noted.directory / DIRECTORY_NAME / row.name, row).check_all()
        if remote is not None and row.remote == PRESENT:
            remote.verify(row)
        return ""
    except FileNotFoundError:
        problem = "the file is missing"
    except DataCorrupt as error:
        problem = error.where
    # It may have been rewritten, evicted or removed meanwhile.
    return problem if row in find_segments(noted.query, f"id = ? AND {_NEEDED}", (row.id,)) else ""


@app.command()
def sweep(
    place: Place,
    store: Annotated[str, typer.Option("--store", metavar="URL", help="The object storage.")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove them.")] = False,
    json: Json = False,
) -> None:
    """Find files in object storage that nothing refers to.

    For example, files that a lost machine uploaded after its last catalog,
    or that nodes uploaded after the moment to which you restored a
    PostgreSQL database. Neither the database nor any catalog names them.
    Without --remove, they are only listed. Safe while a server is running.

    Examples:

      headwater segments sweep data --store s3://bucket/prefix
      headwater segments sweep data --store s3://bucket/prefix --remove
      headwater segments sweep postgresql://db/headwater --store s3://bucket/prefix
    """
    from headwater.store.history.orphans import find_orphans, find_orphans_of

    remote = _remote(store)
    with _reading(place) as noted, _asking(store, place):
        if noted.owner:
            orphans = find_orphans_of(noted.owner, remote, noted.query)
        else:
            orphans = find_orphans(remote, noted.query)
        for name in orphans:
            if remove:
                remote.delete(name)
            if json:
                write_json(OrphanRecord(name=name, removed=remove))
            else:
                write_line(name)
    say(f"{len(orphans):,} {'removed' if remove else 'found; --remove removes them'}")


@app.command()
def compact(
    place: Place,
    segment_bytes: Annotated[
        int, typer.Option("--segment-bytes", min=1024, help="Approximate size of a file.")
    ] = 64 * MIB,
    json: Json = False,
) -> None:
    """Merge small history files into large ones.

    Rewrites files that are small or mostly unused, and removes the old
    ones. A running server does that gradually; this does it all at once,
    and the server has to be stopped. Files that are only in object storage
    stay as they are, and so do all files of a PostgreSQL database.

    Examples:

      headwater segments compact data
    """
    from headwater.core.errors import StreamError
    from headwater.store.history.compaction import compact as rewrite
    from headwater.store.sqlite.database import DataDirectoryError
    from headwater.store.sqlite.engine import SqliteEngine

    if is_address(place):
        raise usage(
            "the files of a PostgreSQL database are not compacted; for fewer and larger ones,"
            " raise --seal-after-ms and --seal-after-bytes of its nodes"
        )
    directory = _database(place).parent
    try:
        with closing(SqliteEngine(directory)) as engine:
            done = rewrite(engine.history, segment_bytes, time_ns() // 1_000_000)
    except DataDirectoryError as error:
        raise CliError(str(error)) from None
    except StreamError as error:
        raise CliError(error.message) from None
    record = CompactRecord(
        files_before=done.files_before,
        files_after=done.files_after,
        bytes_before=done.bytes_before,
        bytes_after=done.bytes_after,
    )
    if json:
        write_json(record)
    else:
        write_line(
            f"{done.files_before:,} files ({size(done.bytes_before)}) became"
            f" {done.files_after:,} ({size(done.bytes_after)})"
        )
