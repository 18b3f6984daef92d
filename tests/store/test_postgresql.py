"""The PostgreSQL engine on its bad days: nothing that was committed is lost, nothing is made up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from headwater.core.errors import DataCorrupt, OutcomeUnknown, StorageFull, StorageUnavailable
from headwater.core.lineage import Lineage, Span
from headwater.core.stream import Appended, Created, StreamConfig
from headwater.store.engine import CannotOpen, Problem
from headwater.store.postgresql import database as database_module
from headwater.store.postgresql.database import LostShard
from headwater.store.postgresql.engine import PostgresqlEngine
from headwater.store.postgresql.schema import LAYOUT
from tests.postgres.server import PostgresServer
from tests.support.postgresql import EngineDatabase, new_database, shared_server
from tests.support.server import free_port

LEASE_MS = 600
PATIENCE_S = 60
CONFIG = StreamConfig(1, "s", "text/plain", 5, lineage=Lineage(1))


def append(position: int, body: bytes = b"x") -> Appended:
    return Appended(1, position, body, position, 1, 6)


def content(engine: PostgresqlEngine) -> bytes:
    found = engine.streams.load("s")
    assert found is not None
    tail = found.state.tail
    return b"".join(engine.appends.read(Span(1, 0, tail), 10**6)) if tail else b""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def opened(database: EngineDatabase, **options: Any) -> Iterator[PostgresqlEngine]:
    engine = PostgresqlEngine(database.url, **{"lease_ms": LEASE_MS} | options)
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture
def engine(database: EngineDatabase) -> Iterator[PostgresqlEngine]:
    with opened(database) as engine:
        engine.commit([Created(CONFIG), append(0, b"before")])
        yield engine


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def vanish(engine: PostgresqlEngine) -> None:
    """Be dead for the others: show no sign of life any more, and say no good-bye."""
    engine._keeper._closing.set()
    engine._keeper._thread.join(PATIENCE_S)


# ── Who owns the database ────────────────────────────────────────────────────────────────────


def test_a_second_node_is_refused_while_the_first_lives(database: EngineDatabase) -> None:
    # Long enough for a busy machine to show a sign of life in time.
    with opened(database, lease_ms=15_000) as engine:
        engine.commit([Created(CONFIG), append(0, b"before")])
        with pytest.raises(CannotOpen, match="in use by another node"):
            PostgresqlEngine(database.url, lease_ms=LEASE_MS)
        engine.commit([append(6)])
        assert content(engine) == b"beforex"


def test_a_node_that_ends_in_good_order_leaves_at_once(database: EngineDatabase) -> None:
    with opened(database, lease_ms=600_000) as first:
        first.commit([Created(CONFIG), append(0, b"before")])
    with opened(database, lease_ms=600_000) as second:
        assert content(second) == b"before"


def test_a_node_that_is_gone_is_outwaited_and_can_do_nothing_any_more(
    engine: PostgresqlEngine, database: EngineDatabase
) -> None:
    vanish(engine)
    with opened(database) as second:
        with pytest.raises(LostShard):
            engine.commit([append(6, b"late")])
        assert content(second) == b"before"
        second.commit([append(6, b"new")])
        for question in (lambda: content(engine), lambda: engine.reap(1)):
            with pytest.raises(LostShard):
                question()
        assert content(second) == b"beforenew"


def test_a_node_whose_lease_is_longer_is_outwaited_for_that_long(
    database: EngineDatabase,
) -> None:
    """The lease that counts is the owner's, not that of whoever waits."""
    with opened(database, lease_ms=3_000) as first:
        began = time.monotonic()
        vanish(first)
        with opened(database, lease_ms=300):
            assert time.monotonic() - began >= 3


def test_the_former_owner_is_told_that_it_has_lost(database: EngineDatabase) -> None:
    lost = threading.Event()
    with opened(database, lost=lost.set) as first:
        database.query("DELETE FROM nodes")
        database.query("UPDATE shards SET node_id = 99")
        assert lost.wait(PATIENCE_S)
        with pytest.raises(LostShard):
            first.streams.next_id()
    assert database.query("SELECT DISTINCT node_id FROM shards") == [(99,)]


def test_a_take_over_waits_for_the_transaction_that_is_under_way(
    engine: PostgresqlEngine, database: EngineDatabase, thread: ThreadPoolExecutor
) -> None:
    vanish(engine)
    with engine._writer.transaction() as write:
        second = thread.submit(PostgresqlEngine, database.url, lease_ms=300)
        write("UPDATE streams SET description = 'in time' WHERE id = 1", ())
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        until(lambda: database.query(waiting) == [(1,)])
        assert not second.done()
    other: PostgresqlEngine = second.result(PATIENCE_S)
    found = other.streams.load("s")
    other.close()
    assert found is not None
    assert found.state.config.description == "in time"


