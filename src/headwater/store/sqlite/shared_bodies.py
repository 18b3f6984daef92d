"""Memory that the server shares with its committer, for the bodies of large appends.

The socket between them would copy a body twice, a piece at a time. Here the server copies it once,
and the committer writes it from there. Only one batch is with the committer at a time, so each
begins at the beginning.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from headwater.core.limits import MIB

SHARED_BYTES: Final = 8 * MIB
# Files in memory. A system without it commits large appends in the server.
_DIRECTORY: Final = Path("/dev/shm")


class SharedBodies:
    """The server's end. Takes no memory until it is used."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._memory: mmap.mmap | None = None
        self._is_usable = True

    def descriptor(self) -> int | None:
        """What the committer inherits; None if there is nothing to share."""
        if self._file is None and self._is_usable:
            try:
                with tempfile.TemporaryFile(dir=_DIRECTORY) as file:
                    self._file = os.dup(file.fileno())
            except OSError:
                self._is_usable = False
        return self._file

    def put(self, bodies: Sequence[bytes]) -> bool:
        """Place them one after the other; False if they do not fit."""
        if self._file is None or not self._is_usable or sum(map(len, bodies)) > SHARED_BYTES:
            return False
        memory = self._memory
        if memory is None:
            try:
                # Memory that is promised but not there would end the process when it is written.
                os.posix_fallocate(self._file, 0, SHARED_BYTES)
                memory = self._memory = mmap.mmap(self._file, SHARED_BYTES)
            except OSError:
                self._is_usable = False
                return False
        place = 0
        for body in bodies:
            end = place + len(body)
            memory[place:end] = body
            place = end
        return True

    def close(self) -> None:
        self._is_usable = False
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None


class BorrowedBodies:
    """The committer's end."""

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor
        self._memory: memoryview | None = None

    def look_at(self, sizes: Sequence[int]) -> list[memoryview]:
        """Bodies that stay the same until the batch is answered."""
        if self._memory is None:
            self._memory = memoryview(mmap.mmap(self._file, SHARED_BYTES, prot=mmap.PROT_READ))
        bodies: list[memoryview] = []
        place = 0
        for size in sizes:
            bodies.append(self._memory[place : place + size])
            place += size
        return bodies
