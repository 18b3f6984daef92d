"""Backups have the files of history, however these come and go meanwhile."""

from __future__ import annotations

import shutil
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater.core.decisions import Append, Create
from headwater.service.log import Log
from headwater.store import backup
from headwater.store.backup import BackupError, Manifest, make_backup
from headwater.store.history.archive import Archive
from headwater.store.history.object_storage import Remote
from headwater.store.key_file import KEYS_NAME, SECRET_NAME
from headwater.store.sqlite.engine import SqliteEngine
from tests.observe.test_backup import FORMS, TEXT, content, made, names, problems, restored
from tests.support.sealing import archive_all, seal


@pytest.fixture
def engine(tmp_path: Path) -> SqliteEngine:
    return SqliteEngine(tmp_path / "data")


@pytest.fixture
async def log(engine: SqliteEngine) -> AsyncIterator[Log]:
    """Three streams, each in a file of its own, and each with something in rows."""
    log = await Log.start(engine)
    for name in ("a", "b", "c"):
        await write(log, name)
        seal(engine)
    for name in ("a", "b", "c"):
        await log.append(name, Append(b"rows", TEXT))
    yield log
    await log.stop()


async def write(log: Log, name: str) -> None:
    await log.create(Create(name, TEXT))
    await log.append(name, Append(f"sealed {name} ".encode() * 100, TEXT))


def expected(name: str) -> bytes:
    return f"sealed {name} ".encode() * 100 + b"rows"


async def remove(log: Log, engine: SqliteEngine, name: str) -> None:
    """A stream, with its file."""
    files = len(files_of(engine))
    await log.delete(name)
    while await log.writer.run(lambda: engine.reap(1000)):
        pass
    assert len(files_of(engine)) == files - 1


def files_of(engine: SqliteEngine) -> list[Path]:
    return sorted(engine.history.directory.glob("*.seg"))


@pytest.mark.parametrize("form", FORMS)
async def test_there_and_back(log: Log, engine: SqliteEngine, tmp_path: Path, form: str) -> None:
    manifest = made(tmp_path / "data", tmp_path / form)
    assert sum(name.startswith("segments/") for name in manifest.files) == 3
    assert manifest.elsewhere == 0
    copy = restored(tmp_path / form, tmp_path / "copy")
    assert problems(copy) == []
    for name in ("a", "b", "c"):
        assert await content(copy, name) == expected(name)
    assert names(tmp_path) == sorted(["data", form, "copy"])


async def test_what_is_sealed_before_the_moment_comes_along(
    log: Log, engine: SqliteEngine, tmp_path: Path
) -> None:
    steps = make_backup(tmp_path / "data", tmp_path / "backup")
    next(steps)
    await write(log, "late")
    seal(engine)
    *_, manifest = steps
    assert isinstance(manifest, Manifest)
    assert sum(name.startswith("segments/") for name in manifest.files) == 4
    copy = restored(tmp_path / "backup", tmp_path / "copy")
    assert problems(copy) == []
    assert await content(copy, "late") == b"sealed late " * 100


@pytest.mark.parametrize("rounds", [10, 0], ids=["before the moment", "after the moment"])
async def test_a_file_that_goes_meanwhile(
    log: Log, engine: SqliteEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    """One that was copied already, and one that was not."""
    monkeypatch.setattr(backup, "_ROUNDS_MAX", rounds)
    steps = make_backup(tmp_path / "data", tmp_path / "backup")
    next(steps)
    await remove(log, engine, "a")
    await remove(log, engine, "b")
    *_, manifest = steps
    assert isinstance(manifest, Manifest)
    assert manifest.streams == 1
    kept = [name for name in manifest.files if name.startswith("segments/")]
    assert kept == [f"segments/{path.name}" for path in files_of(engine)]
    assert names(tmp_path / "backup" / "segments") == [path.name for path in files_of(engine)]
    copy = restored(tmp_path / "backup", tmp_path / "copy")
    assert problems(copy) == []
    assert await content(copy, "c") == expected("c")


async def test_a_file_that_is_missing(log: Log, engine: SqliteEngine, tmp_path: Path) -> None:
    files_of(engine)[1].unlink()
    with pytest.raises(BackupError, match=r"segments/.* is missing"):
        made(tmp_path / "data", tmp_path / "backup")
    assert names(tmp_path) == ["data"]


async def test_a_file_that_is_damaged(log: Log, engine: SqliteEngine, tmp_path: Path) -> None:
    file = files_of(engine)[1]
    file.write_bytes(file.read_bytes().replace(b"sealed", b"leased", 1))
    with pytest.raises(BackupError, match="is damaged"):
        made(tmp_path / "data", tmp_path / "backup")
    assert names(tmp_path) == ["data"]


async def test_a_backup_with_a_damaged_file(log: Log, engine: SqliteEngine, tmp_path: Path) -> None:
    made(tmp_path / "data", tmp_path / "backup")
    file = next((tmp_path / "backup" / "segments").iterdir())
    file.write_bytes(file.read_bytes().replace(b"sealed", b"leased", 1))
    with pytest.raises(BackupError, match="checksum"):
        restored(tmp_path / "backup", tmp_path / "copy")
    shutil.rmtree(tmp_path / "backup" / "segments")
    with pytest.raises(BackupError, match="part of it is gone"):
        restored(tmp_path / "backup", tmp_path / "copy")


async def test_what_is_only_in_object_storage_stays_there(
    log: Log, engine: SqliteEngine, tmp_path: Path
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    archive_all(Archive(engine.history, Remote(far.as_uri()), 1 << 20), local_bytes_max=0)
    manifest = made(tmp_path / "data", tmp_path / "backup")
    assert manifest.elsewhere == 3
    assert not any(name.startswith("segments/") for name in manifest.files)
    copy = restored(tmp_path / "backup", tmp_path / "copy")
    assert problems(copy) == []


@pytest.mark.parametrize("form", FORMS)
async def test_keys_come_along_and_stay_secret(log: Log, tmp_path: Path, form: str) -> None:
    for name in (KEYS_NAME, SECRET_NAME):
        (tmp_path / "data" / name).write_text(f"content of {name}")
    made(tmp_path / "data", tmp_path / form)
    assert stat.S_IMODE((tmp_path / form).stat().st_mode) & 0o077 == 0
    copy = restored(tmp_path / form, tmp_path / "copy")
    for name in (KEYS_NAME, SECRET_NAME):
        assert (copy / name).read_text() == f"content of {name}"
        assert stat.S_IMODE((copy / name).stat().st_mode) == 0o600
