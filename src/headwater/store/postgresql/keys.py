"""API keys, and the secret that signs addresses, in the database.

All nodes share them. The keys are one row, which is replaced whenever they change: its number tells
whether there is something new to read. A change locks the table. As in a key file, it holds no
keys, only digests.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
import psycopg

from headwater.core.access import signed
from headwater.core.access.keys import KeyBook
from headwater.store.engine import CannotOpen
from headwater.store.key_file import KeyFileError, parse_keys
from headwater.store.postgresql.database import (
    Connection,
    Database,
    KeptConnection,
    NoStreams,
    explained,
)

_KEYS: Final = "keys"
_SIGNING: Final = "signing"
_NEWEST: Final = "SELECT id, value FROM secrets WHERE kind = %s ORDER BY id DESC LIMIT 1"
_NUMBER: Final = "SELECT max(id) FROM secrets WHERE kind = %s"
_INSERT: Final = (
    "INSERT INTO secrets (kind, value, created_at)"
    " VALUES (%s, %s, (extract(epoch FROM now()) * 1000)::bigint)"
)

R = TypeVar("R")


class KeyTable:
    """Implements `key_file.KeyPlace`."""

    def __init__(self, url: str) -> None:
        try:
            self._database = Database(url)
        except CannotOpen as error:
            raise KeyFileError(str(error)) from None
        self._kept = KeptConnection(self._database)
        self._turn = threading.Lock()
        self._stamp: object = None
        self.name = f"postgresql://{self._database.name}"

    def stamp(self) -> object:
        # A database that does not answer has nothing new.
        with suppress(KeyFileError, NoStreams):
            self._stamp = self._ask(lambda c: c.execute(_NUMBER, (_KEYS,)).fetchall()[0][0])
        return self._stamp

    def load(self) -> KeyBook | None:
        try:
            found = self._ask(lambda connection: _newest(connection, _KEYS))
        except NoStreams:
            return None
        return None if found is None else parse_keys(found, self.name)

    def change(self, change: Callable[[KeyBook], KeyBook]) -> None:
        def replace(connection: Connection) -> None:
            with connection.transaction():
                connection.execute("LOCK TABLE secrets IN SHARE ROW EXCLUSIVE MODE")
                before = _newest(connection, _KEYS)
                book = KeyBook() if before is None else parse_keys(before, self.name)
                changed = msgspec.json.encode(change(book))
                connection.execute("DELETE FROM secrets WHERE kind = %s", (_KEYS,))
                connection.execute(_INSERT, (_KEYS, changed))

        try:
            self._ask(replace)
        except NoStreams:
            # Keys may be created before the first node is started.
            self._make_tables()
            self._ask(replace)

    def secret(self) -> bytes:
        """The secret that signs addresses; created on first use."""

        def find(connection: Connection) -> bytes:
            with connection.transaction():
                connection.execute("LOCK TABLE secrets IN SHARE ROW EXCLUSIVE MODE")
                found = _newest(connection, _SIGNING)
                if found is None:
                    found = secrets.token_hex(signed.SECRET_BYTES).encode()
                    connection.execute(_INSERT, (_SIGNING, found))
                return found

        return self._ask(find)

    def _ask(self, work: Callable[[Connection], R]) -> R:
        with self._turn:
            try:
                if self._database.cluster is None:
                    self._database.open_existing()
                return work(self._kept.connected())
            except NoStreams:
                raise
            except (psycopg.Error, CannotOpen) as error:
                self._kept.hang_up()
                reason = str(error) if isinstance(error, CannotOpen) else explained(error)
                raise KeyFileError(f"cannot read the keys in {self.name}: {reason}") from None

    def _make_tables(self) -> None:
        try:
            self._database.open(warn=False)
        except CannotOpen as error:
            raise KeyFileError(str(error)) from None

    def close(self) -> None:
        with self._turn:
            self._kept.hang_up()


def _newest(connection: Connection, kind: str) -> bytes | None:
    found = connection.execute(_NEWEST, (kind,)).fetchall()
    return bytes(found[0][1]) if found else None
