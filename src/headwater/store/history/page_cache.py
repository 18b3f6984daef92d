"""Whether bytes of a file can be read without waiting for the disk.

The kernel can be asked to read only what it has in memory. Checking one byte per 128 KiB is enough:
the kernel keeps and drops larger units than that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from headwater.core.limits import KIB

_STEP_BYTES: Final = 128 * KIB
_WITHOUT_WAITING: Final[int | None] = getattr(os, "RWF_NOWAIT", None)


def is_in_memory(file: int, offset: int, length: int) -> bool:
    """Also False if the system cannot tell."""
    if _WITHOUT_WAITING is None:
        return False
    byte = [bytearray(1)]
    try:
        for place in _one_of_each(offset, length):
            os.preadv(file, byte, place, _WITHOUT_WAITING)
    except OSError:
        return False
    return True


def bring(file: int, offset: int, length: int) -> None:
    """Wait until it is in memory. Not on the event loop."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, offset, length, os.POSIX_FADV_WILLNEED)
    for place in _one_of_each(offset, length):
        os.pread(file, 1, place)


def _one_of_each(offset: int, length: int) -> Iterator[int]:
    yield from range(offset, offset + length, _STEP_BYTES)
    yield offset + length - 1
