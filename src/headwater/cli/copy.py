"""`headwater copy`: from a data directory into PostgreSQL, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.engines import is_address, opening, shown
from headwater.cli.exits import CliError, usage
from headwater.cli.output import Json, Progress, size, write_json, write_line
from headwater.cli.records import CopyRecord
from headwater.cli.shell import say

if TYPE_CHECKING:
    from headwater.store import copying
    from headwater.store.history.object_storage import Remote


def copy(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="A data directory, or postgresql://HOST/DATABASE.")
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TO", help="The same, new or empty. They cannot both be directories."
        ),
    ],
    history_store: Annotated[
        str | None,
        typer.Option(
            "--history-store",
            metavar="URL",
            help="Object storage of FROM, if some of its history is only there.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Copy everything from a data directory into PostgreSQL, or back.

    Streams keep their offsets. Producers, message ids, groups,
    subscriptions, snapshots and forks are copied too. Stop the servers on
    both sides first: the command refuses a source or target that is in use,
    and a target that is not empty. History files become rows. At the end,
    everything is read back and compared. An interrupted copy leaves nothing
    behind: run it again.

    API keys and the secret for signed addresses are files; copy them yourself.

    Examples:

      headwater copy data postgresql://db/headwater
      headwater copy postgresql://db/headwater data-again
      headwater copy data postgresql://db/headwater --history-store s3://bucket/prefix
    """
    if not is_address(source) and not is_address(target):
        raise usage(
            "one of the two has to be postgresql://…; `headwater backup` copies a directory"
        )
    with _explained(), _sources(source, history_store) as reading, _targets(target) as writing:
        copied = _follow(f"copying {shown(source)}", reading, writing)
    _say_what_stays(source, target)
    record = CopyRecord(
        source=shown(source),
        target=shown(target),
        streams=copied.rows["streams"],
        appends=copied.rows["ops"],
        bytes=copied.size_bytes,
        rows=copied.rows,
        digest=copied.digest,
    )
    if json:
        write_json(record)
        return
    write_line(
        f"{record.target}: {record.streams:,} streams, {record.appends:,} appends,"
        f" {size(record.bytes)}; read back and the same, digest {record.digest}"
    )


@contextmanager
def _explained() -> Iterator[None]:
    import apsw

    from headwater.core.errors import StreamError
    from headwater.store.copying import CopyError

    try:
        with opening():
            yield
    except CopyError as error:
        raise CliError(str(error)) from None
    except StreamError as error:
        raise CliError(f"nothing was copied: {error.message}") from None
    except (OSError, apsw.Error) as error:
        raise CliError(f"nothing was copied: {error}") from None


@contextmanager
def _sources(place: str, history_store: str | None) -> Iterator[copying.Source]:
    remote = _remote(history_store) if history_store else None
    if is_address(place):
        from headwater.store.postgresql.copying import PostgresqlCopy

        with PostgresqlCopy.source(place, remote=remote) as database:
            _say_files(database.files)
            yield database
        return
    from headwater.store.sqlite.copying import SqliteSource

    with SqliteSource.open(Path(place), remote) as directory:
        _say_files(directory.files)
        yield directory


def _remote(url: str) -> Remote:
    from headwater.store.history import object_storage

    try:
        return object_storage.Remote(url)
    except ValueError as error:
        raise usage(str(error)) from None


def _say_files(files: int) -> None:
    if files:
        say(f"{files:,} history files become rows")


@contextmanager
def _targets(place: str) -> Iterator[copying.Target]:
    if is_address(place):
        from headwater.store.postgresql.copying import PostgresqlCopy

        with PostgresqlCopy.target(place) as target:
            yield target
        return
    from headwater.store.sqlite.copying import SqliteTarget

    with SqliteTarget.open(Path(place)) as directory:
        yield directory


def _follow(label: str, source: copying.Source, target: copying.Target) -> copying.Copied:
    from headwater.store.copying import Copied
    from headwater.store.copying import copy as steps

    with Progress(label) as progress:
        for step in steps(source, target):
            if isinstance(step, Copied):
                return step
            progress.expect(step.total or None)
            progress.update(step.done, step.what, in_bytes=False)
    raise AssertionError("a copy ends with what it made")


def _say_what_stays(source: str, target: str) -> None:
    from headwater.store.key_file import KEYS_NAME, SECRET_NAME

    if is_address(source):
        return
    for name, option in ((KEYS_NAME, "--keys-file"), (SECRET_NAME, "--signing-secret-file")):
        path = Path(source) / name
        if path.exists():
            say(f"{path} stays where it is; serve {shown(target)} with {option} {path}")
