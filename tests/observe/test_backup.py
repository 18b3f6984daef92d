"""Backups of a directory in use: complete, consistent, verified, and never in anyone's way."""

from __future__ import annotations

import sqlite3
import tarfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from headwater import __version__
from headwater.core.decisions import Append, Create
from headwater.core.offsets import Anchor, parse_offset
from headwater.service.log import Log
from headwater.store import backup
from headwater.store.backup import BackupError, Manifest, make_backup
from headwater.store.engine import Problem
from headwater.store.restoring import restore_backup
from headwater.store.sqlite.database import DATABASE_NAME, LOCK_NAME
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.verify import verify_database
from tests.conftest import StartServer
from tests.support.sealing import SEALING_AT_ONCE

TEXT = "text/plain"
NOTHING = {"bytes": 0, "sha256": ""}
FORMS = ["directory", "file.tar"]


def made(directory: Path, target: Path) -> Manifest:
    *_, manifest = make_backup(directory, target)
    assert isinstance(manifest, Manifest)
    return manifest


def restored(source: Path, directory: Path) -> Path:
    *_, manifest = restore_backup(source, directory)
    assert isinstance(manifest, Manifest)
    return directory


def problems(directory: Path) -> list[Problem]:
    results = verify_database(directory / DATABASE_NAME)
    return [result for result in results if isinstance(result, Problem)]


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


async def content(directory: Path, path: str) -> bytes:
    log = await Log.start(SqliteEngine(directory))
    try:
        chunk = await log.read(path, Anchor.START)
        parts = chunk.bodies
        while not chunk.up_to_date:
            chunk = await log.read(path, parse_offset(chunk.next_offset))
            parts = parts + chunk.bodies
        return b"".join(parts)
    finally:
        await log.stop()


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[Log]:
    log = await Log.start(SqliteEngine(tmp_path / "data"))
    await log.create(Create("a", TEXT))
    yield log
    await log.stop()


async def append(log: Log, *bodies: bytes) -> None:
    for body in bodies:
        await log.append("a", Append(body, TEXT))


@pytest.mark.parametrize("form", FORMS)
async def test_there_and_back(log: Log, tmp_path: Path, form: str) -> None:
    await append(log, b"one ", b"two ")
    manifest = made(tmp_path / "data", tmp_path / form)
    assert (manifest.streams, manifest.headwater) == (1, __version__)
    await append(log, b"three ")
    copy = restored(tmp_path / form, tmp_path / "copy")
    assert problems(copy) == []
    assert await content(copy, "a") == b"one two "
    assert names(tmp_path) == sorted(["data", form, "copy"])


