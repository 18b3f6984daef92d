"""Disk space reserved for when the disk is full.

To delete something, a database has to write first. So an empty file of some size is kept next to
it. When the disk is full, that file is removed, and its space is there for deletions, retention and
closing; nothing that grows is stored until the file could be created again.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import apsw

from headwater.core.limits import MIB
from headwater.store.permissions import FILE_MODE

RESERVE_NAME: Final = "reserve"
# Twice the size at which the write-ahead log is checkpointed: the log may have to grow that far,
# and then the database.
_BYTES_MAX: Final = 16 * MIB
_SHARE_OF_DISK: Final = 4


class DiskReserve:
    def __init__(self, directory: Path) -> None:
        self._path = directory / RESERVE_NAME
        self._directory = directory
        disk = os.statvfs(directory)
        self.size_bytes = min(_BYTES_MAX, disk.f_blocks * disk.f_frsize // _SHARE_OF_DISK)
        self.is_there = False
        self.reusable_bytes = 0
        """What the database can reuse without growing."""
        self.build()

    def build(self) -> bool:
        """Create the file, if the disk has space for it."""
        if not self.is_there and self._fits():
            try:
                file = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
                try:
                    os.posix_fallocate(file, 0, max(1, self.size_bytes))
                finally:
                    os.close(file)
                self.is_there = True
            except OSError:
                self.release()
        return self.is_there

    def _fits(self) -> bool:
        disk = os.statvfs(self._directory)
        free_bytes = disk.f_bavail * disk.f_frsize
        with suppress(OSError):
            free_bytes += self._path.stat().st_blocks * 512
        growth_bytes = self.size_bytes // 4
        return free_bytes >= self.size_bytes + max(0, growth_bytes - self.reusable_bytes)

    def release(self) -> None:
        """The disk is full: free the space for operations that shrink."""
        self.is_there = False
        with suppress(OSError):
            self._path.unlink()

    def has_room(self) -> bool:
        """Whether something may grow, or it is worth trying."""
        try:
            return self.is_there or self._fits()
        except OSError:
            return False


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk is full."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, apsw.FullError)
