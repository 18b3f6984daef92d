"""Path prefixes bound to node labels, and the shards for them.

The rules are in `headwater.core.cluster`. Nodes see a change with their next look.
"""

from __future__ import annotations

from typing import Final

import psycopg

from headwater.core.cluster import UNLABELLED
from headwater.store.engine import CannotOpen
from headwater.store.postgresql.database import Connection, Database, explained

_SHARE: Final = 4
"""One in this many of all shards gets a new label."""


def bind(url: str, prefix: str, label: str, shards: int | None = None) -> int:
    """Bind a prefix to a label; returns how many shards have that label."""
    database = Database(url)
    database.open(warn=False)
    try:
        with database.connect() as connection, connection.transaction():
            connection.execute("LOCK TABLE bindings IN SHARE ROW EXCLUSIVE MODE")
            connection.execute(
                "INSERT INTO bindings VALUES (%s, %s)"
                " ON CONFLICT (prefix) DO UPDATE SET label = excluded.label",
                (prefix, label),
            )
            _clear(connection)
            labelled = _count(connection, label)
            wanted = shards or labelled or _total(connection) // _SHARE or 1
            if wanted > labelled:
                _mark(connection, label, wanted - labelled)
            found = _count(connection, label)
            if found < wanted:
                raise CannotOpen(
                    f"{database.name} has only {found} shards for {label}; the rest has other "
                    "labels, and some have to stay without"
                )
            return found
    except psycopg.Error as error:
        raise CannotOpen(f"PostgreSQL at {database.name}: {explained(error)}") from None


def unbind(url: str, prefix: str) -> bool:
    """Let new streams below a prefix go anywhere again; False if it was not bound."""
    database = Database(url)
    database.open(warn=False)
    try:
        with database.connect() as connection, connection.transaction():
            connection.execute("LOCK TABLE bindings IN SHARE ROW EXCLUSIVE MODE")
            sql = "DELETE FROM bindings WHERE prefix = %s RETURNING 1"
            found = connection.execute(sql, (prefix,)).fetchall()
            _clear(connection)
            return bool(found)
    except psycopg.Error as error:
        raise CannotOpen(f"PostgreSQL at {database.name}: {explained(error)}") from None


def _clear(connection: Connection) -> None:
    """Remove labels that nothing is bound to."""
    connection.execute(
        "UPDATE shards SET label = NULL WHERE label NOT IN (SELECT label FROM bindings)"
    )


def _count(connection: Connection, label: str) -> int:
    sql = "SELECT count(*) FROM shards WHERE label = %s"
    return int(connection.execute(sql, (label,)).fetchall()[0][0])


def _total(connection: Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM shards").fetchall()[0][0])


def _mark(connection: Connection, label: str, count: int) -> None:
    """Give a label to shards that have none, but never to all of them."""
    connection.execute(
        "UPDATE shards SET label = %s WHERE id IN (SELECT id FROM shards"
        " WHERE label IS NULL AND id <> %s ORDER BY id DESC LIMIT %s)",
        (label, UNLABELLED, count),
    )
