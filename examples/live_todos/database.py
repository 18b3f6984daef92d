"""The application's own database: a table of todos, and an outbox.

Every change of a todo and the record that tells of it are written in one transaction. Without that,
a crash between the two would leave a change that nobody is ever told of, or tell of one that never
happened. A relay sends the outbox to the stream afterwards.

SQLite has one writer at a time, so the numbers of the outbox are in the order of the commits, and
there are no gaps: a transaction that is rolled back gives its number back. (In a database with
concurrent writers a sequence promises neither; read its log instead.)
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ENTITY: Final = "todos"

Row = dict[str, Any]

_SCHEMA: Final = """
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS todos (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'open',
        title TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        records TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS identity (name TEXT NOT NULL);
    INSERT INTO identity SELECT 'outbox-' || lower(hex(randomblob(8)))
        WHERE NOT EXISTS (SELECT 1 FROM identity);
"""


class Transaction:
    """Changes that are committed together, and told together."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.records: list[dict[str, Any]] = []

    def add(self, tenant: str, title: str) -> int:
        cursor = self._connection.execute(
            "INSERT INTO todos (tenant, title) VALUES (?, ?)", (tenant, title)
        )
        todo = cursor.lastrowid
        assert todo is not None
        self._tell("insert", todo, None, self._row(todo))
        return todo

    def update(self, todo: int, **fields: str) -> bool:
        """Change some fields of a todo; False if there is none."""
        before = self._row(todo)
        if before is None:
            return False
        after = {**before, **fields}
        self._connection.execute(
            "UPDATE todos SET tenant = :tenant, status = :status, title = :title WHERE id = :id",
            after,
        )
        self._tell("update", todo, before, after)
        return True

    def remove(self, todo: int) -> bool:
        before = self._row(todo)
        if before is None:
            return False
        self._connection.execute("DELETE FROM todos WHERE id = ?", (todo,))
        self._tell("delete", todo, before, None)
        return True

    def _row(self, todo: int) -> Row | None:
        row = self._connection.execute("SELECT * FROM todos WHERE id = ?", (todo,)).fetchone()
        return None if row is None else dict(row)

    def _tell(self, operation: str, todo: int, before: Row | None, after: Row | None) -> None:
        """The row as it was lets the server name exactly the queries that have to run again."""
        record: dict[str, Any] = {"type": ENTITY, "key": str(todo)}
        if after is not None:
            record["value"] = after
        if before is not None:
            record["old_value"] = before
        record["headers"] = {"operation": operation, "timestamp": datetime.now(UTC).isoformat()}
        self.records.append(record)


class Database:
    """Each call opens a connection of its own, so any thread may make it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._connected() as connection:
            connection.executescript(_SCHEMA)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    def _select(self, sql: str, *parameters: Any) -> list[Row]:
        with self._connected() as connection:
            return [dict(row) for row in connection.execute(sql, parameters)]

    # --- Changes ---------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                transaction = Transaction(connection)
                yield transaction
                if transaction.records:
                    records = json.dumps(transaction.records)
                    connection.execute("INSERT INTO outbox (records) VALUES (?)", (records,))
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    # --- The outbox ------------------------------------------------------------------------------

    def name(self) -> str:
        """Who this outbox is. Another database has numbers of its own, and so another name."""
        (row,) = self._select("SELECT name FROM identity")
        found: str = row["name"]
        return found

    def unsent(self, limit: int = 100) -> list[tuple[int, list[dict[str, Any]]]]:
        """The next transactions to be told of, in the order of their commits."""
        rows = self._select("SELECT * FROM outbox ORDER BY number LIMIT ?", limit)
        return [(row["number"], json.loads(row["records"])) for row in rows]

    def sent(self, number: int) -> None:
        with self._connected() as connection:
            connection.execute("DELETE FROM outbox WHERE number = ?", (number,))

    # --- Queries ---------------------------------------------------------------------------------

    def todos(self, tenant: str, status: str) -> list[Row]:
        return self._select(
            "SELECT id, title FROM todos WHERE tenant = ? AND status = ? ORDER BY id",
            tenant,
            status,
        )

    def count(self, tenant: str, status: str) -> int:
        (row,) = self._select(
            "SELECT count(*) AS n FROM todos WHERE tenant = ? AND status = ?", tenant, status
        )
        found: int = row["n"]
        return found

    def everything(self) -> list[Row]:
        return self._select("SELECT * FROM todos ORDER BY id")
