"""doctor: finds what is wrong, says what to do, and changes nothing."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from typer.testing import CliRunner

from headwater.cli.checkup import directory as checkup
from headwater.cli.checkup import machine
from headwater.cli.main import app
from headwater.core.decisions import Append, Create
from headwater.service.log import Log
from headwater.store import verify
from headwater.store.sqlite import database
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.sqlite.schema import SCHEMA_VERSION
from tests.cli.conftest import Run
from tests.conftest import StartServer
from tests.support.sealing import seal


@pytest.fixture(autouse=True)
def a_port_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HEADWATER_PORT", "0")


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    log = await Log.start(SqliteEngine(tmp_path / "data"))
    await log.create(Create("orders", "text/plain"))
    for number in range(20):
        await log.append("orders", Append(f"order {number}".encode(), "text/plain"))
    await log.stop()
    return tmp_path / "data"


def examine(*arguments: str, **env: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["doctor", *arguments, "--json"], env=env)
    assert "Traceback" not in result.stderr, result.stderr
    return result.exit_code, msgspec.json.decode(result.stdout)


def trouble(level: str, *arguments: str, **env: str) -> list[tuple[str, str]]:
    """What was found of this level: what it is about, and the text with its advice."""
    code, record = examine(*arguments, **env)
    problems = [f for f in record["findings"] if f["level"] == "problem"]
    assert (code, record["ok"]) == ((1, False) if problems else (0, True))
    chosen = [f for f in record["findings"] if f["level"] == level]
    assert all(finding["advice"] for finding in chosen)
    return [(f["about"], f"{f['what']}: {f['advice']}") for f in chosen]


def one(level: str, about: str, *arguments: str, **env: str) -> str:
    """The only thing found about something."""
    (text,) = [text for subject, text in trouble(level, *arguments, **env) if subject == about]
    return text


def snapshot(directory: Path) -> dict[str, bytes]:
    leftovers = ("-wal", "-shm")  # empty ones that SQLite makes to read
    files = [p for p in directory.iterdir() if not p.name.endswith(leftovers)]
    return {path.name: path.read_bytes() for path in files}


def test_a_directory_in_order(run: Run, data: Path) -> None:
    before = snapshot(data)
    ran = run("doctor", str(data))
    about = {line.split()[1] for line in ran.lines if line.startswith("ok")}
    assert {"settings", "address", "lock", "space", "database", "data"} <= about
    assert not [line for line in ran.lines if line.startswith("problem")]
    assert snapshot(data) == before
    assert trouble("problem", str(data)) == []


def test_a_directory_that_is_not_there_yet(run: Run, tmp_path: Path) -> None:
    assert "would create it" in run("doctor", str(tmp_path / "a" / "b")).out
    assert list(tmp_path.iterdir()) == []
    assert "would create it" in run("doctor", str(tmp_path)).out


# ── Access and history ───────────────────────────────────────────────────────────────────────


def test_who_may_come_in(run: Run, data: Path) -> None:
    run("keys", "create", "--admin", "**", "--data", str(data))
    assert "only with a key" in run("doctor", str(data)).out
    (data / "keys.json").write_text("nonsense")
    assert "not a file of keys" in one("problem", "access", str(data))
    (data / "keys.json").write_text('{"keys": []}')
    assert "keys create" in one("hint", "access", str(data))


def test_a_certificate_that_cannot_be_used(data: Path) -> None:
    text = one("problem", "tls", str(data), HEADWATER_TLS_CERT="no.pem", HEADWATER_TLS_KEY="no.pem")
    assert "refuse to start" in text


def test_variables_of_clients_are_no_settings(data: Path) -> None:
    assert trouble("problem", str(data), HEADWATER_TOKEN="x", HEADWATER_CA="ca.pem") == []


def test_a_file_of_history_that_is_missing(data: Path) -> None:
    engine = SqliteEngine(data)
    seal(engine)
    engine.close()
    assert trouble("problem", str(data)) == []
    (file,) = (data / "segments").glob("*.seg")
    file.write_bytes(file.read_bytes()[:-1])
    assert "another size" in one("problem", "data", str(data))
    file.unlink()
    assert "is missing" in one("problem", "data", str(data))


# ── The configuration ────────────────────────────────────────────────────────────────────────


def test_every_mistake_in_the_file_is_named(tmp_path: Path) -> None:
    config = tmp_path / "headwater.toml"
    config.write_text('prot = 1\nlog_levle = "info"\nwhat_is_this = 3\n')
    texts = [text for _, text in trouble("problem", "--config", str(config))]
    assert len(texts) == 3
    assert "did you mean 'port'?" in texts[0]
    assert "did you mean 'log_level'?" in texts[1]
    assert "headwater serve --help" in texts[2]


@pytest.mark.parametrize(
    "text, expected",
    [("port = ", "is not TOML"), ("port = 99999", "port: "), ('log_level = "loud"', "log_level: ")],
)
def test_files_that_make_no_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.delenv("HEADWATER_PORT")
    config = tmp_path / "headwater.toml"
    config.write_text(text)
    ((_, found),) = trouble("problem", "--config", str(config))
    assert expected in found


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "No such file" in one("problem", "file", "--config", str(tmp_path / "x.toml"))


def test_the_directory_is_examined_whatever_the_settings_are(data: Path, tmp_path: Path) -> None:
    _, record = examine(str(data), HEADWATER_LOG_LEVEL="loud")
    assert {"settings", "database", "data"} <= {f["about"] for f in record["findings"]}
    assert not record["ok"]


def test_variables_that_are_no_settings(data: Path) -> None:
    env = {"HEADWATER_DTAA": "x", "HEADWATER_DEBUG": "1", "HEADWATER_STREAM": "s"}
    assert "did you mean 'HEADWATER_DATA'?" in one("hint", "environment", str(data), **env)


def test_the_directory_of_the_settings(data: Path) -> None:
    _, record = examine(HEADWATER_DATA=str(data))
    assert str(data) in " ".join(f["what"] for f in record["findings"])
    _, record = examine(HEADWATER_MEMORY="true", HEADWATER_DATA=str(data))
    assert str(data) not in " ".join(f["what"] for f in record["findings"])


# ── The machine ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def taken_port() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield str(listener.getsockname()[1])


def test_a_port_that_is_taken(data: Path, taken_port: str) -> None:
    text = one("problem", "address", str(data), HEADWATER_PORT=taken_port)
    assert taken_port in text
    assert "another --port" in text


def test_an_address_of_another_machine(data: Path) -> None:
    env = {"HEADWATER_HOST": "192.0.2.1", "HEADWATER_INSECURE": "true"}
    assert "address of this machine" in one("problem", "address", str(data), **env)


def test_an_address_that_others_reach(data: Path) -> None:
    assert "--insecure" in one("problem", "address", str(data), HEADWATER_HOST="0.0.0.0")


def test_few_files(data: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        most = 2**40
    env = {"HEADWATER_CONNECTIONS_MAX": str(most)}
    assert "LimitNOFILE" in one("hint", "files", str(data), **env)
    assert "files" not in dict(trouble("hint", str(data), HEADWATER_CONNECTIONS_MAX="1"))


def test_more_memory_than_there_is(data: Path) -> None:
    assert "hot_bytes_max" in one("hint", "memory", str(data), HEADWATER_HOT_BYTES_MAX=str(2**50))


@pytest.mark.parametrize("limit", ["queue", "bodies", "buffers"])
def test_every_bound_of_memory_counts(data: Path, limit: str) -> None:
    name = f"{limit}_bytes_max"
    assert f"lower {name}" in one(
        "hint", "memory", str(data), **{f"HEADWATER_{name.upper()}": str(2**50)}
    )


def test_the_memory_of_a_container(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "_CONTAINER_MEMORY", limit)
    limit.write_text("max\n")
    assert "memory" not in dict(trouble("hint", str(data)))
    limit.write_text(f"{256 * 2**20}\n")
    assert "256" in one("hint", "memory", str(data))


def test_what_bounds_strangers(run: Run, data: Path) -> None:
    everyone = {"HEADWATER_HOST": "0.0.0.0", "HEADWATER_INSECURE": "true"}
    assert "allowed_host" in one("hint", "names", str(data), **everyone)
    named = everyone | {"HEADWATER_ALLOWED_HOST": "streams.internal"}
    assert "names" not in dict(trouble("hint", str(data), **named))
    assert "cors_origin" in one("hint", "web pages", str(data), HEADWATER_CORS_ORIGIN="*")
    run("keys", "create", "--admin", "**", "--data", str(data))
    assert "quotas" in one("hint", "quotas", str(data))
    assert "quotas" not in dict(trouble("hint", str(data), HEADWATER_QUOTAS="**: bytes=1GiB"))


def test_a_clock_that_was_never_set(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 86_400.0)
    assert "1970-01-02" in one("problem", "clock", str(data))


# ── The directory ────────────────────────────────────────────────────────────────────────────


def test_a_server_that_runs(start_server: StartServer, data: Path) -> None:
    server = start_server("--data", str(data))
    code, record = examine(str(data), HEADWATER_PORT=str(server.port))
    assert code == 0
    texts = {f["about"]: f["what"] for f in record["findings"]}
    assert f"process {server.pid}" in texts["lock"]
    assert "by the server of this directory" in texts["address"]
    assert server.is_running


def test_a_file_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    assert "not a directory" in one("problem", "directory", str(tmp_path / "data"))


def test_files_of_somebody_else(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.access

    def denied(path: Any, *mode: Any, **options: Any) -> bool:
        return Path(path) != data and really(path, *mode, **options)

    monkeypatch.setattr(os, "access", denied)
    assert "cannot read and write" in one("problem", "permissions", str(data))


def test_a_directory_that_others_write_to(data: Path) -> None:
    data.chmod(0o777)
    assert "chmod go-w" in one("hint", "permissions", str(data))


@pytest.mark.parametrize(
    "kind, level, expected",
    [
        ("nfs4", "problem", "a local disk"),
        ("fuse.sshfs", "problem", "a local disk"),
        ("tmpfs", "hint", "a reboot empties it"),
        ("overlay", "hint", "mount a volume"),
    ],
)
def test_file_systems(
    data: Path, monkeypatch: pytest.MonkeyPatch, kind: str, level: str, expected: str
) -> None:
    monkeypatch.setattr(checkup, "_kind_of", lambda _: kind)
    assert expected in one(level, "file system", str(data))


def test_the_kernel_is_asked_for_the_file_system() -> None:
    assert checkup._kind_of(Path("/proc")) == "proc"


@pytest.mark.parametrize("took_s, expected", [(0.2, "faster disk"), (0.000001, "power cut")])
def test_disks(data: Path, monkeypatch: pytest.MonkeyPatch, took_s: float, expected: str) -> None:
    monkeypatch.setattr(checkup, "_time_syncs", lambda _: took_s)
    assert expected in one("hint", "disk", str(data))


def test_a_disk_that_is_full(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_SPACE_MIN", 2**62)
    assert "make room" in one("problem", "space", str(data))


def test_what_an_interrupted_restore_left(data: Path) -> None:
    (data / "restoring").mkdir()
    assert "restore again" in one("hint", "directory", str(data))


# ── The database ─────────────────────────────────────────────────────────────────────────────


def test_another_schema(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    assert "back it up first" in one("hint", "database", str(data))
    monkeypatch.undo()
    monkeypatch.setenv("HEADWATER_PORT", "0")
    connection = database.connect(data / database.DATABASE_NAME)
    connection.pragma("user_version", SCHEMA_VERSION + 7)
    connection.close()
    assert "newer headwater" in one("problem", "database", str(data))


def test_a_database_that_is_gone(data: Path) -> None:
    (data / database.DATABASE_NAME).rename(data / f"{database.DATABASE_NAME}-wal")
    assert "backup" in one("problem", "database", str(data))


def test_something_that_is_no_database(data: Path) -> None:
    (data / database.DATABASE_NAME).write_bytes(b"hello, world! " * 1000)
    assert "not a headwater database" in one("problem", "database", str(data))


def test_damaged_pages(data: Path) -> None:
    path = data / database.DATABASE_NAME
    path.write_bytes(path.read_bytes().replace(b"order 7", b"order 8"))
    assert "headwater verify" in one("problem", "database", str(data))


def test_damaged_appends(data: Path) -> None:
    """Written through SQLite, so that the pages are whole and only the append is not."""
    connection = database.connect(data / database.DATABASE_NAME)
    connection.execute("UPDATE ops SET body = ? WHERE id = 7", (b"forgery",))
    connection.close()
    assert "checksum" in one("problem", "data", str(data))
    reader = database.open_reader(data / database.DATABASE_NAME)
    assert len(set(verify.sample_appends(reader, 1_000))) == 1
    reader.close()


async def test_a_log_with_damage_in_the_middle(tmp_path: Path) -> None:
    """What SQLite would drop without a word."""
    log = await Log.start(SqliteEngine(tmp_path / "data"))
    await log.create(Create("orders", "text/plain"))
    for number in range(50):
        await log.append("orders", Append(b"%d" % number * 2000, "text/plain"))
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    await log.stop()
    for name in (tmp_path / "copy").glob("*-shm"):
        name.unlink()
    path = tmp_path / "copy" / f"{database.DATABASE_NAME}-wal"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    assert "acknowledged appends" in one("problem", "database", str(tmp_path / "copy"))


def test_appends_from_the_future(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3_600)
    assert "set back" in one("hint", "clock", str(data))


def test_a_database_that_cannot_be_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise apsw.IOError("disk I/O error")

    monkeypatch.setattr(checkup, "open_reader", broken)
    assert "disk I/O error" in one("problem", "database", str(data))
