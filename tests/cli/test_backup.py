"""backup and restore at a prompt."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.conftest import Run
from tests.conftest import StartServer


def test_a_backup_and_its_restoration(start_server: StartServer, run: Run, tmp_path: Path) -> None:
    data, place = str(tmp_path / "data"), tmp_path / "backups"
    server = start_server("--data", data)
    run("create", "orders", STREAM_URL=server.url)
    run("append", "orders", '{"n": 1}', STREAM_URL=server.url)
    assert "1 streams" in run("backup", data, "--to", str(place / "first")).out
    record = run("backup", data, "--to", str(place), "--json").record
    assert re.fullmatch(r"headwater-\d{8}T\d{6}Z", Path(record["path"]).name)
    assert (record["streams"], record["bytes"] > 0) == (1, True)
    again = run("restore", "--from", record["path"], "--data", str(tmp_path / "new"), "--json")
    restored_record = {
        "path": str(tmp_path / "new"),
        "streams": 1,
        "bytes": record["bytes"],
        "as_of": record["created_at"],
        "missing": [],
    }
    assert again.record == restored_record
    assert run("verify", str(tmp_path / "new")).out == "ok\n"
    restored = start_server("--data", str(tmp_path / "new"))
    assert run("read", "orders", STREAM_URL=restored.url).out == '{"n": 1}\n'


def test_what_cannot_be_done(run: Run, tmp_path: Path) -> None:
    assert "no headwater database" in run("backup", str(tmp_path), "--to", "b", code=1).err
    run("backup", str(tmp_path / "missing"), "--to", "b", code=2)
    missing = run("restore", "--from", str(tmp_path / "b"), "--data", str(tmp_path / "c"), code=1)
    assert "no backup at" in missing.err
    strange = run("restore", "--from", "what://bucket", "--data", str(tmp_path / "c"), code=2)
    assert "cannot be used as object storage" in strange.err
    assert list(tmp_path.iterdir()) == []
