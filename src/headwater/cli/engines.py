"""Where streams are kept, as named by arguments: a data directory, or a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headwater.cli.exits import CliError

_ADDRESS: Final = "postgresql://"
_SCHEMES: Final = (_ADDRESS, "postgres://")


def is_address(place: str) -> bool:
    """Whether this names a PostgreSQL database, not a directory."""
    return place.startswith(_SCHEMES)


def shown(place: str) -> str:
    """A place without user and password."""
    if not is_address(place):
        return place
    with opening():
        from headwater.store.postgresql.database import Database

        return _ADDRESS + Database(place).name


@contextmanager
def opening() -> Iterator[None]:
    """End the command with the reason if something cannot be opened."""
    from headwater.store.engine import CannotOpen

    try:
        yield
    except CannotOpen as error:
        raise CliError(str(error)) from None
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise CliError(
            "the PostgreSQL engine needs psycopg: pip install 'headwater[postgres]'"
        ) from None
