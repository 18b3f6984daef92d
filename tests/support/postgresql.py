"""Databases for the PostgreSQL engine: one server per session, and databases that are used again.

Making a database takes longer than most tests do. Emptying one does not.

    with databases() as database:
        engine = PostgresqlEngine(database.url)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from headwater.store.engine import Engine

if TYPE_CHECKING:
    import psycopg

    from tests.postgres.server import PostgresServer

LEASE_MS: Final = 60_000
"""Nobody waits for it to run out, and an engine that is closed waits that long for its last sign of
life, so that the next one finds the database free."""
PATIENCE: Final = "connect_timeout=60"
"""For an address: a busy machine may take longer to let somebody in than the default is."""

_TABLES: Final = (
    "streams, ops, producers, message_ids, groups, deliveries, live_templates, snapshots,"
    " subscriptions, subscription_links, secrets, releases, segments, extents"
)
_server: PostgresServer | None = None
_idle: list[EngineDatabase] = []
_count = 0


def shared_server() -> PostgresServer:
    """The one server of this session, started when the first test needs it."""
    global _server
    if _server is None:
        from tests.postgres.server import PostgresServer

        _server = PostgresServer()
        _server.start()
    return _server


def stop_server() -> None:
    global _server
    if _server is not None:
        _server.close()
        _server = None
        _idle.clear()


class EngineDatabase:
    """A database that an engine may have for itself."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self._server = server
        self.name = name
        self.url = f"{server.dsn.rpartition('/')[0]}/{name}?{PATIENCE}"

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        import psycopg

        options = "-c search_path=headwater"
        return psycopg.connect(self.url, autocommit=True, options=options)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def cut_connections(self) -> None:
        """As an administrator would, or a network that breaks."""
        self.query(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            f" WHERE datname = '{self.name}' AND pid <> pg_backend_pid()"
        )

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """For a while, nobody can write."""
        alter = f"ALTER DATABASE {self.name}"
        self.query(f"{alter} SET default_transaction_read_only = on")
        try:
            self.cut_connections()
            yield
        finally:
            with self._server.connect() as connection:
                connection.execute(f"{alter} RESET default_transaction_read_only".encode())

    def empty(self) -> None:
        deletes = [f"DELETE FROM {table};" for table in _TABLES.split(", ")]
        with self.connect() as connection:
            if connection.execute("SELECT to_regclass('nodes')").fetchone() == (None,):
                return  # No engine has used it.
            connection.execute(
                (
                    # In the order in which nodes lock: one that is ending may still commit.
                    "DELETE FROM nodes; UPDATE shards SET node_id = NULL, label = NULL;"
                    + " ".join(deletes)
                    + "DELETE FROM bindings;"
                    "ALTER SEQUENCE streams_ids RESTART; ALTER SEQUENCE groups_ids RESTART;"
                    "ALTER SEQUENCE subscriptions_ids RESTART;"
                ).encode()
            )


def new_database(server: PostgresServer, name: str) -> EngineDatabase:
    with server.connect() as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'".encode())
    return EngineDatabase(server, name)


@contextmanager
def databases() -> Iterator[EngineDatabase]:
    """An empty database, for as long as it is needed."""
    global _count
    if _idle:
        database = _idle.pop()
    else:
        _count += 1
        database = new_database(shared_server(), f"engine_{_count}")
    yield database
    # A test that failed may have left anything behind; such a database is not used again.
    database.empty()
    _idle.append(database)


@contextmanager
def postgresql_engine(**options: Any) -> Iterator[Engine]:
    """An engine on an empty database of its own."""
    from headwater.store.postgresql.engine import PostgresqlEngine

    with databases() as database:
        engine = PostgresqlEngine(database.url, **{"lease_ms": LEASE_MS} | options)
        try:
            yield engine
        finally:
            engine.close()
