"""`headwater segments`: the files of history of a data directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Annotated, Final

import typer

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
    from headwater.store.rows import Query

app = typer.Typer(no_args_is_help=True)

_PLACES: Final = {(1, False): "here", (0, True): "object storage", (1, True): "both"}

Directory = Annotated[
    Path, typer.Argument(metavar="DIR", help="A data directory.", exists=True, file_okay=False)
]


@app.callback()
def _segments() -> None:
    """Look after the files of history.

    Older data is in immutable files next to the database, on this machine,
    in object storage, or both.

    Examples:

      headwater segments ls data
      headwater segments verify data --store s3://bucket/prefix
      headwater segments compact data
    """


@contextmanager
def _reading(directory: Path) -> Iterator[Query]:
    """Questions to the database of a directory. A server may be running."""
    from headwater.store.sqlite.database import DATABASE_NAME, connect

    path = directory / DATABASE_NAME
    if not path.is_file():
        raise usage(f"{directory} holds no headwater database; name the directory given to --data")
    with closing(connect(path, read_only=True)) as connection:
        yield lambda sql, values: connection.execute(sql, values).fetchall()


@app.command()
def ls(directory: Directory, json: Json = False) -> None:
    """List the files, oldest first.

    Safe while a server is running.

    Examples:

      headwater segments ls data
      headwater segments ls data --json | jq -s 'map(.bytes) | add'
    """
    from headwater.store.history.segment import PRESENT

    with _reading(directory) as query:
        found = query(
            "SELECT s.id, s.name, s.size, s.created_at, s.local, s.remote, count(e.run),"
            " count(DISTINCT e.run), ifnull(sum(e.until - e.start), 0) FROM segments s"
            " LEFT JOIN extents e ON e.segment_id = s.id GROUP BY s.id ORDER BY s.id",
            (),
        )
    for number, name, bytes_, created, local, remote, extents, streams, needed in found:
        place = _PLACES.get((local, remote == PRESENT), "going")
        record = SegmentRecord(
            id=number,
            name=name,
            bytes=bytes_,
            needed_bytes=needed,
            streams=streams,
            extents=extents,
            created_at=instant(created) or "",
            place=place,
        )
        if json:
            write_json(record)
        else:
            write_line(f"{name}  {size(bytes_):>10}  {streams:>6} streams  {place}")


@app.command()
def verify(
    directory: Directory,
    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="Look at object storage as well.")
    ] = "",
    json: Json = False,
) -> None:
    """Compare every block of every file with its checksum.

    Safe while a server is running. `headwater verify` checks the database
    and the files of this machine; this checks the files alone, and with
    --store those in object storage too.

    Examples:

      headwater segments verify data
      headwater segments verify data --store s3://bucket/prefix
    """
    from headwater.core.errors import DataCorrupt, HistoryUnavailable
    from headwater.store.history.object_storage import Remote
    from headwater.store.history.open_segments import DIRECTORY_NAME
    from headwater.store.history.segment import PRESENT, Segment
    from headwater.store.sqlite.segments import find_segments

    try:
        remote = Remote(store) if store else None
    except ValueError as error:
        raise usage(str(error)) from None
    problems: list[ProblemRecord] = []
    with _reading(directory) as query:
        rows = find_segments(query, "EXISTS (SELECT 1 FROM extents WHERE segment_id = s.id)")
    checked = 0
    for row in rows:
        try:
            if row.local:
                Segment.open(directory / DIRECTORY_NAME / row.name, row).check_all()
            if remote is not None and row.remote == PRESENT:
                remote.verify(row)
            checked += bool(row.local or remote)
        except FileNotFoundError:
            problems.append(ProblemRecord(where=row.name, what="the file is missing"))
        except DataCorrupt as error:
            problems.append(ProblemRecord(where=row.name, what=error.where))
        except HistoryUnavailable as error:
            raise CliError(f"{store} does not answer: {error.problem}") from None
    if json:
        write_json(VerifyRecord(ok=not problems, problems=problems))
    else:
        for problem in problems:
            write_line(f"{problem.where}: {problem.what}")
    if problems:
        raise CliError(f"{len(problems):,} of {checked:,} files are not whole")
    if not json:
        write_line("ok")
    say(f"{checked:,} of {len(rows):,} files looked at: all whole")


@app.command()
def sweep(
    directory: Directory,
    store: Annotated[str, typer.Option("--store", metavar="URL", help="The object storage.")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove them.")] = False,
    json: Json = False,
) -> None:
    """Find files in object storage that nobody knows of.

    That is what a machine that was lost had uploaded after its last catalog,
    for example. Neither this directory nor any catalog names them. Without
    --remove they are only listed. Safe while a server is running.

    Examples:

      headwater segments sweep data --store s3://bucket/prefix
      headwater segments sweep data --store s3://bucket/prefix --remove
    """
    from headwater.core.errors import HistoryUnavailable
    from headwater.store.history.object_storage import Remote
    from headwater.store.history.orphans import NotItsOwn, find_orphans

    try:
        remote = Remote(store)
    except ValueError as error:
        raise usage(str(error)) from None
    with _reading(directory) as query:
        try:
            orphans = find_orphans(remote, query)
            for name in orphans:
                if remove:
                    remote.delete(name)
                if json:
                    write_json(OrphanRecord(name=name, removed=remove))
                else:
                    write_line(name)
        except NotItsOwn:
            raise CliError(
                f"{store} holds the history of another server than {directory}; nothing was removed"
            ) from None
        except HistoryUnavailable as error:
            raise CliError(f"{store} does not answer: {error.problem}") from None
    say(f"{len(orphans):,} {'removed' if remove else 'found; --remove removes them'}")


@app.command()
def compact(
    directory: Directory,
    segment_bytes: Annotated[
        int, typer.Option("--segment-bytes", min=1024, help="About the size of a file.")
    ] = 64 * MIB,
    json: Json = False,
) -> None:
    """Make few files out of many.

    Rewrites files that are small or of which little is still needed, and
    removes the old ones. A running server does that by itself, bit by bit;
    this does all of it at once, and the server has to be stopped. Files that
    are only in object storage stay as they are.

    Examples:

      headwater segments compact data
    """
    from headwater.core.errors import StreamError
    from headwater.store.history.compaction import compact as rewrite
    from headwater.store.sqlite.database import DATABASE_NAME, DataDirectoryError
    from headwater.store.sqlite.engine import SqliteEngine

    if not (directory / DATABASE_NAME).is_file():
        raise usage(f"{directory} holds no headwater database; name the directory given to --data")
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
