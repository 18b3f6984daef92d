"""`headwater postgres` at a prompt: what it says, and above all when something is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Protocol

import msgspec
import pytest
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.client import Headwater
from tests.postgres.conftest import TestDatabase
from tests.postgres.server import PASSWORD, PostgresServer


class Run(Protocol):
    def __call__(self, *arguments: str, code: int = 0) -> str: ...


@pytest.fixture
def run(url: str) -> Run:
    """Run a command; returns what it printed, or the one line that says why it failed."""

    def run(*arguments: str, code: int = 0) -> str:
        environment = {"STREAM_URL": url, "STREAM_AUTH": None, "HEADWATER_DEBUG": None}
        result = CliRunner().invoke(app, ["postgres", *arguments], env=environment)
        assert result.exit_code == code, result.stderr
        assert PASSWORD not in result.output
        if code:
            *before, last = result.stderr.splitlines()
            assert all(line.startswith("headwater: ") for line in before)
            return last
        return result.stdout

    return run


@pytest.fixture
def role(db: TestDatabase) -> Iterator[str]:
    """The name of a role that may do next to nothing, with the usual password."""
    db.execute(f"CREATE ROLE humble LOGIN PASSWORD '{PASSWORD}'")
    yield "humble"
    db.execute("DROP OWNED BY humble", "DROP ROLE humble")


def as_role(dsn: str, role: str) -> str:
    return dsn.replace("//postgres:", f"//{role}:")


def test_from_setup_to_drop(db: TestDatabase, run: Run, url: str) -> None:
    slot = ["--slot", db.slot]
    db.execute("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int)")
    assert "headwater (missing)" in run("status", db.dsn, *slot)
    shown = run("setup", db.dsn, *slot, "--table", "a", "--table", "public.b", "--full")
    assert "public.a  key, old rows" in shown
    assert "public.b  no key, old rows" in shown
    run("setup", db.dsn, *slot)  # may be repeated
    db.execute("INSERT INTO a VALUES (1)")
    record = msgspec.json.decode(run("status", db.dsn, *slot, "--json"))
    assert record["exists"] is True
    assert record["active"] is False
    assert record["behind_bytes"] > 0
    assert record["tables"][0] == {"name": "public.a", "before_images": True, "key": True}
    run("follow", db.dsn, f"command/{db.slot}", *slot, "--create", "--once")
    with Headwater(url) as client:
        (record,) = client.stream(f"command/{db.slot}").read_json()
        assert record["value"] == {"id": 1}
    run("drop", db.dsn, *slot, "--yes")
    assert "(missing)" in run("status", db.dsn, *slot)
    assert "there is neither a slot" in run("drop", db.dsn, *slot, "--yes", code=3)


def test_drop_asks_first(db: TestDatabase, run: Run) -> None:
    assert "add --yes" in run("drop", db.dsn, code=2)


@pytest.mark.parametrize(
    "dsn, code",
    [
        (f"postgresql://user:{PASSWORD}@127.0.0.1:notaport/app", 1),
        (f"postgresql://user:{PASSWORD}@127.0.0.1/app?nonsense=1", 1),
        (f"no address {PASSWORD}", 1),
        (f"postgresql://user:1/{PASSWORD}@127.0.0.1/app", 1),
        (f"postgresql://user:{PASSWORD}@127.0.0.1:1/app", 6),
        (f"postgresql://user:{PASSWORD}@no-such-host.invalid/app", 6),
    ],
    ids=["port", "parameter", "words", "unescaped", "nobody there", "no such host"],
)
def test_a_wrong_address(run: Run, dsn: str, code: int) -> None:
    said = run("follow", dsn, "s", "--create", code=code)
    assert "this is no address" in said if code == 1 else "cannot connect to app" in said


def test_a_wrong_password_and_a_wrong_database(db: TestDatabase, run: Run) -> None:
    wrong = db.dsn.replace(PASSWORD, "wrong")
    assert "password authentication failed" in run("status", wrong, code=6)
    other = db.dsn.removesuffix("postgres") + "nowhere"
    assert 'database "nowhere" does not exist' in run("status", other, code=6)


def test_the_log_is_not_logical(run: Run) -> None:
    with PostgresServer(wal_level="replica") as server:
        said = run("follow", server.dsn, "s", "--create", code=1)
    assert "wal_level is replica" in said
    assert "ALTER SYSTEM SET wal_level = 'logical'" in said
    assert "restart PostgreSQL" in said


def test_missing_privileges(db: TestDatabase, run: Run, role: str) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY)")
    dsn = as_role(db.dsn, role)
    follow = ["follow", dsn, f"command/{db.slot}", "--slot", db.slot, "--create", "--once"]
    assert "needs REPLICATION" in run(*follow, code=1)
    db.execute(f"ALTER ROLE {role} REPLICATION")
    assert "permission denied" in run(*follow, "--table", "t", code=1)
    db.execute("CREATE PUBLICATION headwater FOR TABLE t")
    db.execute(f"GRANT USAGE ON SCHEMA public TO {role}")
    assert "permission denied for table t" in run(*follow, "--snapshot", code=1)
    db.execute(f"GRANT SELECT ON t TO {role}")
    run(*follow, "--snapshot")


def test_what_is_not_there(db: TestDatabase, run: Run) -> None:
    path = f"command/{db.slot}"
    follow = ["follow", db.dsn, path, "--once"]
    assert f"there is no stream '{path}'" in run(*follow, code=3)
    run("setup", db.dsn)
    run(*follow, "--create")
    assert "no publication 'other'" in run(*follow, "--publication", "other", code=1)
    assert "no slot 'other'" in run(*follow, "--slot", "other", code=1)
    assert "'Other' cannot be the name of a slot" in run(*follow, "--slot", "Other", code=1)
    db.execute("DROP PUBLICATION headwater")
    assert "PostgreSQL cannot use a new one" in run(*follow, "--create", code=1)
    assert "no name of a table" in run(
        "setup", db.dsn, "--slot", db.slot, "--table", "a.b.c", code=1
    )


def test_a_stream_of_another_kind(db: TestDatabase, run: Run, url: str) -> None:
    path = f"command/{db.slot}"
    with Headwater(url) as client:
        client.stream(f"{path}/text").create(content_type="text/plain")
        client.stream(f"{path}/closed").create(content_type="application/json", closed=True)
        client.stream(f"{path}/ahead").create(content_type="application/json")
        client.stream(f"{path}/ahead").append({"headers": {"lsn": "FFFFFFFF/0", "seq": 0}})
    follow = ["follow", db.dsn]
    assert "holds text/plain, not JSON" in run(*follow, f"{path}/text", code=4)
    assert "is closed" in run(*follow, f"{path}/closed", code=4)
    assert "fed from another server" in run(*follow, f"{path}/ahead", "--create", code=4)
    assert "is not the path of a stream" in run(*follow, "a/../b", code=2)


def test_nobody_serves_streams(db: TestDatabase, run: Run) -> None:
    said = run("follow", db.dsn, "s", "--url", "http://127.0.0.1:1", code=6)
    assert "cannot reach http://127.0.0.1:1" in said


def test_a_slot_in_use(
    db: TestDatabase, run: Run, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.postgres.follower.SLOT_PATIENCE_S", 0.3)
    monkeypatch.setattr("headwater.postgres.manage.SLOT_PATIENCE_S", 0.3)
    path = f"command/{db.slot}"
    options = [db.dsn, path, "--slot", db.slot, "--create", "--url", url]
    first = subprocess.Popen(
        [sys.executable, "-m", "headwater", "postgres", "follow", *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    with first:
        assert first.stderr is not None
        while "following" not in first.stderr.readline():
            assert first.poll() is None
        assert "works with the slot" in run("follow", *options, code=4)
        assert "stop its reader first" in run("drop", db.dsn, "--slot", db.slot, "-y", code=4)
        first.terminate()
        first.stderr.read()
    assert first.returncode == 0


def test_a_slot_that_has_lost_changes(db: TestDatabase, run: Run) -> None:
    db.execute("CREATE TABLE t (id int PRIMARY KEY, text text)")
    run("setup", db.dsn, "--slot", db.slot)
    db.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        # Settings are read by and by: a checkpoint may still go by the old one.
        for n in range(1_000):
            db.execute(f"INSERT INTO t VALUES ({n}, 'x')", "SELECT pg_switch_wal()", "CHECKPOINT")
            status = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{db.slot}'"
            if db.rows(status) == [("lost",)]:
                break
        said = run("follow", db.dsn, f"command/{db.slot}", "--slot", db.slot, "--create", code=1)
    finally:
        db.execute("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
    assert "changes are lost" in said
    assert "--create --snapshot" in said


def test_a_row_that_is_too_large_for_a_stream(
    db: TestDatabase, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.postgres.sink.RECORD_BYTES_MAX", 1000)
    db.execute("CREATE TABLE t (id int PRIMARY KEY, text text)")
    run("setup", db.dsn, "--slot", db.slot)
    db.execute("INSERT INTO t VALUES (1, repeat('x', 1000))")
    said = run("follow", db.dsn, f"command/{db.slot}", "--slot", db.slot, "--create", code=4)
    assert "at most 1,000 fit into a stream" in said


def test_without_the_driver() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from headwater.cli import main\n"
        "sys.argv = ['headwater', 'postgres', 'status', 'dbname=app']\n"
        "main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "pip install 'headwater[postgres]'" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
