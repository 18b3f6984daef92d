"""Opening a data directory: the lock, the database file, its schema.

Every page of the file carries a checksum (SQLite's checksum VFS), so a damaged page is an error
and never data. One process may use a directory at a time; the lock is the kernel's, so it cannot
outlive its process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import apsw
import apsw.sqlite_extra

from headwater.core.errors import DataCorrupt, StorageUnavailable
from headwater.store.engine import CannotOpen
from headwater.store.permissions import FILE_MODE, create_file, make_directory, tighten
from headwater.store.sqlite.schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from headwater.store.sqlite.wal import find_damage
from headwater.store.syncing import sync

DATABASE_NAME: Final = "headwater.db"
LOCK_NAME: Final = "LOCK"
_CHECKSUM_VFS: Final = "cksmvfs"
_CHECKSUM_BYTES: Final = 8
BUSY_TIMEOUT_MS: Final = 10_000
_STATEMENTS_CACHED: Final = 400
_WAL_PAGES_BEFORE_CHECKPOINT: Final = 4_000
_WAL_BYTES_KEPT: Final = 64 * 1024 * 1024
_ORPHAN_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.01
_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
# What an older version may have left readable to others.
_OWN: Final = (
    DATABASE_NAME,
    f"{DATABASE_NAME}-wal",
    f"{DATABASE_NAME}-shm",
    LOCK_NAME,
    "reserve",
    "segments",
    "cache",
)


class DataDirectoryError(CannotOpen):
    """The data directory cannot be used; the message is one line that says why."""


class DirectoryLock:
    """Locks a data directory for this process until released."""

    def __init__(self, directory: Path) -> None:
        self.descriptor = os.open(directory / LOCK_NAME, _LOCK_FLAGS, FILE_MODE)
        patience = monotonic() + _ORPHAN_S
        while not self._lock():
            holder = os.pread(self.descriptor, 32, 0).decode(errors="replace").strip()
            # A server that was killed may have left a committer, which ends by itself.
            if _is_running(holder) or monotonic() > patience:
                os.close(self.descriptor)
                raise DataDirectoryError(
                    f"{directory} is in use by another headwater process (pid "
                    f"{holder or 'unknown'}); stop it or choose another directory"
                )
            sleep(_LOOK_AGAIN_S)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()}\n".encode(), 0)

    def _lock(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def release(self) -> None:
        os.close(self.descriptor)


def _is_running(holder: str) -> bool:
    """Whether a process is there; one that has ended may still wait to be noticed by its parent."""
    if not holder.isdecimal():
        return True
    try:
        os.kill(int(holder), 0)
        state = Path(f"/proc/{holder}/stat").read_bytes().rpartition(b") ")[2][:1]
    except ProcessLookupError:
        return False
    except OSError:
        # Somebody else's process, or a system without /proc.
        return True
    return state != b"Z"


def prepare_directory(directory: Path) -> DirectoryLock:
    try:
        make_directory(directory)
        return DirectoryLock(directory)
    except OSError as error:
        raise DataDirectoryError(f"cannot use {directory}: {error.strerror}") from None


def close_to_others(directory: Path) -> None:
    """Remove other users' access that an older version allowed."""
    tighten(directory, _OWN)


def connect(path: Path, *, read_only: bool = False) -> apsw.Connection:
    """A connection with checksummed pages. If read-only, the file must exist."""
    if _CHECKSUM_VFS not in apsw.vfs_names():
        apsw.sqlite_extra.load(apsw.Connection(":memory:"), "cksumvfs")
    flags = apsw.SQLITE_OPEN_READONLY if read_only else 0
    flags = flags or apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection(
        str(path), flags=flags, vfs=_CHECKSUM_VFS, statementcachesize=_STATEMENTS_CACHED
    )
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    return connection


