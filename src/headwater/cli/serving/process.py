"""Process settings of a server: threads, garbage collection, memory and open files."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from typing import Final

from headwater.core.limits import MIB

# M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_ARENA_MAX of glibc's malloc.h.
_MALLOC: Final = ((-3, MIB), (-1, 8 * MIB), (-8, 2))


def prepare_process() -> None:
    # The commit thread and the event loop hand the interpreter lock to each other with every batch;
    # at the default of 5 ms, each commit would wait that long for a busy loop.
    sys.setswitchinterval(0.0002)
    _rest_collector()
    _give_memory_back()
    _raise_file_limit()


def _rest_collector() -> None:
    """Run the garbage collector less often, and never over what exists from the start.

    Nearly everything here is freed without it. Waiting readers, queries and members are many small
    long-lived objects, and traversing them costs more than it frees.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _give_memory_back() -> None:
    """Make glibc return large blocks when they are freed, and share its pools between threads.

    By default, once it has seen large blocks, it keeps blocks of up to 32 MiB for later, in a pool
    per thread: after a few large bodies, more is kept than used. Other C libraries have no such
    settings.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, value in _MALLOC:
            mallopt(name, value)


def _raise_file_limit() -> None:
    """Raise the limit of open files to the maximum: every connection is one."""
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
