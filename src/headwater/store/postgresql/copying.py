"""PostgreSQL databases as the source and the target of a copy; see `headwater.store.copying`.

A copy is one transaction, so a target has all of it or nothing. It locks the table of nodes, which
keeps every node from joining, from renewing its lease and from writing. A node in it must have
shown no sign of life for a whole lease before, and is removed: nothing that it began earlier can be
committed into the copied data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import psycopg

from headwater.store.copying import CACHE_BYTES, COUNTED, TABLES, CopyError, sealed_rows
from headwater.store.history.open_segments import DIRECTORY_NAME, OpenSegments
from headwater.store.postgresql.appends import Appends
from headwater.store.postgresql.database import Connection, Database, explained
from headwater.store.postgresql.tables import StatementTables, native, next_id
from headwater.store.rows import Row
from headwater.store.sql.extents import EXTENT_COLUMNS, ExtentRow

if TYPE_CHECKING:
    from headwater.store.history.object_storage import Remote

_LOOKS_PER_LEASE: Final = 10
_LOCK_PATIENCE: Final = "30s"

Sleep = Callable[[float], None]


class PostgresqlCopy:
    """A database that a copy has to itself for one transaction: a source or a target."""

    def __init__(self, connection: Connection, segments: OpenSegments | None = None) -> None:
        self._connection = connection
        self._appends = Appends(self._query, segments or OpenSegments(Path(DIRECTORY_NAME)))

    @classmethod
    @contextmanager
    def source(
        cls, url: str, sleep: Sleep = time.sleep, remote: Remote | None = None
    ) -> Iterator[PostgresqlCopy]:
        """Object storage is required if there is history."""
        database = Database(url)
        with _said(database), TemporaryDirectory(prefix="headwater-") as cache:
            database.open_existing()
            segments = OpenSegments(Path(cache) / DIRECTORY_NAME)
            if remote is not None:
                segments.connect(remote, CACHE_BYTES)
            with _held(database, sleep) as connection:
                source = cls(connection, segments)
                if remote is None and source.files:
                    raise CopyError(
                        f"{source.files:,} files of history of {database.name} are in object "
                        "storage; say where with --history-store"
                    )
                yield source

    @classmethod
    @contextmanager
    def target(cls, url: str, sleep: Sleep = time.sleep) -> Iterator[PostgresqlCopy]:
        database = Database(url)
        with _said(database):
            database.open(warn=False)
            with _held(database, sleep) as connection:
                copy = cls(connection)
                for table in TABLES:
                    if copy.count(table):
                        raise CopyError(
                            f"{database.name} is not empty (it has {table}), and nothing is "
                            "overwritten; copy to a new database"
                        )
                yield copy

    # ── For a copy ───────────────────────────────────────────────────────────────────────────

    @property
    def files(self) -> int:
        """History files, all of which become rows."""
        return self._one("SELECT count(DISTINCT segment_id) FROM extents")

    def count(self, table: str) -> int:
        sealed = "SELECT coalesce(sum(appends), 0)::bigint FROM extents"
        count = self._one(f"SELECT count(*) FROM {table}")
        return count + (self._one(sealed) if table == "ops" else 0)

    def _one(self, sql: str) -> int:
        return int(self._query(sql, ())[0][0])

    def rows(self, table: str) -> Iterator[Row]:
        if table == "ops":
            for row in self._query(f"SELECT {EXTENT_COLUMNS} FROM extents ORDER BY run, start", ()):
                yield from sealed_rows(self._appends, ExtentRow(*row))
        order = " ORDER BY id" if table == "secrets" else ""
        query = f"SELECT {TABLES[table]} FROM {table}{order}"
        # Row by row: rows can be of any size.
        yield from self._connection.cursor().stream(query.encode())

    def last_ids(self) -> dict[str, int]:
        return {kind: next_id(self._query, kind) - 1 for kind in COUNTED}

    def insert(self, table: str, batch: list[Row]) -> None:
        tables = StatementTables(_anywhere, _anywhere)
        tables.insert(table, TABLES[table], batch)
        self._run(tables)

    def use_ids(self, last: dict[str, int]) -> None:
        tables = StatementTables(_anywhere, _anywhere)
        for kind, value in last.items():
            tables.use_ids(kind, value)
        self._run(tables)

    def _query(self, sql: str, values: tuple[object, ...]) -> list[Row]:
        return self._connection.execute(native(sql), values).fetchall()

    def _run(self, tables: StatementTables) -> None:
        for sql, values in tables.statements:
            self._connection.execute(sql, values)

    def finish(self) -> None:
        """Assign everything its shard. The copy takes effect when the transaction ends."""
        self._connection.execute("SELECT reshard((SELECT shards FROM cluster))")


def _anywhere(name: str) -> int:
    """Where everything goes until it is assigned its shard."""
    return 0


@contextmanager
def _said(database: Database) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise CopyError(f"PostgreSQL at {database.name}: {explained(error)}") from None


@contextmanager
def _held(database: Database, sleep: Sleep) -> Iterator[Connection]:
    """A transaction during which no node can do anything; rolled back on any failure."""
    # After a failure only close it: rows may still be in flight.
    with closing(database.connect()) as connection:
        seen = _outwaited(database, connection, sleep)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_PATIENCE}'")
        connection.execute("LOCK TABLE nodes IN EXCLUSIVE MODE")
        if _look(connection) != seen:
            raise CopyError(f"{database.name} is in use by a node; stop it first")
        connection.execute("DELETE FROM nodes")
        connection.execute("UPDATE shards SET epoch = epoch + 1, node_id = NULL")
        yield connection
        connection.execute("COMMIT")


def _outwaited(database: Database, connection: Connection, sleep: Sleep) -> list[Any]:
    """The nodes, once it is certain that none of them is alive."""
    seen = _look(connection)
    if seen:
        lease_s = max(row[3] for row in seen) / 1000
        until = time.monotonic() + lease_s
        while time.monotonic() < until:
            sleep(lease_s / _LOOKS_PER_LEASE)
            if _look(connection) != seen:
                raise CopyError(f"{database.name} is in use by a node, {seen[0][2]}; stop it first")
    return seen


def _look(connection: Connection) -> list[Any]:
    return connection.execute(
        "SELECT id, epoch, name, lease_ms, counter FROM nodes ORDER BY id"
    ).fetchall()