def open_reader(path: Path) -> apsw.Connection:
    """A read-only connection to a database that is ours and whose log is intact."""
    if not path.is_file():
        raise DataDirectoryError(f"{path.parent} holds no headwater database")
    try:
        connection = connect(path, read_only=True)
    except apsw.Error as error:
        raise DataDirectoryError(f"{path} cannot be opened ({error})") from None
    try:
        _check_identity(connection, path)
        _check_log(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def empty_log(write: apsw.Connection) -> bool:
    """Checkpoint everything into the database file; False if somebody reads the log.

    `Connection.pragma` would quote all of this as the name of a pragma, which SQLite does not know,
    and ignores.
    """
    ((busy, _, _),) = write.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return not busy


def disk_bytes(path: Path) -> dict[str, int]:
    """The sizes of the parts of a database."""
    return {"database": _size(path), "wal": _size(Path(f"{path}-wal"))}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def open_writer(path: Path) -> apsw.Connection:
    """The one connection that writes, with the file created or migrated as needed."""
    try:
        if not path.exists():
            _create(path)
        return _open_existing(path)
    except apsw.Error as error:
        raise DataDirectoryError(f"{path} cannot be opened for writing ({error})") from None


def _create(path: Path) -> None:
    """Create the file under another name and rename it when it is complete.

    So a crash leaves nothing half done, and an empty file was damaged later.
    """
    if Path(f"{path}-wal").exists():
        raise DataDirectoryError(f"{path} is missing, but its write-ahead log is there")
    draft = path.with_name(f"{path.name}.new")
    for leftover in (draft, Path(f"{draft}-journal")):
        leftover.unlink(missing_ok=True)
    create_file(draft)
    connection = connect(draft)
    try:
        connection.reserve_bytes("main", _CHECKSUM_BYTES)
        _migrate(connection)
    finally:
        connection.close()
    draft.rename(path)
    sync(path.parent)


def _open_existing(path: Path) -> apsw.Connection:
    connection = connect(path)
    try:
        # A refused database is left as it was: closing would checkpoint the log.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        _check_identity(connection, path)
        _check_log(connection, path)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        set_up_writer(connection)
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def set_up_writer(connection: apsw.Connection) -> None:
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("wal_autocheckpoint", _WAL_PAGES_BEFORE_CHECKPOINT)
    connection.pragma("journal_size_limit", _WAL_BYTES_KEPT)
    connection.pragma("cache_size", -64 * 1024)


def _check_identity(connection: apsw.Connection, path: Path) -> None:
    try:
        version = connection.pragma("user_version")
        application = connection.pragma("application_id")
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
        if application == APPLICATION_ID:
            # The first query that will be made.
            connection.execute("SELECT seq FROM sqlite_sequence").fetchall()
    except apsw.NotADBError:
        raise DataDirectoryError(f"{path} is not a headwater database") from None
    except apsw.Error as error:
        raise DataDirectoryError(
            f"{path} cannot be read ({error}); run 'headwater verify {path.parent}'"
        ) from None
    if not tables:
        raise DataDirectoryError(f"{path} is empty: its streams are lost, unless there is a backup")
    if application != APPLICATION_ID:
        raise DataDirectoryError(f"{path} is not a headwater database")
    if version > SCHEMA_VERSION:
        raise DataDirectoryError(
            f"{path} was written by a newer headwater (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); upgrade headwater or use another directory"
        )


def _check_log(connection: apsw.Connection, path: Path) -> None:
    damage = find_damage(connection, path)
    if damage is not None:
        raise DataDirectoryError(
            f"{path}-wal holds acknowledged appends that cannot be read: {damage}; restore the "
            "directory from a backup"
        )


def _migrate(connection: apsw.Connection) -> None:
    version = connection.pragma("user_version")
    for number, migration in enumerate(MIGRATIONS[version:], start=version + 1):
        with connection:
            connection.execute(migration)
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", number)


@contextmanager
def translating() -> Iterator[None]:
    """Turn SQLite errors into errors for requests."""
    try:
        yield
    except apsw.Error as error:
        raise translated(error) from error


def translated(error: apsw.Error | OSError) -> Exception:
    """The error for a request when SQLite or the file system refuses."""
    if isinstance(error, OSError):
        return StorageUnavailable(f"{error.strerror}; nothing was written; try again")
    damaged = isinstance(error, apsw.CorruptError | apsw.NotADBError) or (
        getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA
    )
    if damaged:
        return DataCorrupt(f"the database: {error}")
    return StorageUnavailable(f"the database answered '{error}'; nothing was written; try again")
