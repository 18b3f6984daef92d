"""Copies between engines: the same under every question, or refused with nothing left behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from headwater.core.decisions import Append, Create
from headwater.core.errors import DataCorrupt, StorageUnavailable
from headwater.store.copying import TABLES, Copied, CopyError, Source, Target, copy
from headwater.store.engine import CannotOpen, Engine, Problem
from headwater.store.history.archive import Archive
from headwater.store.history.object_storage import Remote
from headwater.store.postgresql.copying import PostgresqlCopy
from headwater.store.postgresql.engine import PostgresqlEngine
from headwater.store.postgresql.inspection import verify_address
from headwater.store.rows import Row
from headwater.store.sqlite.copying import SCRATCH_NAME, SqliteSource, SqliteTarget
from headwater.store.sqlite.engine import SqliteEngine
from tests.store.test_engines_agree import EnginesAgree
from tests.store.test_schemas import (
    HISTORY,
    ONLY_POSTGRESQL,
    ONLY_SQLITE,
    OWN_COLUMNS,
    sqlite_columns,
)
from tests.support.decided import CommittedStreams
from tests.support.postgresql import LEASE_MS, EngineDatabase, databases
from tests.support.properties import FEW
from tests.support.sealing import archive_all, seal


def run(source: Source, target: Target) -> Copied:
    *_, copied = copy(source, target)
    assert isinstance(copied, Copied)
    return copied


def there(directory: Path, url: str, remote: Remote | None = None) -> Copied:
    with SqliteSource.open(directory, remote) as source, PostgresqlCopy.target(url) as target:
        return run(source, target)


def back(url: str, directory: Path) -> Copied:
    with PostgresqlCopy.source(url) as source, SqliteTarget.open(directory) as target:
        return run(source, target)


def problems_of(url: str) -> list[Problem]:
    return [line for line in verify_address(url) if isinstance(line, Problem)]


def test_every_table_and_column_is_copied() -> None:
    copied = {(table, name) for table, columns in TABLES.items() for name in columns.split(", ")}
    left_out = ONLY_SQLITE | ONLY_POSTGRESQL | HISTORY
    there_are = {c for c in sqlite_columns() if c[0] not in left_out}
    # Their order is copied; their number is a matter of the table.
    assert there_are - copied == OWN_COLUMNS & sqlite_columns() | {("secrets", "id")}
    assert copied - there_are == set()


# ── There and back ───────────────────────────────────────────────────────────────────────────


class CopiesAgree(EnginesAgree):
    """The engine that stores is another one again and again, and holds what the one before held."""

    directory: Path
    database: EngineDatabase
    in_postgresql = False
    moves = 0

    def open(self) -> Engine:
        if not hasattr(self, "directory"):
            self.directory = Path(self.place.enter_context(tempfile.TemporaryDirectory())) / "0"
        if self.in_postgresql:
            return PostgresqlEngine(self.database.url, lease_ms=LEASE_MS)
        return SqliteEngine(self.directory)

    @rule(first=st.booleans())
    def seal(self, first: bool) -> None:
        """Some appends lie in files, which only one of the engines has."""
        if isinstance(self.stored, SqliteEngine):
            seal(self.stored, [1] if first else None)

    @rule()
    def move(self) -> None:
        self.stored.close()
        self.moves += 1
        if self.in_postgresql:
            self.directory = self.directory.with_name(str(self.moves))
            back(self.database.url, self.directory)
        else:
            self.database = self.place.enter_context(databases())
            there(self.directory, self.database.url)
        self.in_postgresql = not self.in_postgresql
        self.stored = self.open()
        if not self.batch:
            self.compare()

    def teardown(self) -> None:
        self.move()
        super().teardown()


TestCopiesAgree = CopiesAgree.TestCase
TestCopiesAgree.settings = settings(FEW, max_examples=8, stateful_step_count=25)


# ── History, damage, interruptions ───────────────────────────────────────────────────────────


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory with two streams, one of them sealed."""
    directory = tmp_path / "data"
    with closing(SqliteEngine(directory)) as engine:
        streams = CommittedStreams(engine)
        fill(streams, "old", 3)
        seal(engine)
        fill(streams, "new", 2)
    return directory


def fill(streams: CommittedStreams, path: str, appends: int) -> None:
    streams.create(Create(path, "text/plain"), 1_000)
    for number in range(appends):
        streams.append(path, Append(b"%d" % number, "text/plain"), 1_001 + number)


def content(engine: Engine, path: str) -> bytes:
    loaded = engine.streams.load(path)
    assert loaded is not None
    spans = loaded.state.config.lineage.spans(0, loaded.state.tail)
    return b"".join(body for span in spans for body in engine.appends.read(span, 10**6))


def test_sealed_appends_become_rows(
    directory: Path, database: EngineDatabase, tmp_path: Path
) -> None:
    copied = there(directory, database.url)
    assert (copied.rows["streams"], copied.rows["ops"], copied.size_bytes) == (2, 5, 5)
    with closing(PostgresqlEngine(database.url, lease_ms=LEASE_MS)) as engine:
        assert content(engine, "old") == b"012"
    assert problems_of(database.url) == []
    again = back(database.url, tmp_path / "again")
    assert again == copied
    with closing(SqliteEngine(tmp_path / "again")) as engine:
        assert (content(engine, "old"), content(engine, "new")) == (b"012", b"01")
        assert engine.streams.next_id() == 3
        assert not [line for line in engine.verify() if isinstance(line, Problem)]


