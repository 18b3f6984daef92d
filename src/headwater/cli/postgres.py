"""`headwater postgres`: the changes of a PostgreSQL database in a stream."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
import uvloop

from headwater.cli.exits import CliError, ExitCode, usage
from headwater.cli.failures import explain
from headwater.cli.output import Json, size, write_facts, write_json, write_line
from headwater.cli.records import PostgresRecord, TableRecord
from headwater.cli.remote import StreamPath
from headwater.cli.shell import say
from headwater.cli.target import Target, with_target
from headwater.client import HeadwaterError

if TYPE_CHECKING:
    from headwater.postgres import Database, PostgresError
    from headwater.postgres.manage import Status

app = typer.Typer(no_args_is_help=True)

DEFAULT_NAME: Final = "headwater"
# How long an append is retried before new connections are made.
PATIENCE_S: Final = 2.0

T = TypeVar("T")

Dsn = Annotated[
    str,
    typer.Argument(
        metavar="DSN",
        help="The database: postgresql://USER@HOST:PORT/NAME, or host=… dbname=… user=….",
    ),
]
SlotName = Annotated[
    str,
    typer.Option(
        "--slot",
        metavar="NAME",
        help="The replication slot, which remembers how far the database was read.",
    ),
]
PublicationName = Annotated[
    str,
    typer.Option("--publication", metavar="NAME", help="The publication, which names the tables."),
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="A table for a new publication, such as orders or sales.orders; repeatable. Without "
        "it, all tables.",
        show_default=False,
    ),
]


@app.callback()
def _postgres() -> None:
    """Append the changes of a PostgreSQL database to a stream.

    Needs `pip install headwater[postgres]`, PostgreSQL 15 or later with
    wal_level = logical, and a role with REPLICATION. Put a password in
    $PGPASSWORD, ~/.pgpass or a service file, not in the DSN, where others
    can see it.

    Examples:

      headwater postgres follow postgresql://localhost/app changes --create --snapshot
      headwater postgres status postgresql://localhost/app
    """


@app.command()
@with_target
def follow(
    target: Target,
    dsn: Dsn,
    stream: StreamPath,
    slot: SlotName = DEFAULT_NAME,
    publication: PublicationName = DEFAULT_NAME,
    tables: Tables = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create", help="Create the stream, the publication and the slot if missing."
        ),
    ] = False,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Start a new slot with the existing rows.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Exit once everything committed so far is stored.")
    ] = False,
) -> None:
    """Append every committed change to a stream, in order, exactly once.

    Runs until SIGTERM or Ctrl-C, and waits out failures of both sides. You
    can stop or kill it at any time: the next run continues where the stream
    ends. Until then, PostgreSQL keeps the changes, so drop a slot that you
    no longer need.

    Examples:

      headwater postgres follow postgresql://localhost/app changes --create --snapshot
      headwater postgres follow service=app changes --slot app --once
    """

    async def run(database: Database) -> None:
        from headwater.postgres import Follower, Wanted
        from headwater.postgres.follower import counted

        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        async with target.connect_async(patience_s=PATIENCE_S) as client:
            try:
                client.stream(stream)
            except ValueError:
                raise usage(f"{stream!r} is not the path of a stream") from None
            wanted = Wanted(stream, slot, publication, tuple(tables or ()), create, snapshot)
            follower = Follower(database, client, wanted, say=say)
            try:
                await follower.run(stop, once=once)
            except HeadwaterError as error:
                raise explain(error, url=target.url, stream=stream) from error
        say(counted(follower.stored))

    _run(dsn, run)


@app.command()
def setup(
    dsn: Dsn,
    slot: SlotName = DEFAULT_NAME,
    publication: PublicationName = DEFAULT_NAME,
    tables: Tables = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Set REPLICA IDENTITY FULL, so that records have an old_value."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Create the publication and the slot if they are missing.

    PostgreSQL keeps changes from then on. With --full, it also logs the old
    row of each change, which costs some time and space. To include existing
    rows, use `follow --create --snapshot` instead, which creates its own
    slot.

    Examples:

      headwater postgres setup postgresql://localhost/app --table orders --table items --full
    """

    async def run(database: Database) -> Status:
        from headwater.postgres.manage import set_up

        return await set_up(
            database, slot=slot, publication=publication, tables=tables or [], full=full
        )

    _show(_run(dsn, run), slot, publication, json=json)


