"""One PostgreSQL and one Headwater for all tests; each test has an empty database and new names."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import psycopg
import pytest

from headwater.client import AsyncHeadwater, RetryPolicy
from headwater.postgres import Database, Follower, Wanted
from headwater.postgres.changes import Translator
from headwater.postgres.pgoutput import Relation, read_message
from headwater.testing import RunningServer, running_server
from tests.postgres.server import PostgresServer
from tests.support.postgresql import shared_server

Record = dict[str, Any]
PATIENCE_S = 60


async def until(condition: Callable[[], bool], task: asyncio.Task[None]) -> None:
    """Wait for something that a task brings about; its failure is ours."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            if task.done():
                await task
            await asyncio.sleep(0.01)


class TestDatabase:
    """A database, a slot, and a second slot that tells independently what was committed."""

    __test__ = False

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.slot = f"slot_{uuid.uuid4().hex}"
        self.audit_slot = f"{self.slot}_audit"
        self.dsn = server.dsn
        self.connection = server.connect()

    @property
    def database(self) -> Database:
        return Database.parse(self.dsn)

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return self._server.connect()

    def reconnect(self) -> None:
        """After a restart of the server."""
        self.connection.close()
        self.connection = self.connect()

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode()).fetchall()

    def publish(self) -> None:
        """Create the publication and the slots before anything else happens."""
        self.execute("CREATE PUBLICATION headwater FOR ALL TABLES")
        for slot in (self.slot, self.audit_slot):
            self.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")

    async def committed(self) -> list[Record]:
        """What was committed since `publish`, as records, read in one go and never interrupted."""
        from headwater.postgres import Catalog

        changes = self.rows(
            "SELECT data FROM pg_logical_slot_get_binary_changes("
            f"'{self.audit_slot}', NULL, NULL, 'proto_version', '1', 'publication_names', "
            "'headwater')"
        )
        translator = Translator(lambda warning: None)
        catalog = await Catalog.open(self.database)
        records: list[Record] = []
        try:
            for (data,) in changes:
                message = read_message(data)
                if isinstance(message, Relation):
                    translator.describe(message, await catalog.describe(message))
                unit = translator.translate(message)
                records += map(msgspec.json.decode, unit.records if unit else ())
        finally:
            await catalog.close()
        return records

    def clear(self) -> None:
        """Leave nothing behind. PostgreSQL takes its time to notice that a reader has gone."""
        self.execute(
            "SELECT pg_terminate_backend(active_pid, 30000) FROM pg_replication_slots"
            " WHERE active_pid IS NOT NULL"
        )
        for (slot,) in self.rows("SELECT slot_name FROM pg_replication_slots"):
            self.execute(f"SELECT pg_drop_replication_slot('{slot}')")
        self.execute("DROP PUBLICATION IF EXISTS headwater", "ALTER DATABASE postgres RESET ALL")
        schemas = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)'"
        for (schema,) in self.rows(schemas):
            self.execute(f'DROP SCHEMA "{schema}" CASCADE')
        self.execute("CREATE SCHEMA public")

    def close(self) -> None:
        self.connection.close()


@pytest.fixture(scope="session")
def postgres() -> PostgresServer:
    return shared_server()


@pytest.fixture(scope="session")
def headwater_for_postgres() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def db(postgres: PostgresServer) -> Iterator[TestDatabase]:
    database = TestDatabase(postgres)
    try:
        yield database
        database.clear()
    finally:
        database.close()


@pytest.fixture
def url(headwater_for_postgres: RunningServer) -> str:
    return headwater_for_postgres.url


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncHeadwater]:
    async with AsyncHeadwater(url, retry=RetryPolicy(give_up_after_s=1.0)) as client:
        yield client


class Pipe:
    """From a test's database to a test's stream."""

    def __init__(self, db: TestDatabase, client: AsyncHeadwater) -> None:
        self.db = db
        self.client = client
        self.path = f"postgres/{db.slot}"
        self.said: list[str] = []

    def follower(self, **wanted: Any) -> Follower:
        options: dict[str, Any] = {"stream": self.path, "slot": self.db.slot, "create": True}
        chosen = Wanted(**options | wanted)
        return Follower(
            self.db.database,
            self.client,
            chosen,
            say=self.said.append,
            retry=RetryPolicy(base_delay_s=0.01, max_delay_s=0.1),
        )

    async def catch_up(self, **wanted: Any) -> list[Record]:
        """Bring everything that is committed into the stream, and read the stream."""
        await self.follower(**wanted).run(asyncio.Event(), once=True)
        return await self.records()

    async def records(self) -> list[Record]:
        return await self.client.stream(self.path).read_json()


@pytest.fixture
def pipe(db: TestDatabase, client: AsyncHeadwater) -> Pipe:
    return Pipe(db, client)
