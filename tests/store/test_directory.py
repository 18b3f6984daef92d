"""Data directories: whose they are, what may be in them, and how older ones are brought up."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.core.decisions import Create
from headwater.core.lineage import Span
from headwater.store.sqlite import database, schema
from headwater.store.sqlite.database import DATABASE_NAME, DataDirectoryError, connect
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.verify import verify_database
from tests.support.decided import CommittedStreams
from tests.support.sealing import seal


def refusal(directory: Path) -> str:
    """The one line with which a directory is refused."""
    with pytest.raises(DataDirectoryError) as caught:
        SqliteEngine(directory)
    message = str(caught.value)
    assert "\n" not in message
    assert str(directory) in message
    return message


def open_and_look(directory: Path) -> None:
    with closing(SqliteEngine(directory)) as engine:
        loaded = engine.streams.load("s")
        assert loaded is not None
        assert engine.appends.read(Span(1, 0, 4), 10) == [b"data"]


@pytest.fixture
def filled(directory: Path) -> Path:
    with closing(SqliteEngine(directory)) as engine:
        CommittedStreams(engine).create(Create("s", body=b"data"), 1_000)
    return directory


# ── One process at a time ────────────────────────────────────────────────────────────────────

HOLD = """
import sys
from pathlib import Path
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.verify import verify_database
engine = SqliteEngine(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_process(filled: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has the directory open."""
    command = [sys.executable, "-c", HOLD, str(filled)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield process
        process.kill()


def test_a_directory_in_use_is_refused_and_the_holder_named(
    filled: Path, other_process: subprocess.Popen[bytes]
) -> None:
    message = refusal(filled)
    assert "in use" in message
    assert str(other_process.pid) in message


def test_a_killed_process_leaves_no_lock_behind(
    filled: Path, other_process: subprocess.Popen[bytes]
) -> None:
    other_process.kill()
    other_process.wait()
    open_and_look(filled)


def test_the_same_process_cannot_open_it_twice_either(filled: Path) -> None:
    with closing(SqliteEngine(filled)):
        assert "in use" in refusal(filled)
    open_and_look(filled)


# ── What is not ours ─────────────────────────────────────────────────────────────────────────


def test_another_programs_database_is_refused_and_left_as_it_is(directory: Path) -> None:
    directory.mkdir()
    path = directory / DATABASE_NAME
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE streams (id INTEGER PRIMARY KEY, path TEXT)")
        connection.commit()
    before = path.read_bytes()
    assert "not a headwater database" in refusal(directory)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"just some notes\n" * 100, b"SQLite format 4\0" * 100])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(
    directory: Path, content: bytes
) -> None:
    directory.mkdir()
    path = directory / DATABASE_NAME
    path.write_bytes(content)
    assert "not a headwater database" in refusal(directory)
    assert path.read_bytes() == content


def test_a_place_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "cannot use" in refusal(tmp_path / "file")
    assert "cannot use" in refusal(tmp_path / "file" / "below")


def test_a_refused_directory_can_be_tried_again(filled: Path) -> None:
    path = filled / DATABASE_NAME
    whole = path.read_bytes()
    path.write_bytes(b"not any more" * 1000)
    refusal(filled)
    path.write_bytes(whole)
    open_and_look(filled)


# ── Versions of the schema ───────────────────────────────────────────────────────────────────


def version(directory: Path) -> int:
    with closing(connect(directory / DATABASE_NAME, read_only=True)) as connection:
        number: int = connection.pragma("user_version")
        return number


def upgrade(patch: pytest.MonkeyPatch, *migrations: str) -> None:
    """Pretend to be a later headwater, which knows more migrations."""
    monkeypatched = (*schema.MIGRATIONS, *migrations)
    patch.setattr(database, "MIGRATIONS", monkeypatched)
    patch.setattr(database, "SCHEMA_VERSION", len(monkeypatched))


def test_a_newer_schema_is_refused_in_one_line(filled: Path) -> None:
    newer = schema.SCHEMA_VERSION + 1
    with closing(connect(filled / DATABASE_NAME)) as connection:
        connection.pragma("user_version", newer)
    message = refusal(filled)
    assert "newer headwater" in message
    assert f"schema {newer}" in message
    assert version(filled) == newer


def test_an_older_schema_is_brought_up_and_keeps_its_data(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = version(filled)
    assert before == schema.SCHEMA_VERSION
    with monkeypatch.context() as patch:
        upgrade(
            patch,
            "ALTER TABLE streams ADD COLUMN note TEXT; UPDATE streams SET note = 'kept';",
            "CREATE TABLE extras (id INTEGER PRIMARY KEY);",
        )
        open_and_look(filled)
        assert version(filled) == before + 2
        open_and_look(filled)
        with closing(connect(filled / DATABASE_NAME, read_only=True)) as connection:
            assert connection.execute("SELECT note FROM streams").fetchall() == [("kept",)]
            assert connection.execute("SELECT count(*) FROM extras").fetchall() == [(0,)]
    assert "newer headwater" in refusal(filled), "the old program keeps its hands off"


def test_a_new_directory_goes_through_every_migration(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(monkeypatch, "CREATE TABLE extras (id INTEGER PRIMARY KEY);")
    with closing(SqliteEngine(directory)) as engine:
        CommittedStreams(engine).create(Create("s", body=b"data"), 1_000)
    assert version(directory) == schema.SCHEMA_VERSION + 1
    open_and_look(directory)


def test_a_migration_that_fails_changes_nothing(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = version(filled)
    with monkeypatch.context() as patch:
        upgrade(
            patch, "CREATE TABLE extras (id INTEGER PRIMARY KEY); ALTER TABLE nowhere RENAME TO x;"
        )
        assert "nowhere" in refusal(filled)
    assert version(filled) == before
    with closing(connect(filled / DATABASE_NAME, read_only=True)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_schema").fetchall()
    assert ("extras",) not in tables
    open_and_look(filled)


def test_others_who_look_do_not_start_over(directory: Path) -> None:
    """While an engine is open, nobody may take its database for abandoned.

    Asked of another process: opening and closing the file in this one would give up its locks.
    """
    SqliteEngine(directory).close()
    with closing(SqliteEngine(directory)):
        shared = f"{directory / DATABASE_NAME}-shm"
        for _ in range(2):
            locked = subprocess.run(
                [sys.executable, "-c", IS_LOCKED, shared],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
            assert locked.stdout == "True\n"
            assert any(verify_database(directory / DATABASE_NAME))


# The byte by which SQLite tells whether anyone has a database open.
IS_LOCKED = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)
        print(False)
    except OSError:
        print(True)
"""


# ── Who may read it ──────────────────────────────────────────────────────────────────────────


def modes(directory: Path) -> dict[str, str]:
    found = (directory, *directory.rglob("*"))
    return {path.name: oct(path.stat().st_mode & 0o777) for path in found}


def test_data_is_for_its_owner_alone(directory: Path) -> None:
    before = os.umask(0)
    try:
        with closing(SqliteEngine(directory)) as engine:
            streams = CommittedStreams(engine)
            streams.create(Create("s", body=b"one"), 1_000)
            seal(engine)
            found = modes(directory)
    finally:
        os.umask(before)
    assert found.pop(directory.name) == found.pop("segments") == "0o700"
    assert {f"{DATABASE_NAME}-wal", DATABASE_NAME} <= {*found}
    assert {*found.values()} == {"0o600"}, found


def test_a_directory_of_an_older_version_is_tightened(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(SqliteEngine(directory)) as engine:
        CommittedStreams(engine).create(Create("s", body=b"one"), 1_000)
        seal(engine)
    for path in (directory, directory / "segments"):
        path.chmod(0o755)
    for path in directory.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    (directory / "notes.txt").write_text("of somebody else")
    (directory / "notes.txt").chmod(0o644)
    with closing(SqliteEngine(directory)):
        found = modes(directory)
    assert found.pop("notes.txt") == "0o644"
    assert {*found.values()} == {"0o600", "0o700"}
    assert "permissions_tightened" in "".join(capsys.readouterr())
