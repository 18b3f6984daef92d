"""A disk that keeps what was synced, and otherwise only what luck has it.

Writes stay in memory until the file is synced. They are seen by every connection of the process,
as writes that the operating system has not yet brought to the disk are. When the process is
killed they are gone, except for those that were also written at once, at random.
"""

from __future__ import annotations

from random import Random
from threading import Lock

import apsw

BASE = "unix"
EARLY_CHANCE = 0.3

Name = str | apsw.URIFilename | None
Write = tuple[int, bytes]


class Volatile:
    """What was written to one file since its last sync."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.writes: list[Write] = []

    @property
    def end(self) -> int:
        return max((offset + len(data) for offset, data in self.writes), default=0)

    def truncate(self, size: int) -> None:
        self.writes = [(o, data[: size - o]) for o, data in self.writes if o < size]

    def overlay(self, below: bytes, offset: int, amount: int) -> bytes:
        """What a read finds, given what it finds on the disk."""
        found = bytearray(below)
        for start, data in self.writes:
            first, last = max(start, offset), min(start + len(data), offset + amount)
            if first < last:
                if len(found) < last - offset:
                    found.extend(bytes(last - offset - len(found)))
                found[first - offset : last - offset] = data[first - start : last - start]
        return bytes(found)


class VolatileFile(apsw.VFSFile):
    def __init__(self, name: Name, flags: list[int], volatile: Volatile, dice: Random) -> None:
        super().__init__(BASE, name, flags)
        self._volatile = volatile
        self._dice = dice

    def xWrite(self, data: bytes, offset: int) -> None:
        with self._volatile.lock:
            self._volatile.writes.append((offset, bytes(data)))
            if self._dice.random() < EARLY_CHANCE:
                super().xWrite(data, offset)

    def xRead(self, amount: int, offset: int) -> bytes:
        with self._volatile.lock:
            return self._volatile.overlay(super().xRead(amount, offset), offset, amount)

    def xFileSize(self) -> int:
        with self._volatile.lock:
            return max(super().xFileSize(), self._volatile.end)

    def xTruncate(self, newsize: int) -> None:
        with self._volatile.lock:
            self._volatile.truncate(newsize)
            super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        with self._volatile.lock:
            for offset, data in self._volatile.writes:
                super().xWrite(data, offset)
            self._volatile.writes.clear()


class VolatileVFS(apsw.VFS):
    def __init__(self, seed: str) -> None:
        # As the default, so that the server's own layer is put on top of this one.
        super().__init__("volatile", BASE, makedefault=True)
        self._dice = Random(seed)
        self._files: dict[str, Volatile] = {}

    def xOpen(self, name: Name, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        volatile = self._files.setdefault(path, Volatile())
        return VolatileFile(name, flags, volatile, self._dice)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._files.pop(filename, None)
        super().xDelete(filename, syncdir)
