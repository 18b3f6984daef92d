"""Backups: a copy of a data directory as it was at one moment, made while a server keeps running.

SQLite's write-ahead log lets any process read the state of one moment for as long as it takes,
without blocking the writer. A backup is such a read: pages are copied one by one, each verified
against its checksum, and the copy has its own checksums. It holds everything acknowledged before it
began. (Meanwhile the log cannot be checkpointed, so it grows by what is written during the copy.)

History files never change, but they come and go: rows are sealed into new ones, and unneeded ones
are removed. So existing files are copied first, which may take long and blocks nothing. Then the
moment is chosen, and the few files that it names and that are not copied yet follow, before the
database. If one of them was removed since that moment, a later moment is chosen, which does not
name it.

A backup is a directory, or a tar file of one, which only its owner can read:

    backup.json       what is in it, with sizes and checksums; written last
    headwater.db      the database, complete in itself
    segments/         the files of history that are on this machine and that streams need
    keys.json         the API keys (their digests), and
    signing.secret    what addresses are signed with, if they are in the data directory

History that is only in object storage stays there; the manifest says how many files.

It is built under another name and renamed when complete and synced, so a backup with the right name
is complete. Neither a backup nor a restore ever overwrites anything.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import apsw
import msgspec

from headwater import __version__
from headwater.core.errors import DataCorrupt
from headwater.store.history.open_segments import CACHE_NAME, DIRECTORY_NAME
from headwater.store.history.segment import Segment, SegmentRow
from headwater.store.key_file import KEYS_NAME, SECRET_NAME
from headwater.store.permissions import FILE_MODE, create_file, make_directory
from headwater.store.sql.extents import SEGMENT_COLUMNS
from headwater.store.sqlite.database import DATABASE_NAME, DataDirectoryError, connect, open_reader
from headwater.store.syncing import sync

MANIFEST_NAME: Final = "backup.json"
FORMAT: Final = 1
SECRETS: Final = (KEYS_NAME, SECRET_NAME)
_TAR: Final = ".tar"
# The cache is not backed up: object storage still has what was fetched.
_KNOWN: Final = frozenset({DIRECTORY_NAME, CACHE_NAME, "lost+found"})
_PAGES_AT_ONCE: Final = 256
_COPY_BYTES: Final = 1024 * 1024
_ROUNDS_MAX: Final = 10
_MOMENTS_MAX: Final = 100


class BackupError(Exception):
    """The operation is not possible; the message is one line that says why."""


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
    elsewhere: int = 0
    """History files that are only in object storage."""

    @property
    def bytes(self) -> int:
        return sum(record.bytes for record in self.files.values())


class Progress(NamedTuple):
    """How far it is."""

    what: str
    done: int
    total: int


def make_backup(directory: Path, target: Path) -> Iterator[Progress | Manifest]:
    """Copy a data directory to a new directory, or a new file if its name ends in `.tar`."""
    if target.exists():
        raise BackupError(f"{target} exists already; choose another name")
    with troubles(target):
        _require_known(directory)
    draft = target.with_name(f"{target.name}.partial")
    packed = target.with_name(f"{target.name}.partial{_TAR}")
    with troubles(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        # Fails if it exists; what somebody else creates here is not ours to remove.
        draft.mkdir(mode=0o700)
    with troubles(target), removed_at_the_end(draft, packed):
        with closing(open_reader(directory / DATABASE_NAME)) as source:
            copying = _Copying(directory, draft, source)
            yield from copying.run()
        manifest = copying.manifest()
        create_file(draft / MANIFEST_NAME)
        (draft / MANIFEST_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        sync(draft / MANIFEST_NAME)
        sync(draft)
        if target.suffix == _TAR:
            _pack(draft, packed, [MANIFEST_NAME, *manifest.files])
            packed.rename(target)
        else:
            draft.rename(target)
        sync(target.parent)
    yield manifest


def _require_known(directory: Path) -> None:
    """Refuse unknown files: a backup that leaves something out is not a backup."""
    for entry in directory.iterdir():
        if entry.is_dir() and entry.name not in _KNOWN and any(entry.iterdir()):
            raise BackupError(
                f"{entry} is not something that this version of headwater can back up; move it "
                "elsewhere if it is yours, else upgrade"
            )


class _Gone(Exception):
    """A history file no longer exists."""


class _Copying:
    def __init__(self, directory: Path, draft: Path, source: apsw.Connection) -> None:
        self._directory = directory
        self._draft = draft
        self._source = source
        self._files: dict[str, FileRecord] = {}
        self._created_at = ""
        self._schema = self._streams = self._elsewhere = 0

    def manifest(self) -> Manifest:
        return Manifest(
            FORMAT,
            __version__,
            self._schema,
            self._created_at,
            self._streams,
            self._files,
            self._elsewhere,
        )

    def run(self) -> Iterator[Progress]:
        yield from self._ahead()
        missing: set[str] = set()
        for _ in range(_MOMENTS_MAX):
            try:
                yield from self._moment()
                break
            except _Gone as gone:
                if str(gone) in missing:
                    raise BackupError(
                        f"{gone} is missing in {self._directory}, and streams need it; run "
                        "`headwater verify`"
                    ) from None
                missing.add(str(gone))
        else:
            raise BackupError("files of history come and go too fast right now; try again later")
        for name in SECRETS:
            with suppress(FileNotFoundError):
                self._files[name] = self._copy(name)

    def _ahead(self) -> Iterator[Progress]:
        """Copy history files before the moment is chosen, while new ones appear."""
        for _ in range(_ROUNDS_MAX):
            wanted = self._wanted()
            if not wanted:
                break
            with suppress(_Gone):
                yield from self._copy_segments(wanted)

    def _moment(self) -> Iterator[Progress]:
        """Choose a moment, and copy everything as it was then."""
        self._created_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._source.execute("BEGIN")
        try:
            self._streams = self._one("SELECT count(*) FROM streams WHERE status < 2")
            self._schema = self._source.pragma("user_version")
            wanted = self._wanted()
            yield from self._copy_segments(wanted)
            yield from self._copy_database()
            self._keep_needed()
        finally:
            self._source.execute("ROLLBACK")

    def _one(self, sql: str) -> int:
        return int(self._source.execute(sql).fetchall()[0][0] or 0)

    # ── History files ────────────────────────────────────────────────────────────────────────

    def _needed(self) -> list[SegmentRow]:
        """Segments that streams need, wherever they are."""
        if not self._one("SELECT count(*) FROM sqlite_schema WHERE name = 'segments'"):
            # An older version, without history.
            return []
        found = self._source.execute(
            f"SELECT {SEGMENT_COLUMNS} FROM segments s"
            " WHERE EXISTS (SELECT 1 FROM extents WHERE segment_id = s.id) ORDER BY id"
        )
        return [SegmentRow(*row) for row in found]

    def _wanted(self) -> list[SegmentRow]:
        """Those that are here and not copied yet."""
        return [row for row in self._needed() if row.local and _path_of(row) not in self._files]

    def _copy_segments(self, rows: list[SegmentRow]) -> Iterator[Progress]:
        done, total = 0, sum(row.size_bytes for row in rows)
        for row in rows:
            name = _path_of(row)
            make_directory(self._draft / DIRECTORY_NAME)
            try:
                record = self._copy(name)
            except FileNotFoundError:
                raise _Gone(name) from None
            try:
                Segment.open(self._draft / name, row).check_all()
            except DataCorrupt as error:
                raise BackupError(f"{self._directory / name} is damaged: {error.where}") from None
            self._files[name] = record
            done += row.size_bytes
            yield Progress("copying history", done, total)

    def _keep_needed(self) -> None:
        """Drop copies of files that were removed before the moment."""
        rows = self._needed()
        named = {_path_of(row) for row in rows if row.local}
        self._elsewhere = sum(not row.local for row in rows)
        for name in {*self._files} - named - {DATABASE_NAME}:
            (self._draft / name).unlink()
            del self._files[name]
        if named:
            sync(self._draft / DIRECTORY_NAME)

    def _copy(self, name: str) -> FileRecord:
        digest, size = hashlib.sha256(), 0
        target = self._draft / name
        with (self._directory / name).open("rb") as source:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with os.fdopen(os.open(target, flags, FILE_MODE), "wb") as copy:
                while data := source.read(_COPY_BYTES):
                    digest.update(data)
                    copy.write(data)
                    size += len(data)
                copy.flush()
                os.fsync(copy.fileno())
        return FileRecord(size, digest.hexdigest())

    # ── The database ─────────────────────────────────────────────────────────────────────────

    def _copy_database(self) -> Iterator[Progress]:
        path = self._draft / DATABASE_NAME
        create_file(path)
        with closing(connect(path)) as copy:
            with copy.backup("main", self._source, "main") as job:
                while not job.done:
                    job.step(_PAGES_AT_ONCE)
                    yield Progress("copying", job.page_count - job.remaining, job.page_count)
            # A copy of a database in WAL mode expects a log. This one is complete in itself.
            copy.pragma("journal_mode", "delete")
        sync(path)
        self._files[DATABASE_NAME] = record_of(path)


def _path_of(row: SegmentRow) -> str:
    return f"{DIRECTORY_NAME}/{row.name}"


def record_of(path: Path) -> FileRecord:
    with path.open("rb") as file:
        return FileRecord(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _pack(draft: Path, target: Path, names: list[str]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with (
        os.fdopen(os.open(target, flags, FILE_MODE), "wb") as file,
        tarfile.open(fileobj=file, mode="w") as archive,
    ):
        for name in names:
            archive.add(draft / name, arcname=name, recursive=False)
    sync(target)


# ── Shared with restoring ──────────────────────────────────────────────────────────────────────


@contextmanager
def troubles(path: Path) -> Iterator[None]:
    """Turn errors of the file system and the database into one line."""
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
def removed_at_the_end(*paths: Path) -> Iterator[None]:
    """Remove what is left of these, however it ends."""
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
