"""`headwater verify`: is a data directory or a database intact?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.engines import is_address, opening, shown
from headwater.cli.exits import CliError, usage
from headwater.cli.output import Json, Progress, write_json, write_line
from headwater.cli.records import ProblemRecord, VerifyRecord
from headwater.cli.shell import say

if TYPE_CHECKING:
    from headwater.store.engine import Problem


def verify(
    place: Annotated[
        str,
        typer.Argument(metavar="DIR", help="A data directory, or postgresql://HOST/DATABASE."),
    ],
    json: Json = False,
) -> None:
    """Check everything in a data directory or a PostgreSQL database.

    Checks every page, every stream and every append against its checksum.
    Safe while a server is running. Exits with 1 if something is wrong, and
    writes what and where to stdout.

    Examples:

      headwater verify data
      headwater verify data --json | jq .problems
      headwater verify postgresql://db/headwater
    """
    from headwater.store.engine import Problem

    name = shown(place)
    problems: list[ProblemRecord] = []
    last = ""
    with Progress(f"verifying {name}") as progress, opening():
        for step, result in enumerate(_walk(place)):
            if isinstance(result, Problem):
                problems.append(ProblemRecord(where=result.where, what=result.what))
                if not json:
                    write_line(f"{result.where}: {result.what}")
                continue
            last = result
            if progress.wanted:
                progress.update(step, result, in_bytes=False)
            else:
                typer.echo(result, err=True)
    if json:
        write_json(VerifyRecord(ok=not problems, problems=problems))
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems):,} problems"
        raise CliError(f"{count} found in {name}; restore it from a copy")
    if sys.stderr.isatty():
        say(f"{last}: all intact")
    if not json:
        write_line("ok")


def _walk(place: str) -> Iterator[Problem | str]:
    if is_address(place):
        from headwater.store.postgresql.inspection import verify_address

        return verify_address(place)
    from headwater.store.sqlite.database import DATABASE_NAME
    from headwater.store.verify import verify_database

    path = Path(place) / DATABASE_NAME
    if not path.is_file():
        raise usage(f"{place} holds no headwater database; name the directory given to --data")
    return verify_database(path)
