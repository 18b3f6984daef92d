"""`headwater keys`: the API keys of a server, in its data directory or database."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headwater.cli.engines import is_address, opening
from headwater.cli.exits import CliError, ExitCode, usage
from headwater.cli.output import Json, instant, is_terminal, write_json, write_line
from headwater.cli.quantities import parse_span_ms
from headwater.cli.records import KeyRecord, NewKeyRecord
from headwater.cli.shell import say
from headwater.core.access import keys as rules
from headwater.core.access.grants import GrantsText, grants_from
from headwater.core.limits import KEY_NAME_CHARS_MAX, KEYS_MAX
from headwater.core.patterns import InvalidPattern
from headwater.store.key_file import KEYS_NAME, KeyFile, KeyFileError, KeyPlace

app = typer.Typer(no_args_is_help=True)

Data = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The server's data directory; also $HEADWATER_DATA.",
        envvar="HEADWATER_DATA",
        show_envvar=False,
    ),
]
KeysFile = Annotated[
    Path | None,
    typer.Option(
        "--keys-file",
        metavar="FILE",
        help="Keys file, if it is not keys.json in the data directory; also $HEADWATER_KEYS_FILE.",
        envvar="HEADWATER_KEYS_FILE",
        show_envvar=False,
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="ADDRESS",
        help="The server's engine, if its keys are in PostgreSQL; also $HEADWATER_ENGINE.",
        envvar="HEADWATER_ENGINE",
        show_envvar=False,
    ),
]
DEFAULT_DATA: Final = Path("data")

Change = Callable[[rules.KeyBook], rules.KeyBook]


def _patterns(name: str, what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        f"--{name}", metavar="PATTERN", help=f"Streams that the key may {what}; repeatable."
    )
    return option


@app.callback()
def _keys() -> None:
    """Create, list and revoke the API keys of a server.

    Works on the data directory, or on the engine's database. Running
    servers notice within a second. Keys themselves are not stored, only a
    digest of each.

    Examples:

      headwater keys create --name ops --admin '**'
      headwater keys ls
      headwater keys revoke 3f9ac0d11b72
      headwater keys ls --engine postgresql://db/headwater
    """


@app.command()
def create(
    name: Annotated[str, typer.Option("--name", help="What the key is for.")] = "",
    read: Annotated[list[str] | None, _patterns("read", "read")] = None,
    write: Annotated[list[str] | None, _patterns("write", "create, append to and close")] = None,
    delete: Annotated[list[str] | None, _patterns("delete", "delete")] = None,
    admin: Annotated[
        list[str] | None,
        _patterns("admin", "read, write and delete; '**' includes the server itself"),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="TIME", help="Expires after this long: 12h, 30d."),
    ] = None,
    data: Data = DEFAULT_DATA,
    keys_file: KeysFile = None,
    engine: Engine = "",
    json: Json = False,
) -> None:
    """Create a key and show it once.

    A pattern is the name of a stream, in which * matches one word between
    dots or slashes, and ** at the end matches all the rest.

    Examples:

      headwater keys create --name shop --write 'orders.*' --read 'orders.*'
      headwater keys create --name acme --admin 'tenants/acme/**' --expires 90d
      headwater keys create --read orders --write orders/_groups/kitchen
    """
    grants = GrantsText(read or [], write or [], delete or [], admin or [])
    if not (grants.read or grants.write or grants.delete or grants.admin):
        raise usage("a key without --read, --write, --delete or --admin could do nothing")
    if len(name) > KEY_NAME_CHARS_MAX or not name.isprintable():
        raise usage(f"a name is one line of at most {KEY_NAME_CHARS_MAX} characters")
    try:
        grants_from(grants)
    except InvalidPattern as error:
        raise usage(error.message) from None
    now_ms = time.time_ns() // 1_000_000
    key_id, key = rules.format_key(
        secrets.token_bytes(rules.ID_BYTES), secrets.token_bytes(rules.SECRET_BYTES)
    )
    record = rules.KeyRecord(
        id=key_id,
        digest=rules.digest_of(key),
        created_at_ms=now_ms,
        grants=grants,
        name=name,
        expires_at_ms=None if expires is None else now_ms + parse_span_ms(expires),
    )
    path = _change(data, keys_file, engine, lambda book: _with(book, record))
    if json:
        write_json(NewKeyRecord(**_fields(record), key=key))
    else:
        write_line(key)
    say(f"key {key_id} is in {path}; it is not shown again; servers need --access on or auto")
    kept = _load(data, keys_file, engine).keys
    if len(kept) == 1:
        say(
            "it is the first one: a server that is open to all stays so until it is started again, "
            "and then every request needs a key"
        )
    if not any(grants_from(key.grants).administer_server for key in kept):
        say(
            "no key may do everything yet, such as opening the console; make one: "
            "headwater keys create --name admin --admin '**'"
        )


@app.command()
def ls(
    data: Data = DEFAULT_DATA,
    keys_file: KeysFile = None,
    engine: Engine = "",
    json: Json = False,
) -> None:
    """List the keys, without their secrets.

    Examples:

      headwater keys ls
      headwater keys ls --json | jq -r 'select(.expires_at == null) | .id'
    """
    for record in _load(data, keys_file, engine).keys:
        if json:
            write_json(KeyRecord(**_fields(record)))
            continue
        rights = [
            f"{permission} {pattern}"
            for permission in ("read", "write", "delete", "admin")
            for pattern in getattr(record.grants, permission)
        ]
        until = f"  until {instant(record.expires_at_ms)}" if record.expires_at_ms else ""
        write_line(f"{record.id}  {record.name or '-'}  {', '.join(rights)}{until}")


@app.command()
def revoke(
    ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Ids of keys, as shown by `keys ls`.")
    ],
    data: Data = DEFAULT_DATA,
    keys_file: KeysFile = None,
    engine: Engine = "",
) -> None:
    """Revoke keys. Anyone using one is disconnected within seconds.

    Live reads end too, and signed addresses that were made with the key
    stop working.

    Examples:

      headwater keys revoke 3f9ac0d11b72
    """
    _change(data, keys_file, engine, lambda book: _without(book, ids))
    if is_terminal():
        say(f"revoked {', '.join(ids)}")


def _with(book: rules.KeyBook, record: rules.KeyRecord) -> rules.KeyBook:
    if len(book.keys) >= KEYS_MAX:
        raise CliError(f"there are {KEYS_MAX} keys, the most there can be; revoke some")
    return rules.KeyBook([*book.keys, record])


def _without(book: rules.KeyBook, ids: list[str]) -> rules.KeyBook:
    unknown = set(ids) - {record.id for record in book.keys}
    if unknown:
        raise CliError(
            f"there is no key {', '.join(sorted(unknown))}; nothing was revoked; see "
            "`headwater keys ls`",
            ExitCode.NOT_FOUND,
        )
    return rules.KeyBook([record for record in book.keys if record.id not in ids])


@contextmanager
def _place(data: Path, keys_file: Path | None, engine: str) -> Iterator[KeyPlace]:
    if keys_file is not None and not keys_file.name:
        raise usage("--keys-file needs the name of a file")
    try:
        if keys_file is not None or not is_address(engine):
            yield KeyFile(keys_file or data / KEYS_NAME)
            return
        with opening():
            from headwater.store.postgresql.keys import KeyTable
        place = KeyTable(engine)
        try:
            yield place
        finally:
            place.close()
    except KeyFileError as error:
        raise CliError(str(error)) from None


def _load(data: Path, keys_file: Path | None, engine: str) -> rules.KeyBook:
    with _place(data, keys_file, engine) as place:
        return place.load() or rules.KeyBook()


def _change(data: Path, keys_file: Path | None, engine: str, change: Change) -> str:
    with _place(data, keys_file, engine) as place:
        place.change(change)
        return place.name


def _fields(record: rules.KeyRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "name": record.name,
        "read": record.grants.read,
        "write": record.grants.write,
        "delete": record.grants.delete,
        "admin": record.grants.admin,
        "created_at": instant(record.created_at_ms),
        "expires_at": instant(record.expires_at_ms),
    }
