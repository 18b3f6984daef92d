"""Backups: a copy of a data directory as it was at one moment, made while a server goes on.

SQLite's write-ahead log lets anyone read the state of one moment for as long as it takes, in any
process, without holding up the writer. A backup is such a read: pages are copied one by one, each
verified against its checksum on the way, and the copy carries checksums of its own. It holds
everything that was acknowledged before it began. (Meanwhile the log cannot be folded back into the
database, so it grows by what is written during the copy.)

A backup is a directory, or a tar file of one:

    backup.json     what is in it, with sizes and checksums; written last
    headwater.db    the database, complete in itself

It is built under another name and renamed when it is complete and synced, so what has the right
name is whole. Nothing is ever overwritten, neither by a backup nor by a restore.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple

import apsw
import msgspec

from headwater import __version__
from headwater.store.database import (
    DATABASE_NAME,
    LOCK_NAME,
    DataDirectoryError,
    connect,
    open_reader,
    prepare_directory,
    sync_directory,
)
from headwater.store.engine import Problem
from headwater.store.schema import SCHEMA_VERSION
from headwater.store.verify import verify_database

MANIFEST_NAME: Final = "backup.json"
FORMAT: Final = 1
_TAR: Final = ".tar"
_NOT_OURS: Final = frozenset({"lost+found"})
_PAGES_AT_ONCE: Final = 256
_COPY_BYTES: Final = 1024 * 1024
_MANIFEST_BYTES_MAX: Final = 16 * 1024 * 1024


class BackupError(Exception):
    """It cannot be done; the message is one line that says why."""


class FileRecord(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    format: int
    headwater: str
    schema: int
    created_at: str
    streams: int
    files: dict[str, FileRecord]

    @property
    def bytes(self) -> int:
        return sum(record.bytes for record in self.files.values())


class Progress(NamedTuple):
    """How far it is."""

    what: str
    done: int
    total: int


# ── Making one ───────────────────────────────────────────────────────────────────────────────


def make_backup(directory: Path, target: Path) -> Iterator[Progress | Manifest]:
    """Copy a data directory to a new directory, or a new file if its name ends in `.tar`."""
    if target.exists():
        raise BackupError(f"{target} exists already; choose another name")
    with _troubles(target):
        _require_known(directory)
    draft = target.with_name(f"{target.name}.partial")
    packed = target.with_name(f"{target.name}.partial{_TAR}")
    with _troubles(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        # Not made by two at once; what somebody else makes here is not ours to remove.
        draft.mkdir()
    with _troubles(target), _removed_at_the_end(draft, packed):
        with closing(open_reader(directory / DATABASE_NAME)) as source:
            created_at = datetime.now(UTC).isoformat(timespec="milliseconds")
            source.execute("BEGIN")
            count = "SELECT count(*) FROM streams WHERE status < 2"
            streams = int(source.execute(count).fetchall()[0][0] or 0)
            schema = source.pragma("user_version")
            yield from _copy_database(source, draft / DATABASE_NAME)
        manifest = Manifest(
            FORMAT,
            __version__,
            schema,
            created_at,
            streams,
            {DATABASE_NAME: _record(draft / DATABASE_NAME)},
        )
        (draft / MANIFEST_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        _sync(draft / MANIFEST_NAME)
        sync_directory(draft)
        if target.suffix == _TAR:
            _pack(draft, packed)
            packed.rename(target)
        else:
            draft.rename(target)
        sync_directory(target.parent)
    yield manifest


def _require_known(directory: Path) -> None:
    """A backup that leaves something out is none, so what is not understood is not passed over."""
    for entry in directory.iterdir():
        if entry.is_dir() and entry.name not in _NOT_OURS and any(entry.iterdir()):
            raise BackupError(
                f"{entry} is not something that this version of headwater can back up; move it "
                "elsewhere if it is yours, else upgrade"
            )


def _copy_database(source: apsw.Connection, path: Path) -> Iterator[Progress]:
    with closing(connect(path)) as copy:
        with copy.backup("main", source, "main") as job:
            while not job.done:
                job.step(_PAGES_AT_ONCE)
                yield Progress("copying", job.page_count - job.remaining, job.page_count)
        # A copy of a database with a log wants to have one too. This one is complete in itself.
        copy.pragma("journal_mode", "delete")
    _sync(path)


def _record(path: Path) -> FileRecord:
    with path.open("rb") as file:
        return FileRecord(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _pack(draft: Path, target: Path) -> None:
    with tarfile.open(target, "x") as archive:
        for name in (MANIFEST_NAME, DATABASE_NAME):
            archive.add(draft / name, arcname=name, recursive=False)
    _sync(target)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


# ── Restoring one ────────────────────────────────────────────────────────────────────────────


def restore_backup(source: Path, directory: Path) -> Iterator[Progress | Manifest]:
    """Make a data directory of a backup. It says done when every checksum has been verified."""
    with _troubles(directory), _Archive.open(source) as archive:
        manifest = _manifest(archive)
        _require_empty(directory)
        lock = prepare_directory(directory)
        try:
            _require_empty(directory)
            drafts = {name: directory / f"{name}.restoring" for name in manifest.files}
            with _removed_at_the_end(*drafts.values()):
                for name, draft in drafts.items():
                    yield from _copy_file(archive, name, manifest.files[name], draft)
                yield from _verify(drafts[DATABASE_NAME])
                for name, draft in drafts.items():
                    draft.rename(directory / name)
                sync_directory(directory)
        finally:
            lock.release()
    yield manifest


class _Archive:
    """A backup that is read: a directory, or a tar file of one."""

    def __init__(self, path: Path, packed: tarfile.TarFile | None) -> None:
        self.path = path
        self._packed = packed

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[_Archive]:
        if path.is_dir():
            yield cls(path, None)
            return
        try:
            packed = tarfile.open(path, "r:")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            raise BackupError(f"there is no backup at {path}") from None
        except tarfile.TarError:
            raise BackupError(f"{path} is not a backup that headwater made") from None
        with packed:
            yield cls(path, packed)

    def file(self, name: str) -> IO[bytes]:
        try:
            if self._packed is None:
                return (self.path / name).open("rb")
            found = self._packed.extractfile(name)
        except (FileNotFoundError, KeyError, tarfile.TarError):
            found = None
        if found is None:
            raise BackupError(f"{self.path} has no {name}; it is no backup, or part of it is gone")
        return found


def _manifest(archive: _Archive) -> Manifest:
    with archive.file(MANIFEST_NAME) as file:
        text = file.read(_MANIFEST_BYTES_MAX)
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BackupError(f"{MANIFEST_NAME} in {archive.path} is damaged") from None
    if manifest.format > FORMAT or manifest.schema > SCHEMA_VERSION:
        raise BackupError(
            f"{archive.path} was made by a newer headwater ({manifest.headwater}); upgrade first"
        )
    names = [PurePosixPath(name) for name in manifest.files]
    if DATABASE_NAME not in manifest.files or any(len(name.parts) != 1 for name in names):
        raise BackupError(f"{MANIFEST_NAME} in {archive.path} names files that it cannot have")
    return manifest


def _require_empty(directory: Path) -> None:
    if not directory.exists():
        return
    if not directory.is_dir():
        raise BackupError(f"{directory} is not a directory")
    if any(entry.name != LOCK_NAME for entry in directory.iterdir()):
        raise BackupError(
            f"{directory} is not empty, and nothing is overwritten; restore to a new directory"
        )


def _copy_file(
    archive: _Archive, name: str, expected: FileRecord, draft: Path
) -> Iterator[Progress]:
    digest, done = hashlib.sha256(), 0
    with archive.file(name) as source, draft.open("xb") as target:
        while data := source.read(_COPY_BYTES):
            digest.update(data)
            target.write(data)
            done += len(data)
            yield Progress(f"copying {name}", done, expected.bytes)
        target.flush()
        os.fsync(target.fileno())
    if FileRecord(done, digest.hexdigest()) != expected:
        raise BackupError(f"{name} in {archive.path} does not match its checksum: it is damaged")


def _verify(database: Path) -> Iterator[Progress]:
    for step, result in enumerate(verify_database(database)):
        if isinstance(result, Problem):
            raise BackupError(f"the backup is damaged: {result.where}: {result.what}")
        yield Progress(f"verifying: {result}", step, 0)


# ── Both ─────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _troubles(path: Path) -> Iterator[None]:
    """What the file system and the database have to say, in one line."""
    try:
        yield
    except DataDirectoryError as error:
        raise BackupError(str(error)) from None
    except apsw.Error as error:
        raise BackupError(f"the database answered '{error}'; nothing was made at {path}") from None
    except OSError as error:
        name = error.filename or path
        raise BackupError(f"cannot write {path}: {name}: {error.strerror or error}") from None


@contextmanager
def _removed_at_the_end(*paths: Path) -> Iterator[None]:
    """Whatever is left of these goes, however it ends."""
    try:
        yield
    finally:
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                for leftover in (path, Path(f"{path}-journal")):
                    with suppress(OSError):
                        leftover.unlink(missing_ok=True)
