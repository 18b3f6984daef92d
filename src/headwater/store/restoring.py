"""Restoring a backup: a new data directory, every part of it verified before it takes effect.

Everything is assembled and verified in a subdirectory of the new one, and moved into place at the
end, the database last: without it there is no data directory.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Final

import msgspec

from headwater.store.backup import (
    FORMAT,
    MANIFEST_NAME,
    SECRETS,
    BackupError,
    FileRecord,
    Manifest,
    Progress,
    removed_at_the_end,
    troubles,
)
from headwater.store.engine import Problem
from headwater.store.history.open_segments import DIRECTORY_NAME
from headwater.store.permissions import FILE_MODE, make_directory
from headwater.store.sqlite.database import DATABASE_NAME, LOCK_NAME, prepare_directory
from headwater.store.sqlite.schema import SCHEMA_VERSION
from headwater.store.syncing import sync
from headwater.store.verify import verify_database

SCRATCH_NAME: Final = "restoring"
_COPY_BYTES: Final = 1024 * 1024
_MANIFEST_BYTES_MAX: Final = 256 * 1024 * 1024


def restore_backup(source: Path, directory: Path) -> Iterator[Progress | Manifest]:
    """Make a data directory from a backup. It is done when every checksum has been verified."""
    with troubles(directory), _Archive.open(source) as archive:
        manifest = _manifest(archive)
        _require_empty(directory)
        lock = prepare_directory(directory)
        try:
            _require_empty(directory)
            scratch = directory / SCRATCH_NAME
            with removed_at_the_end(scratch):
                scratch.mkdir(mode=0o700)
                for name, record in manifest.files.items():
                    yield from _copy_file(archive, name, record, scratch / name)
                yield from _verify(scratch / DATABASE_NAME)
                _move(scratch, directory)
        finally:
            lock.release()
    yield manifest


class _Archive:
    """A backup to read: a directory, or a tar file of one."""

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
            raise BackupError(
                f"{self.path} has no {name}; it is not a backup, or part of it is gone"
            )
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
    if DATABASE_NAME not in manifest.files or not all(map(_is_ours, manifest.files)):
        raise BackupError(f"{MANIFEST_NAME} in {archive.path} names files that it cannot have")
    return manifest


def _is_ours(name: str) -> bool:
    path = PurePosixPath(name)
    segment = path.parent == PurePosixPath(DIRECTORY_NAME) and path.suffix == ".seg"
    return str(path) == name and (segment or name in (DATABASE_NAME, *SECRETS))


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
    make_directory(draft.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = os.open(draft, flags, FILE_MODE)
    with os.fdopen(file, "wb") as target, archive.file(name) as source:
        while data := source.read(_COPY_BYTES):
            digest.update(data)
            target.write(data)
            done += len(data)
            yield Progress(f"copying {name}", done, expected.bytes)
        target.flush()
        os.fsync(target.fileno())
    if FileRecord(done, digest.hexdigest()) != expected:
        raise BackupError(f"{name} in {archive.path} does not match its checksum: it is damaged")


def _move(scratch: Path, directory: Path) -> None:
    for entry in sorted(scratch.iterdir(), key=lambda entry: entry.name == DATABASE_NAME):
        if entry.is_dir():
            sync(entry)
        entry.rename(directory / entry.name)
        # Each before the next: the database is there only if everything else is.
        sync(directory)


def _verify(database: Path) -> Iterator[Progress]:
    for step, result in enumerate(verify_database(database)):
        if isinstance(result, Problem):
            raise BackupError(f"the backup is damaged: {result.where}: {result.what}")
        yield Progress(f"verifying: {result}", step, 0)
