"""Connections for reading: a few, shared by all threads.

A connection that PostgreSQL or the network has dropped is replaced once per query, so a restart of
the database costs readers only time. Reads are answered only while the engine is certain about what
is committed; see `headwater.store.postgresql.ownership`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from headwater.core.errors import StorageUnavailable
from headwater.store.engine import CannotOpen
from headwater.store.postgresql.database import Connect, Connection, translated
from headwater.store.postgresql.tables import native
from headwater.store.rows import Row

CONNECTIONS_MAX: Final = 4


class Readers:
    def __init__(self, connect: Connect, check: Callable[[], None]) -> None:
        self._connect = connect
        self._check = check
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._generation = 0

    def query(self, sql: str, values: tuple[object, ...] = ()) -> list[Row]:
        self._check()
        with self._room:
            try:
                return self._ask(sql, values)
            except psycopg.OperationalError as error:
                if error.sqlstate is not None and not error.sqlstate.startswith("57P"):
                    raise translated(error) from error
            except psycopg.Error as error:
                raise translated(error) from error
            # The others are probably as dead as this one.
            self.reset()
            try:
                return self._ask(sql, values)
            except psycopg.Error as error:
                raise translated(error) from error

    def _ask(self, sql: str, values: tuple[object, ...]) -> list[Row]:
        with self._connection() as connection:
            return connection.execute(native(sql), values).fetchall()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        with self._lock:
            generation = self._generation
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            try:
                connection = self._connect()
            except CannotOpen as error:
                raise StorageUnavailable(f"{error}; try again") from None
        try:
            yield connection
        finally:
            with self._lock:
                keep = generation == self._generation and not connection.broken
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    def reset(self) -> None:
        """Discard all existing connections."""
        with self._lock:
            self._generation += 1
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
