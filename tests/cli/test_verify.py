"""verify: whole, damaged, and no data directory at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.store.sqlite.database import DATABASE_NAME
from tests.cli.conftest import Run
from tests.cli.terminal import on_terminal
from tests.conftest import StartServer


def filled(start_server: StartServer, run: Run, data: Path) -> Path:
    server = start_server("--data", str(data))
    run("create", "orders", STREAM_URL=server.url)
    run("append", "orders", '{"n": 1}', STREAM_URL=server.url)
    server.stop()
    return data


def damage_of(data: Path) -> str:
    """What `verify` says; its progress is on stderr too, so there is more than one line."""
    result = CliRunner().invoke(app, ["verify", str(data)])
    assert result.exit_code == 1
    assert "found in" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    return result.stdout


def test_whole_and_damaged(
    start_server: StartServer, run: Run, tmp_path: Path, process_environment: dict[str, str]
) -> None:
    data = filled(start_server, run, tmp_path / "data")
    ran = run("verify", str(data))
    assert ran.out == "ok\n"
    assert "1 streams, 1 appends" in ran.err
    assert run("verify", str(data), "--json").record == {"ok": True, "problems": []}
    with on_terminal("verify", str(data), env=process_environment) as terminal:
        assert terminal.end() == 0
    assert "all intact" in terminal.screen

    (database,) = (file for file in data.iterdir() if file.read_bytes()[:6] == b"SQLite")
    content = database.read_bytes()
    assert content.count(b'{"n": 1}') == 1
    database.write_bytes(content.replace(b'{"n": 1}', b'{"n": 2}'))
    assert "orders" in damage_of(data) or "database" in damage_of(data)


def test_no_data_directory(run: Run, tmp_path: Path) -> None:
    assert "no headwater database" in run("verify", str(tmp_path), code=2).err
    run("verify", str(tmp_path / "nothing"), code=2)
    (tmp_path / "file").touch()
    run("verify", str(tmp_path / "file"), code=2)


def test_something_else_in_its_place(run: Run, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE_NAME)
    connection.execute("CREATE TABLE t (a)")
    connection.commit()
    connection.close()
    assert damage_of(tmp_path)
