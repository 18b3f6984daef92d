"""Whether bytes of a file can be read without waiting for the disk.

The kernel can be asked to read only what it has in memory. Checking one byte per 128 KiB is enough:
the kernel keeps and drops larger units than that.

An interpreter that was built to run on old systems too, such as those that uv installs, does not
offer that call, but the C library that it runs on usually does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

from headwater.core.limits import KIB

_STEP_BYTES: Final = 128 * KIB
_NOWAIT_ON_LINUX: Final = 8

Probe = Callable[[int, int], object]
"""Reads a byte of a file at a place, or raises an OSError if it would have to wait."""


def is_in_memory(file: int, offset: int, length: int) -> bool:
    """Also False if the system cannot tell."""
    if _probe is None:
        return False
    try:
        for place in _one_of_each(offset, length):
            _probe(file, place)
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


def probe_of_interpreter() -> Probe | None:
    nowait: int | None = getattr(os, "RWF_NOWAIT", None)
    if nowait is None:
        return None
    byte = [bytearray(1)]
    return lambda file, place: os.preadv(file, byte, place, nowait)


def probe_of_libc() -> Probe | None:
    # Few interpreters need it.
    import ctypes

    class Vector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    try:
        read = ctypes.CDLL(None, use_errno=True).preadv64v2
    except (AttributeError, OSError, TypeError):
        # Another C library or another system.
        return None
    read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int)
    read.restype = ctypes.c_ssize_t
    byte = ctypes.create_string_buffer(1)
    vector = Vector(ctypes.addressof(byte), 1)
    address = ctypes.addressof(vector)

    def probe(file: int, place: int, keep: object = (byte, vector)) -> None:
        if read(file, address, 1, place, _NOWAIT_ON_LINUX) < 0:
            raise OSError(ctypes.get_errno(), "not in memory")

    return probe


_probe: Final = probe_of_interpreter() or probe_of_libc()
