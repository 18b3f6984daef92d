"""`headwater verify`: is a data directory whole?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.exits import CliError, usage
from headwater.cli.output import Json, Progress, write_json, write_line
from headwater.cli.records import ProblemRecord, VerifyRecord
from headwater.cli.shell import say


def verify(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A data directory.", exists=True, file_okay=False)
    ],
    json: Json = False,
) -> None:
    """Check everything that a data directory holds.

    Walks every page, every stream and every append, and compares each with
    its checksum. Safe while a server is running. Exits with 1 when
    something is wrong; what it is and where is on stdout.

    Examples:

      headwater verify data
      headwater verify data --json | jq .problems
    """
    from headwater.store.engine import Problem
    from headwater.store.sqlite.database import DATABASE_NAME
    from headwater.store.verify import verify_database

    path = directory / DATABASE_NAME
    if not path.is_file():
        raise usage(f"{directory} holds no headwater database; name the directory given to --data")
    problems: list[ProblemRecord] = []
    last = ""
    with Progress(f"verifying {directory}") as progress:
        for step, result in enumerate(verify_database(path)):
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
        raise CliError(f"{count} found in {directory}; restore it from a copy")
    if sys.stderr.isatty():
        say(f"{last}: all whole")
    if not json:
        write_line("ok")
