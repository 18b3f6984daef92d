"""A second look at SQLite's write-ahead log.

SQLite reads the log up to the first invalid frame, and assumes that a crash cut off an unfinished
commit there. A byte that was damaged later looks the same to it, and every commit from there on
would be dropped silently.

The two can be told apart. A commit is synced before the next one is written, so an unfinished one
is the last thing in the log. A complete commit followed by the start of another was finished; if it
lies after the first bad frame, that frame is damaged. (Damage to the very last commits goes
undetected: nothing in the file distinguishes it from a crash.)

The format is documented at https://www.sqlite.org/walformat.html.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Final, NamedTuple

import apsw

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">6I")
_MAGIC: Final = 0x377F0682  # The lowest bit says in which byte order the sums are computed.
_MASK: Final = 2**32 - 1

Sums = tuple[int, int]


class _Frame(NamedTuple):
    commits: bool
    salts: tuple[int, int]
    sums: Sums
    head: bytes


class _Log:
    def __init__(self, file: int, page_bytes: int) -> None:
        self._file = file
        self._page_bytes = page_bytes
        header = os.pread(file, _HEADER.size, 0)
        magic, _, _, _, *salts_and_sums = _HEADER.unpack(header)
        known = magic & ~1 == _MAGIC
        big_endian = magic & 1 == 1 if known else sys.byteorder == "big"
        self._words = struct.Struct(">II" if big_endian else "<II")
        self.salts = (salts_and_sums[0], salts_and_sums[1])
        self.sums = (salts_and_sums[2], salts_and_sums[3])
        self.intact = known and self._sum(header[:24], (0, 0)) == self.sums
        self.frames = (os.fstat(file).st_size - _HEADER.size) // (_FRAME.size + page_bytes)

    def _sum(self, data: bytes, sums: Sums) -> Sums:
        first, second = sums
        for low, high in self._words.iter_unpack(data):
            first = (first + low + second) & _MASK
            second = (second + high + first) & _MASK
        return first, second

    def _offset(self, number: int) -> int:
        return _HEADER.size + (number - 1) * (_FRAME.size + self._page_bytes)

    def frame(self, number: int) -> _Frame | None:
        """A frame of the current generation; the file may hold older ones after those."""
        head = os.pread(self._file, _FRAME.size, self._offset(number))
        if len(head) < _FRAME.size:
            return None
        _, pages, salt, other_salt, first, second = _FRAME.unpack(head)
        if self.intact and (salt, other_salt) != self.salts:
            return None
        return _Frame(pages > 0, (salt, other_salt), (first, second), head)

    def follows(self, number: int, frame: _Frame, before: Sums) -> bool:
        """Whether a frame is intact and was written right after the one with these sums."""
        page = os.pread(self._file, self._page_bytes, self._offset(number) + _FRAME.size)
        if len(page) < self._page_bytes:
            return False
        return self._sum(page, self._sum(frame.head[:8], before)) == frame.sums


def find_damage(connection: apsw.Connection, database: Path) -> str | None:
    """What is wrong with the log of a database, if anything.

    The connection must have been read from, so that SQLite has processed its log. SQLite reports
    how far it got. The `-shm` file would tell as well, but closing that file drops all locks that
    this process has on it, and the next process to open the database would consider it abandoned
    and start over while we use it.
    """
    try:
        file = os.open(f"{database}-wal", os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        if os.fstat(file).st_size <= _HEADER.size:
            return None
        _, recovered, _ = connection.execute("PRAGMA wal_checkpoint(NOOP)").fetchall()[0]
        page_bytes = connection.pragma("page_size")
        return _examine(_Log(file, page_bytes), max(0, int(recovered or 0)))
    finally:
        os.close(file)


def _examine(log: _Log, recovered: int) -> str | None:
    last_good = _last_good(log, recovered) if log.intact else 0
    before: _Frame | None = None
    commit_before = False
    for number in range(last_good + 1, log.frames + 1):
        frame = log.frame(number)
        # The sums show that a frame is intact, given those of the one before, intact or not.
        whole = (
            frame is not None
            and before is not None
            and before.salts == frame.salts
            and log.follows(number, frame, before.sums)
        )
        if whole and commit_before:
            return f"frame {last_good + 1} is damaged, and there are commits after it"
        commit_before = whole and frame is not None and frame.commits
        before = frame
    return None


def _last_good(log: _Log, recovered: int) -> int:
    """The last frame before the first bad one. A running server may have added some meanwhile."""
    number, sums = 0, log.sums
    if recovered:
        last = log.frame(recovered)
        if last is None:
            return recovered
        number, sums = recovered, last.sums
    while (frame := log.frame(number + 1)) is not None and log.follows(number + 1, frame, sums):
        number, sums = number + 1, frame.sums
    return number