# ── Connections that break ───────────────────────────────────────────────────────────────────


def test_a_connection_that_broke_while_idle_costs_nothing(
    engine: PostgresqlEngine, database: EngineDatabase
) -> None:
    for position in range(6, 9):
        database.cut_connections()
        engine.commit([append(position)])
        assert content(engine) == b"before" + b"x" * (position - 5)
    assert engine._ownership.epoch == database.query("SELECT epoch FROM nodes")[0][0]


def test_nothing_is_read_on_connections_from_before_the_lease_had_to_reconnect(
    engine: PostgresqlEngine, database: EngineDatabase
) -> None:
    """They may lead to a primary that is none any more, and has not noticed yet."""
    assert content(engine) == b"before"
    kept, readers = engine._keeper._kept, engine._readers
    before = set(readers._idle)
    assert before
    lease = kept._connection
    assert lease is not None
    database.query(f"SELECT pg_terminate_backend({lease.info.backend_pid}, 10000)")
    until(lambda: _succeeds(engine._keeper.look) and kept._connection is not lease)
    assert before.isdisjoint(readers._idle)
    assert all(connection.closed for connection in before)
    assert content(engine) == b"before"


def under_way(
    engine: PostgresqlEngine, database: EngineDatabase, thread: ThreadPoolExecutor, event: str
) -> tuple[Future[None], int]:
    """A commit that has got as far as waiting for something, and who is doing it."""
    commit = thread.submit(engine.commit, [append(6, b"doubt")])
    waiting = (
        f"SELECT pid FROM pg_stat_activity WHERE wait_event = '{event}' AND"
        f" datname = '{database.name}'"
    )
    until(lambda: bool(database.query(waiting)))
    return commit, database.query(waiting)[0][0]


def test_a_commit_that_never_happened_is_refused_and_stays_undone(
    engine: PostgresqlEngine, database: EngineDatabase, thread: ThreadPoolExecutor
) -> None:
    epoch = engine._ownership.epoch
    with database.connect() as connection, connection.transaction():
        connection.execute("LOCK TABLE ops IN EXCLUSIVE MODE")
        commit, process = under_way(engine, database, thread, "relation")
        database.query(f"SELECT pg_terminate_backend({process})")
        with pytest.raises(OutcomeUnknown):
            commit.result(PATIENCE_S)
    assert engine._ownership.epoch > epoch
    assert content(engine) == b"before"
    engine.commit([append(6, b"again")])
    assert content(engine) == b"beforeagain"