def test_history_in_object_storage_is_fetched(
    directory: Path, database: EngineDatabase, tmp_path: Path
) -> None:
    remote = Remote(f"file://{tmp_path / 'bucket'}")
    with closing(SqliteEngine(directory)) as engine:
        archive_all(Archive(engine.history, remote, 10**6), 0)
    with pytest.raises(CopyError, match="only in object storage; say where with --history-store"):
        there(directory, database.url)
    assert there(directory, database.url, remote).rows["ops"] == 5
    with closing(PostgresqlEngine(database.url, lease_ms=LEASE_MS)) as stored:
        assert content(stored, "old") == b"012"


def test_damage_is_not_copied(directory: Path, database: EngineDatabase, tmp_path: Path) -> None:
    there(directory, database.url)
    database.query("UPDATE ops SET body = 'x' WHERE start = 1")
    with pytest.raises(DataCorrupt):
        back(database.url, tmp_path / "again")
    assert problems_of(database.url)
    assert [entry.name for entry in (tmp_path / "again").iterdir()] == ["LOCK"]


class Interrupted(Exception):
    pass


class Breaking:
    """A target that fails when a table is about to be written, or to count."""

    def __init__(self, target: Target, at: str) -> None:
        self._target = target
        self._at = at
        self.use_ids = target.use_ids

    def rows(self, table: str) -> Iterator[Row]:
        return self._target.rows(table)

    def insert(self, table: str, batch: list[Row]) -> None:
        self._target.insert(table, batch)
        if table == self._at:
            raise Interrupted

    def finish(self) -> None:
        raise Interrupted


@pytest.mark.parametrize("at", ["streams", "ops", "finish"])
def test_an_interrupted_copy_leaves_nothing_and_can_be_repeated(
    directory: Path, database: EngineDatabase, tmp_path: Path, at: str
) -> None:
    with (
        suppress(Interrupted),
        SqliteSource.open(directory, None) as source,
        PostgresqlCopy.target(database.url) as target,
    ):
        run(source, Breaking(target, at))
    assert database.query("SELECT count(*) FROM streams") == [(0,)]
    there(directory, database.url)
    new = tmp_path / "again"
    with (
        suppress(Interrupted),
        PostgresqlCopy.source(database.url) as other,
        SqliteTarget.open(new) as place,
    ):
        run(other, Breaking(place, at))
    # As if it had been killed, so that it could not clear away anything.
    (new / SCRATCH_NAME).mkdir()
    (new / SCRATCH_NAME / "headwater.db").write_bytes(b"half")
    assert back(database.url, new).rows["ops"] == 5


class Forgetful(Breaking):
    """A target that loses a row and does not say so."""

    def insert(self, table: str, batch: list[Row]) -> None:
        self._target.insert(table, batch[1:] if table == self._at else batch)

    def finish(self) -> None:
        raise AssertionError("what is incomplete must not count")


def test_a_copy_that_is_not_the_same_does_not_count(directory: Path, tmp_path: Path) -> None:
    with (
        SqliteSource.open(directory, None) as source,
        SqliteTarget.open(tmp_path / "new") as target,
        pytest.raises(CopyError, match=r"4 rows of ops with digest .* instead of 5"),
    ):
        run(source, Forgetful(target, "ops"))


# ── What is refused ──────────────────────────────────────────────────────────────────────────


def test_a_database_in_use_is_refused(
    directory: Path, database: EngineDatabase, tmp_path: Path
) -> None:
    # Seconds for a busy machine to show a sign of life in, and no more for us to see one.
    with closing(PostgresqlEngine(database.url, lease_ms=6_000)) as engine:
        with pytest.raises(CopyError, match=r"in use by a node, .*process \d+.*; stop it first"):
            there(directory, database.url)
        with pytest.raises(CopyError, match="in use by a node"):
            back(database.url, tmp_path / "new")
        fill(CommittedStreams(engine), "still", 1)


def test_a_node_that_was_paused_cannot_write_into_a_copy(
    directory: Path, database: EngineDatabase
) -> None:
    with closing(PostgresqlEngine(database.url, lease_ms=600)) as paused:
        # It shows no sign of life any more, not even one that is under way.
        paused._keeper.stop()
        paused._keeper._thread.join(60)
        there(directory, database.url)
        with pytest.raises(StorageUnavailable, match="another node has taken over"):
            fill(CommittedStreams(paused), "late", 1)


def test_a_directory_in_use_is_refused(directory: Path, database: EngineDatabase) -> None:
    with closing(SqliteEngine(directory)), pytest.raises(CannotOpen, match="is in use by another"):
        there(directory, database.url)


def test_what_is_not_empty_is_refused(
    directory: Path, database: EngineDatabase, tmp_path: Path
) -> None:
    there(directory, database.url)
    with pytest.raises(CopyError, match="is not empty"):
        there(directory, database.url)
    with pytest.raises(CopyError, match="is not empty, and nothing is overwritten"):
        back(database.url, directory)
    (tmp_path / "file").touch()
    with pytest.raises(CopyError, match="is not a directory"):
        back(database.url, tmp_path / "file")


def test_what_holds_no_streams_is_no_source(tmp_path: Path, database: EngineDatabase) -> None:
    with pytest.raises(CopyError, match="holds no headwater database"):
        there(tmp_path / "nothing", database.url)
    assert not (tmp_path / "nothing").exists()
    url = f"{database.url.rpartition('/')[0]}/postgres"
    with pytest.raises(CannotOpen, match="holds no streams of headwater"):
        back(url, tmp_path / "new")
    with pytest.raises(CannotOpen, match="does not answer"):
        back("postgresql://127.0.0.1:1/headwater", tmp_path / "new")