@app.command()
def status(
    dsn: Dsn,
    slot: SlotName = DEFAULT_NAME,
    publication: PublicationName = DEFAULT_NAME,
    json: Json = False,
) -> None:
    """Show the slot, how far it is behind, and the tables.

    Examples:

      headwater postgres status postgresql://localhost/app
      headwater postgres status service=app --json | jq .behind_bytes
    """

    async def run(database: Database) -> Status:
        from headwater.postgres import manage

        return await manage.status(database, slot=slot, publication=publication)

    _show(_run(dsn, run), slot, publication, json=json)


@app.command()
def drop(
    dsn: Dsn,
    slot: SlotName = DEFAULT_NAME,
    publication: PublicationName = DEFAULT_NAME,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
) -> None:
    """Remove the slot and the publication, so that PostgreSQL keeps no more changes.

    Changes not yet read from the slot are lost.
    Streams stay as they are.

    Examples:

      headwater postgres drop postgresql://localhost/app --yes
    """
    if not yes:
        if not sys.stdin.isatty():
            raise usage("dropping needs a confirmation and there is no terminal; add --yes")
        typer.echo(f"Drop slot {slot} and publication {publication}? [y/N] ", nl=False, err=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CliError("nothing was dropped")

    async def run(database: Database) -> Status:
        from headwater.postgres import manage

        return await manage.drop(database, slot=slot, publication=publication)

    before = _run(dsn, run)
    if before.slot is None and not before.has_publication:
        raise CliError(
            f"there is neither a slot {slot!r} nor a publication {publication!r}",
            ExitCode.NOT_FOUND,
        )


def _run(dsn: str, work: Callable[[Database], Coroutine[Any, Any, T]]) -> T:
    """Run something with a database; failures are explained for people."""
    with _explained():
        from headwater.postgres import Database

        database = Database.parse(dsn)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work(database))


@contextmanager
def _explained() -> Iterator[None]:
    try:
        from headwater.postgres import PostgresError
    except ImportError:
        raise CliError(
            "PostgreSQL needs another package; run `pip install 'headwater[postgres]'`"
        ) from None
    try:
        yield
    except PostgresError as error:
        raise CliError(str(error), _exit_code(error)) from None


def _exit_code(error: PostgresError) -> ExitCode:
    from headwater.postgres import NotConnected, SlotInUse, StreamUnfit

    match error:
        case NotConnected():
            return ExitCode.UNAVAILABLE
        case SlotInUse() | StreamUnfit():
            return ExitCode.CONFLICT
        case _:
            return ExitCode.FAILED


def _show(status: Status, slot: str, publication: str, *, json: bool) -> None:
    found = status.slot
    tables = [
        TableRecord(name=table.name, before_images=table.identity == "f", key=table.has_key)
        for table in status.tables
    ]
    if json:
        from headwater.postgres.position import format_lsn

        write_json(
            PostgresRecord(
                slot=slot,
                exists=found is not None,
                active=found is not None and found.active,
                wal_status=found.wal_status if found else None,
                confirmed_lsn=format_lsn(found.confirmed_lsn) if found else None,
                behind_bytes=found.behind_bytes if found else None,
                publication=publication if status.has_publication else None,
                tables=tables,
            )
        )
        return
    write_facts(
        {
            "slot": slot if found else f"{slot} (missing)",
            "active": found.active if found else None,
            "log": found.wal_status if found else None,
            "behind": size(found.behind_bytes) if found else None,
            "publication": publication if status.has_publication else f"{publication} (missing)",
        }
    )
    for table in tables:
        images = "old rows" if table.before_images else "no old rows"
        write_line(f"  {table.name}  {'key' if table.key else 'no key'}, {images}")
