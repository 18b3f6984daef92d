"""A disk that keeps what was synced, and otherwise only what luck has it.

Writes go to the files at once, so every process sees them, as it sees what the operating system has
not yet brought to the disk. Until a file is synced, a log in another directory says what each write
replaced. When the power fails (`lose_power`), all of those writes are undone, except for some that
happened to reach the disk early.

That holds for the files of SQLite and for segments. A truncation is a write like any other. A
deletion lasts, and so does the name of a new file.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import apsw

BASE: Final = "unix"
EARLY_CHANCE: Final = 0.3
_LENGTH: Final = struct.Struct("<Q")

Name = str | apsw.URIFilename | None


class Change(NamedTuple):
    offset: int
    size: int
    """The size of the file before."""
    before: bytes
    after: bytes | None
    """None if the file was cut off at the offset."""

    def undo(self, file: int) -> None:
        os.ftruncate(file, self.size)
        os.pwrite(file, self.before, self.offset)

    def redo(self, file: int) -> None:
        if self.after is None:
            os.ftruncate(file, self.offset)
        else:
            os.pwrite(file, self.after, self.offset)


class Unsynced:
    """What was written to one file since its last sync, by any process.

    The log begins with its length. What a killed process left behind that is not part of the log.
    """

    def __init__(self, logs: Path, path: str) -> None:
        self._log = os.open(logs / quote(path, safe=""), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)

    @contextmanager
    def locked(self) -> Iterator[None]:
        fcntl.flock(self._log, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._log, fcntl.LOCK_UN)

    def add(self, change: Change) -> None:
        """Note a change that is about to be made."""
        end, record = self._end, marshal.dumps(tuple(change))
        os.pwrite(self._log, record, end)
        os.pwrite(self._log, _LENGTH.pack(end + len(record)), 0)

    def clear(self) -> None:
        os.pwrite(self._log, _LENGTH.pack(_LENGTH.size), 0)

    def changes(self) -> list[Change]:
        with os.fdopen(os.dup(self._log), "rb") as log:
            log.seek(_LENGTH.size)
            found, end = [], self._end
            while log.tell() < end:
                found.append(Change(*marshal.load(log)))
        return found

    def close(self) -> None:
        os.close(self._log)

    @property
    def _end(self) -> int:
        length = os.pread(self._log, _LENGTH.size, 0)
        return int(_LENGTH.unpack(length)[0]) if length else _LENGTH.size


class VolatileFile(apsw.VFSFile):
    def __init__(self, name: Name, flags: list[int], unsynced: Unsynced) -> None:
        super().__init__(BASE, name, flags)
        self._unsynced = unsynced

    def xWrite(self, data: bytes, offset: int) -> None:
        with self._unsynced.locked():
            self._note(offset, len(data), bytes(data))
            super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        with self._unsynced.locked():
            self._note(newsize, super().xFileSize(), None)
            super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        with self._unsynced.locked():
            self._unsynced.clear()

    def xClose(self) -> None:
        super().xClose()
        self._unsynced.close()

    def _note(self, offset: int, amount: int, after: bytes | None) -> None:
        # Not with a descriptor of our own: closing that would release SQLite's locks.
        size = super().xFileSize()
        amount = min(amount, size - offset)
        before = super().xRead(amount, offset) if amount > 0 else b""
        self._unsynced.add(Change(offset, size, before, after))


class VolatileVFS(apsw.VFS):
    def __init__(self, logs: Path) -> None:
        # As the default, so that the server's own layer is put on top of this one.
        super().__init__("volatile", BASE, makedefault=True)
        self._logs = logs

    def xOpen(self, name: Name, flags: list[int]) -> apsw.VFSFile:
        if name is None:
            return apsw.VFSFile(BASE, name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        return VolatileFile(name, flags, Unsynced(self._logs, path))

    def xDelete(self, filename: str, syncdir: bool) -> None:
        unsynced = Unsynced(self._logs, filename)
        with unsynced.locked():
            unsynced.clear()
            super().xDelete(filename, syncdir)
        unsynced.close()


class VolatileSegments:
    """The calls that write segments, which come one after the other and are synced once."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._files: dict[int, Unsynced] = {}
        self._open, self._close, self._rename = os.open, os.close, os.rename
        self._write, self._writev, self._pwrite = os.write, os.writev, os.pwrite
        self._fsync, self._fdatasync = os.fsync, os.fdatasync

    def install(self) -> None:
        for name in ("open", "close", "rename", "write", "writev", "pwrite", "fsync", "fdatasync"):
            setattr(os, name, getattr(self, name))

    def open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        file = self._open(path, flags, *rest, **more)
        if flags & os.O_EXCL and str(path).endswith(".new"):
            self._files[file] = Unsynced(self._logs, str(path))
        return file

    def _note(self, file: int, data: Any, offset: int | None = None) -> None:
        unsynced = self._files.get(file)
        if unsynced is not None:
            at = os.lseek(file, 0, os.SEEK_CUR) if offset is None else offset
            with unsynced.locked():
                # All of it is new, so there is nothing to put back.
                unsynced.add(Change(at, os.fstat(file).st_size, b"", bytes(data)))

    def write(self, file: int, data: Any) -> int:
        self._note(file, data)
        return self._write(file, data)

    def writev(self, file: int, parts: Any) -> int:
        self._note(file, b"".join(parts))
        return self._writev(file, parts)

    def pwrite(self, file: int, data: Any, offset: int) -> int:
        self._note(file, data, offset)
        return self._pwrite(file, data, offset)

    def fsync(self, file: int) -> None:
        self._fsync(file)
        self._synced(file)

    def fdatasync(self, file: int) -> None:
        self._fdatasync(file)
        self._synced(file)

    def _synced(self, file: int) -> None:
        unsynced = self._files.get(file)
        if unsynced is not None:
            with unsynced.locked():
                unsynced.clear()

    def close(self, file: int) -> None:
        unsynced = self._files.pop(file, None)
        if unsynced is not None:
            unsynced.close()
        self._close(file)

    def rename(self, source: Any, target: Any, **more: Any) -> None:
        self._rename(source, target, **more)
        logged = self._logs / quote(str(source), safe="")
        if logged.exists():
            self._rename(logged, self._logs / quote(str(target), safe=""))


def lose_power(logs: Path, dice: Random) -> None:
    """Leave of every file what a disk might have of it. No process uses one any more."""
    for log in sorted(logs.iterdir()):
        unsynced = Unsynced(logs, unquote(log.name))
        changes = unsynced.changes()
        # What was written and not synced may have been removed since.
        if changes and Path(unquote(log.name)).exists():
            file = os.open(unquote(log.name), os.O_RDWR)
            for change in reversed(changes):
                change.undo(file)
            for change in changes:
                if dice.random() < EARLY_CHANCE:
                    change.redo(file)
            os.close(file)
        unsynced.clear()
        unsynced.close()