@pytest.fixture
def wait_for_replica(database: EngineDatabase) -> Iterator[Callable[[str], None]]:
    """Let commits wait for a replica of some name, or for none."""

    def set_names(names: str) -> None:
        database.query(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        database.query("SELECT pg_reload_conf()")

        shown = "SHOW synchronous_standby_names"
        until(lambda: database.query(shown) == [(names,)])

    yield set_names
    set_names("")


@pytest.mark.parametrize("how", ["pg_terminate_backend", "pg_cancel_backend"])
def test_a_commit_that_no_replica_has_is_not_acknowledged(
    engine: PostgresqlEngine,
    database: EngineDatabase,
    thread: ThreadPoolExecutor,
    wait_for_replica: Callable[[str], None],
    how: str,
) -> None:
    """It may well have happened here. Asking again gives the answer that holds."""
    # Its signs of life would wait as well, and nothing else is to be in the way.
    vanish(engine)
    wait_for_replica("nobody")
    commit, process = under_way(engine, database, thread, "SyncRep")
    database.query(f"SELECT {how}({process})")
    # The matter is settled by another commit, which waits for a replica too.
    other = f"wait_event = 'SyncRep' AND pid <> {process} AND datname = '{database.name}'"
    until(lambda: bool(database.query(f"SELECT 1 FROM pg_stat_activity WHERE {other}")))
    with pytest.raises(StorageUnavailable):
        engine.streams.load("s")
    assert not commit.done()
    wait_for_replica("")
    with pytest.raises(OutcomeUnknown):
        commit.result(PATIENCE_S)
    assert content(engine) == b"beforedoubt"
    engine.commit([append(11, b"!")])
    assert content(engine) == b"beforedoubt!"


def test_what_postgresql_refuses_is_undone_as_a_whole(engine: PostgresqlEngine) -> None:
    with pytest.raises(StorageUnavailable, match="duplicate key"):
        engine.commit([append(6), append(7), append(0)])
    assert content(engine) == b"before"
    engine.commit([append(6)])
    assert content(engine) == b"beforex"


def test_postgresql_stops_and_comes_back() -> None:
    with PostgresServer() as server, opened(new_database(server, "engine")) as engine:
        engine.commit([Created(CONFIG), append(0, b"before")])
        server.stop()
        for question in (lambda: engine.commit([append(6)]), engine.streams.next_id):
            with pytest.raises(StorageUnavailable, match="does not answer"):
                question()
        server.start()
        # At first it takes no connections yet; whoever comes back is served.
        until(lambda: _succeeds(lambda: engine.commit([append(6, b"after")])))
        assert content(engine) == b"beforeafter"


def _succeeds(work: Callable[[], object]) -> bool:
    try:
        work()
    except StorageUnavailable:
        return False
    return True


def test_a_database_that_becomes_read_only(
    engine: PostgresqlEngine, database: EngineDatabase
) -> None:
    with database.read_only():
        with pytest.raises(StorageUnavailable, match="read-only"):
            engine.commit([append(6)])
        with pytest.raises(CannotOpen, match="read-only"):
            PostgresqlEngine(database.url)
    engine.commit([append(6)])
    assert content(engine) == b"beforex"


def test_a_full_disk(engine: PostgresqlEngine, database: EngineDatabase) -> None:
    database.query(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION"
        " 'could not extend file: no space left on device' USING ERRCODE = '53100'; END $$"
    )
    database.query("CREATE TRIGGER full_disk BEFORE INSERT ON ops EXECUTE FUNCTION full_disk()")
    try:
        with pytest.raises(StorageFull):
            engine.commit([append(6)])
    finally:
        database.query("DROP FUNCTION full_disk CASCADE")
    engine.commit([append(6)])
    assert content(engine) == b"beforex"


# ── Databases that cannot be used ────────────────────────────────────────────────────────────


def test_postgresql_is_not_there() -> None:
    with pytest.raises(CannotOpen, match="does not answer"):
        PostgresqlEngine(f"postgresql://127.0.0.1:{free_port()}/headwater")


def test_each_of_several_servers_is_named_once(database: EngineDatabase) -> None:
    port = urlsplit(database.url).port
    nobody = f"127.0.0.1:{free_port()}"
    several = database.url.replace(f"127.0.0.1:{port}", f"{nobody},127.0.0.1:{port}")
    with database.read_only(), pytest.raises(CannotOpen) as refusal:
        PostgresqlEngine(several)
    said = str(refusal.value)
    assert said.startswith(f"PostgreSQL at {nobody},127.0.0.1:{port}/{database.name}: ")
    assert "has no server that takes writes (" in said
    assert said.count("Connection refused") == said.count("session is read-only") == 1
    with pytest.raises(CannotOpen, match=r"refuses the connection \(.*; check user, password"):
        PostgresqlEngine(several.replace("hunter2", "a-guess"))


@pytest.mark.parametrize("url", ["postgresql://localhost", "postgresql://[h/d", "no=thing"])
def test_an_address_that_makes_no_sense(url: str) -> None:
    with pytest.raises(CannotOpen, match="address of the engine"):
        PostgresqlEngine(url)


def test_a_database_that_is_not_there(database: EngineDatabase) -> None:
    with pytest.raises(CannotOpen, match='database "nowhere" does not exist'):
        PostgresqlEngine(database.url.replace(database.name, "nowhere"))


def test_a_wrong_password(database: EngineDatabase) -> None:
    with pytest.raises(CannotOpen, match="password authentication failed") as refusal:
        PostgresqlEngine(database.url.replace("hunter2", "a-guess"))
    assert "a-guess" not in str(refusal.value)


def test_postgresql_is_too_old(database: EngineDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "VERSION_MIN", 99)
    with pytest.raises(CannotOpen, match="needs 99 or later"):
        PostgresqlEngine(database.url)


def test_a_database_of_a_newer_headwater(
    engine: PostgresqlEngine, database: EngineDatabase
) -> None:
    engine.close()
    database.query("UPDATE cluster SET layout = layout + 1")
    try:
        with pytest.raises(CannotOpen, match="newer headwater"):
            PostgresqlEngine(database.url)
    finally:
        database.query("UPDATE cluster SET layout = layout - 1")


@pytest.mark.parametrize(
    "somebody",
    [
        "CREATE SCHEMA headwater",
        "CREATE SCHEMA headwater CREATE TABLE cluster (name text)",
        "CREATE SCHEMA headwater CREATE TABLE cluster (purpose text, layout int)",
    ],
)
def test_a_schema_of_somebody_else(somebody: str) -> None:
    name = f"other_{abs(hash(somebody))}"
    database = new_database(shared_server(), name)
    database.query(somebody)
    before = database.query("SELECT count(*) FROM pg_class")
    with pytest.raises(CannotOpen, match="not headwater's"):
        PostgresqlEngine(database.url)
    assert database.query("SELECT count(*) FROM pg_class") == before


def test_a_database_in_another_encoding() -> None:
    with shared_server().connect() as connection:
        connection.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1'")
    with pytest.raises(CannotOpen, match="LATIN1"):
        PostgresqlEngine(EngineDatabase(shared_server(), "latin").url)


def test_an_address_that_leads_to_another_database(
    engine: PostgresqlEngine, database: EngineDatabase
) -> None:
    known = database.query("SELECT id FROM cluster")[0][0]
    database.query("UPDATE cluster SET id = gen_random_uuid()")
    database.cut_connections()
    for question in (lambda: engine.commit([append(6)]), engine.streams.next_id):
        with pytest.raises(StorageUnavailable, match="another database"):
            question()
    database.query(f"UPDATE cluster SET id = '{known}'")
    engine.commit([append(6)])
    assert content(engine) == b"beforex"


def test_two_nodes_make_one_layout(thread: ThreadPoolExecutor) -> None:
    database = new_database(shared_server(), "brand_new")

    def start() -> str:
        try:
            PostgresqlEngine(database.url, lease_ms=LEASE_MS).close()
        except CannotOpen as error:
            return str(error)
        return "another node"

    first = thread.submit(start)
    assert "another node" in start()
    assert "another node" in first.result(PATIENCE_S)
    assert database.query("SELECT layout FROM cluster") == [(LAYOUT,)]


def test_commits_without_replicas_are_warned_of(database: EngineDatabase) -> None:
    with capture_logs() as lines, opened(database):
        pass
    assert "commits_are_not_replicated" in [line["event"] for line in lines]


# ── Damage ───────────────────────────────────────────────────────────────────────────────────


def test_damage_is_an_error_and_never_data(
    engine: PostgresqlEngine, database: EngineDatabase
) -> None:
    engine.commit([append(6, b"middle"), append(12, b"end")])
    assert [line for line in engine.verify() if isinstance(line, Problem)] == []
    database.query("UPDATE ops SET body = 'muddle' WHERE start = 6")
    assert engine.appends.read(Span(1, 0, 6), 100) == [b"before"]
    for question in (
        lambda: engine.appends.read(Span(1, 6, 15), 100),
        lambda: engine.appends.frames(Span(1, 6, 15), 100, 100),
        lambda: engine.appends.append_at(1, 8),
    ):
        with pytest.raises(DataCorrupt, match="stream 1 at 6"):
            question()
    problems = [line for line in engine.verify() if isinstance(line, Problem)]
    assert [problem.where for problem in problems] == ["stream 1 at 6"]
    database.query("DELETE FROM ops WHERE start = 6")
    with pytest.raises(DataCorrupt, match="stream 1 at 12"):
        engine.appends.read(Span(1, 0, 15), 100)
    problems = [line for line in engine.verify() if isinstance(line, Problem)]
    assert [problem.what for problem in problems] == ["nothing until 12"]


@pytest.mark.parametrize("text", ["", "\0", "\1", "\1\1", "\1\2", "a\0b\1\0", "é\U0010ffff\x7f"])
def test_any_text_comes_back_as_it_was(engine: PostgresqlEngine, text: str) -> None:
    config = StreamConfig(2, "t", "text/plain", 5, lineage=Lineage(2), description=text)
    engine.commit([Created(config)])
    found = engine.streams.load("t")
    assert found is not None
    assert found.state.config.description == text


def test_one_that_is_taken_over_while_it_ends_leaves_no_connection_behind(
    database: EngineDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def renew(connection: object) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        raise LostShard

    engine = PostgresqlEngine(database.url, lease_ms=300)
    monkeypatch.setattr(engine._ownership, "renew", renew)
    assert begun.wait(PATIENCE_S)
    connection = engine._keeper._kept.connected()
    engine.close()
    assert not connection.closed
    go_on.set()
    engine._keeper._thread.join(PATIENCE_S)
    assert connection.closed


def test_a_node_whose_sign_of_life_waits_for_a_replica_can_still_end(
    database: EngineDatabase, wait_for_replica: Callable[[str], None]
) -> None:
    engine = PostgresqlEngine(database.url, lease_ms=LEASE_MS)
    wait_for_replica("nobody")
    waiting = f"wait_event = 'SyncRep' AND datname = '{database.name}'"
    until(lambda: bool(database.query(f"SELECT 1 FROM pg_stat_activity WHERE {waiting}")))
    engine.close()
    assert engine._keeper._thread.is_alive()
    wait_for_replica("")
    engine._keeper._thread.join(PATIENCE_S)
