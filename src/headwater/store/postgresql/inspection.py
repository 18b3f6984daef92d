"""Inspecting a database that nodes may be using. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from headwater.store.engine import CannotOpen, Problem
from headwater.store.postgresql.database import Database, explained, translated
from headwater.store.postgresql.tables import native
from headwater.store.postgresql.verify import verify
from headwater.store.rows import Query, Row


def verify_address(url: str) -> Iterator[Problem | str]:
    """Problems in one consistent snapshot, with lines of progress in between. Raises CannotOpen."""
    database = Database(url)
    database.open_existing()
    try:
        with database.connect() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

            def query(sql: str, values: tuple[object, ...] = ()) -> list[Row]:
                try:
                    # One failed query must not end the snapshot for all others.
                    with connection.transaction():
                        return connection.execute(native(sql), values).fetchall()
                except psycopg.Error as error:
                    raise translated(error) from error

            yield from verify(query)
    except psycopg.Error as error:
        yield Problem("database", f"cannot be read further: it {explained(error)}")


@contextmanager
def reading(url: str) -> Iterator[tuple[Query, str]]:
    """Queries, each of the current state, and the database's name in object storage.

    Raises CannotOpen, also when PostgreSQL goes away in between.
    """
    database = Database(url)
    database.open_existing()
    assert database.cluster is not None
    try:
        connection = database.connect()
    except psycopg.Error as error:
        raise CannotOpen(f"PostgreSQL at {database.name}: {explained(error)}") from None

    def query(sql: str, values: tuple[object, ...]) -> list[Row]:
        try:
            return connection.execute(native(sql), values).fetchall()
        except psycopg.Error as error:
            raise CannotOpen(f"PostgreSQL at {database.name}: {explained(error)}") from None

    with connection:
        yield query, database.cluster
