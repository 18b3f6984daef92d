"""A time of day that is off by what a file says, and jumps when that changes.

The clock that only counts on is left alone, as it is when somebody sets the time of a machine.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path


def install(control: Path) -> None:
    with control.open("rb") as file:
        off = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
    right = time.time_ns

    def time_ns() -> int:
        return right() + int(struct.unpack_from("<q", off)[0])

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