async def test_appends_go_on_and_what_was_acknowledged_before_is_in_it(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append between any two steps of the copy, some of them to pages that were copied."""
    monkeypatch.setattr(backup, "_PAGES_AT_ONCE", 4)
    before = [f"{n:04} ".encode() * 400 for n in range(100)]
    await append(log, *before)
    during = 0
    for step in make_backup(tmp_path / "data", tmp_path / "backup"):
        if not isinstance(step, Manifest):
            during += 1
            await append(log, b"later ")
    assert during > 10
    copy = restored(tmp_path / "backup", tmp_path / "copy")
    assert problems(copy) == []
    assert await content(copy, "a") == b"".join(before)
    assert log.writer.failures == 0


@pytest.mark.parametrize("options", [(), SEALING_AT_ONCE], ids=["rows", "sealing"])
def test_of_a_server_under_load(
    start_server: StartServer, tmp_path: Path, options: tuple[str, ...]
) -> None:
    server = start_server("--data", str(tmp_path / "data"), *options)
    httpx.put(server.stream_url("load"), headers={"Content-Type": TEXT}).raise_for_status()
    acknowledged, stop = [0], threading.Event()
    busy = threading.Event()

    def write() -> None:
        with httpx.Client() as client:
            while not stop.is_set():
                body = f"{acknowledged[0]:06}\n".encode() * 50
                answer = client.post(
                    server.stream_url("load"), content=body, headers={"Content-Type": TEXT}
                )
                assert answer.status_code == 204
                acknowledged[0] += 1
                if acknowledged[0] >= 50:
                    busy.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert busy.wait(60)
        before = acknowledged[0]
        made(tmp_path / "data", tmp_path / "backup")
    finally:
        stop.set()
        writer.join()
    copy = restored(tmp_path / "backup", tmp_path / "copy")
    assert problems(copy) == []
    other = start_server("--data", str(copy))
    lines = httpx.get(other.stream_url("load")).text.splitlines()
    found, rest = divmod(len(lines), 50)
    assert rest == 0
    assert before <= found <= acknowledged[0]
    assert lines == [f"{n:06}" for n in range(found) for _ in range(50)]
    # The copy is a server of its own, and the first one knows nothing of it.
    url = other.stream_url("load")
    assert httpx.post(url, content=b"more", headers={"Content-Type": TEXT}).status_code == 204
    other.stop()
    assert problems(copy) == []


# ── Refusals ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", FORMS)
async def test_nothing_is_overwritten(log: Log, tmp_path: Path, form: str) -> None:
    made(tmp_path / "data", tmp_path / form)
    with pytest.raises(BackupError, match="exists already"):
        made(tmp_path / "data", tmp_path / form)
    with pytest.raises(BackupError, match="not empty"):
        restored(tmp_path / form, tmp_path / "data")
    (tmp_path / "a file").write_text("x")
    with pytest.raises(BackupError, match="not a directory"):
        restored(tmp_path / form, tmp_path / "a file")


async def test_an_empty_directory_is_as_good_as_a_new_one(log: Log, tmp_path: Path) -> None:
    made(tmp_path / "data", tmp_path / "backup")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / LOCK_NAME).touch()
    assert problems(restored(tmp_path / "backup", tmp_path / "copy")) == []


@pytest.mark.parametrize("form", FORMS)
async def test_a_damaged_backup_is_not_restored(log: Log, tmp_path: Path, form: str) -> None:
    await append(log, b"precious" * 100)
    made(tmp_path / "data", tmp_path / form)
    file = tmp_path / form / DATABASE_NAME if form == "directory" else tmp_path / form
    data = file.read_bytes()
    assert data.count(b"preciousprecious")
    file.write_bytes(data.replace(b"precious", b"previous", 1))
    with pytest.raises(BackupError, match="checksum"):
        restored(tmp_path / form, tmp_path / "copy")
    assert names(tmp_path / "copy") == [LOCK_NAME]


async def test_damage_that_was_there_before_the_checksums(log: Log, tmp_path: Path) -> None:
    """The manifest agrees with the file, but the pages in it do not agree with themselves."""
    await append(log, b"precious" * 100)
    manifest = made(tmp_path / "data", tmp_path / "backup")
    file = tmp_path / "backup" / DATABASE_NAME
    file.write_bytes(file.read_bytes().replace(b"precious", b"previous", 1))
    wrong = msgspec.structs.replace(manifest, files={DATABASE_NAME: backup.record_of(file)})
    (tmp_path / "backup" / backup.MANIFEST_NAME).write_bytes(msgspec.json.encode(wrong))
    with pytest.raises(BackupError, match="damaged"):
        restored(tmp_path / "backup", tmp_path / "copy")


async def test_damage_in_the_source_is_not_copied(tmp_path: Path) -> None:
    log = await Log.start(SqliteEngine(tmp_path / "data"))
    await log.create(Create("a", TEXT))
    await append(log, b"precious" * 100)
    await log.stop()
    file = tmp_path / "data" / DATABASE_NAME
    file.write_bytes(file.read_bytes().replace(b"precious", b"previous", 1))
    with pytest.raises(BackupError, match="the database answered"):
        made(tmp_path / "data", tmp_path / "backup")
    assert names(tmp_path) == ["data"]


@pytest.mark.parametrize(
    "change, problem",
    [
        ({"format": 2}, "newer headwater"),
        ({"schema": 999}, "newer headwater"),
        ({"files": {}}, "cannot have"),
        ({"files": {DATABASE_NAME: NOTHING, "../evil": NOTHING}}, "cannot have"),
        ({"files": 3}, "is damaged"),
    ],
    ids=["format", "schema", "no files", "a file elsewhere", "nonsense"],
)  # fmt: skip
async def test_a_manifest_that_makes_no_sense(
    log: Log, tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    made(tmp_path / "data", tmp_path / "backup")
    file = tmp_path / "backup" / backup.MANIFEST_NAME
    file.write_bytes(msgspec.json.encode(msgspec.json.decode(file.read_bytes()) | change))
    with pytest.raises(BackupError, match=problem):
        restored(tmp_path / "backup", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_what_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello")
    with tarfile.open(tmp_path / "other.tar", "x") as archive:
        archive.add(tmp_path / "text", "text")
    for name, problem in (
        ("missing", "no backup at"),
        ("empty", "no backup.json"),
        ("text", "not a backup"),
        ("other.tar", "no backup.json"),
    ):
        with pytest.raises(BackupError, match=problem):
            restored(tmp_path / name, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_what_is_no_data_directory(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="holds no headwater database"):
        made(tmp_path, tmp_path / "backup")
    connection = sqlite3.connect(tmp_path / DATABASE_NAME)
    connection.execute("CREATE TABLE t (a)")
    connection.close()
    with pytest.raises(BackupError, match="not a headwater database"):
        made(tmp_path, tmp_path / "backup")
    assert names(tmp_path) == [DATABASE_NAME]


async def test_nothing_is_left_out(log: Log, tmp_path: Path) -> None:
    """What is kept beside the database and not understood must not be missing from a backup."""
    for name in ("lost+found", "archive"):
        (tmp_path / "data" / name).mkdir()
        (tmp_path / "data" / name / "part-1").touch()
    with pytest.raises(BackupError, match="archive"):
        made(tmp_path / "data", tmp_path / "backup")
    (tmp_path / "data" / "archive" / "part-1").unlink()
    made(tmp_path / "data", tmp_path / "backup")


async def test_a_backup_that_somebody_else_makes_is_left_alone(log: Log, tmp_path: Path) -> None:
    steps = make_backup(tmp_path / "data", tmp_path / "backup")
    next(steps)
    with pytest.raises(BackupError, match="exists"):
        made(tmp_path / "data", tmp_path / "backup")
    *_, manifest = steps
    assert isinstance(manifest, Manifest)
    assert problems(restored(tmp_path / "backup", tmp_path / "copy")) == []


async def test_a_backup_that_is_interrupted_leaves_nothing(log: Log, tmp_path: Path) -> None:
    steps = make_backup(tmp_path / "data", tmp_path / "backup")
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert names(tmp_path) == ["data"]
