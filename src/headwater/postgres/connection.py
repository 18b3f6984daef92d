"""Connections to PostgreSQL, and its errors in plain words.

All text from a connection must have the form that `values` expects, whatever the role's or the
database's configuration, so every connection sets the options that determine it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict

from headwater.postgres.errors import (
    NotConnected,
    NotPrepared,
    PostgresError,
    SlotInUse,
    SlotLost,
    without_secret,
)

CONNECT_TIMEOUT_S: Final = 10

_SETTINGS: Final = {
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "search_path": "pg_catalog",
    # A snapshot or a wait for changes may take any time.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    # We send a sign of life every few seconds.
    "wal_sender_timeout": "60s",
}

NO_ADDRESS: Final = (
    "this is no address of a PostgreSQL database; write postgresql://USER@HOST:PORT/DATABASE, or "
    "host=HOST dbname=DATABASE user=USER, and in a password in an address, %40 for @, %2F for / "
    "and %3A for :"
)

_GONE: Final = ("57P01", "57P02", "57P03", "57P05", "53300")
_LOST: Final = "can no longer"


def _is_mistaken(dsn: str, parameters: dict[str, Any]) -> bool:
    """Whether a password with special characters was parsed as something that would be shown."""
    ports = str(parameters.get("port") or "")
    return not re.fullmatch(r"[\d,]*", ports) or (
        "://" in dsn and "@" in str(parameters.get("dbname") or "")
    )


@dataclass(frozen=True, slots=True)
class Database:
    """The address of a database. Safe to show: neither `repr` nor any error has the password."""

    parameters: dict[str, Any]

    @classmethod
    def parse(cls, dsn: str) -> Database:
        """Parse a URI or a `name=value` string; missing parts come from PG* variables."""
        try:
            parameters = conninfo_to_dict(dsn)
        except psycopg.Error:
            # The driver would quote a part of the string, which may be the password.
            raise NotPrepared(NO_ADDRESS) from None
        if _is_mistaken(dsn, parameters):
            raise NotPrepared(NO_ADDRESS)
        for ours in ("replication", "client_encoding"):
            parameters.pop(ours, None)
        return cls(parameters)

    def __repr__(self) -> str:
        return f"<Database {self}>"

    def __str__(self) -> str:
        """The database for people."""
        name = self.parameters.get("dbname") or self.parameters.get("service")
        host = self.parameters.get("host")
        return " at ".join(part for part in (name or "the database", host) if part)

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(
            str(value) for name, value in self.parameters.items() if "password" in name and value
        )

    async def connect(self, *, replication: bool = False) -> AsyncConnection[tuple[Any, ...]]:
        """A connection in autocommit mode."""
        more: dict[str, Any] = {"replication": "database"} if replication else {}
        parameters = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": "headwater",
            **self.parameters,
            **more,
            "client_encoding": "utf8",
        }
        try:
            connection = await AsyncConnection.connect(autocommit=True, **parameters)
        except psycopg.Error as error:
            raise self._not_connected(error, replication) from None
        try:
            with self.explained():
                for name, value in _SETTINGS.items():
                    await connection.execute(f"SET {name} = '{value}'".encode())
        except BaseException:
            await connection.close()
            raise
        return connection

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn driver errors into explained ones, without secrets."""
        try:
            yield
        except psycopg.Error as error:
            raise self.explain(error) from None

    def explain(self, error: psycopg.Error) -> PostgresError:
        """The meaning of an error on a connection that was established."""
        said = self.said(error)
        state = error.sqlstate or ""
        if state == "55006":
            return SlotInUse(f"{said}; stop the other reader, or choose another --slot")
        if state == "42501":
            return NotPrepared(
                f"{said}; the role needs REPLICATION (`ALTER ROLE … REPLICATION`), SELECT on the "
                "tables for a snapshot, and for a publication to be created, ownership of its "
                "tables"
            )
        if _LOST in said or "has been invalidated" in said:
            return SlotLost(said)
        lost = not state and isinstance(error, psycopg.OperationalError)
        if lost or state in _GONE or state.startswith("08"):
            return NotConnected(f"lost the connection to {self}: {said}")
        return NotPrepared(f"PostgreSQL refused: {said}")

    def said(self, error: psycopg.Error) -> str:
        """PostgreSQL's own message in one line."""
        words = error.diag.message_primary or str(error)
        return without_secret(words.removesuffix("."), self.secrets)

    def _not_connected(self, error: psycopg.Error, replication: bool) -> PostgresError:
        said = self.said(error)
        # The reason comes last; the lines before name the addresses that were tried.
        reason = said.rpartition("FATAL: ")[2].strip()
        if replication and ("replication" in reason.lower() or "wal sender" in reason.lower()):
            return NotPrepared(
                f"{self} allows no replication: {reason}; the role needs REPLICATION, pg_hba.conf "
                "must let it in, and max_wal_senders must leave room"
            )
        return NotConnected(f"cannot connect to {self}: {reason}")
