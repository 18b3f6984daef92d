"""How the process of a server is set up: threads, garbage, memory and open files."""

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
    # The commit thread and the event loop hand the interpreter lock to each other with every
    # batch; at the usual 5 ms, each commit would wait that long for a busy loop to let go.
    sys.setswitchinterval(0.0002)
    _rest_collector()
    _give_memory_back()
    _raise_file_limit()


def _rest_collector() -> None:
    """Let the garbage collector look less often, and never at what is there from the start.

    Nearly everything here is freed without it. What waits (readers, queries, members) is many small
    objects that live for long, and going through all of them costs more than it finds.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _give_memory_back() -> None:
    """Have glibc return large blocks when they are freed, and share its pools between threads.

    By itself it keeps blocks of up to 32 MiB for later once it has seen such, in a pool per thread:
    after a few large bodies, more is kept than used. Other C libraries have no such settings.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for name, value in _MALLOC:
            mallopt(name, value)


def _raise_file_limit() -> None:
    """Every connection is an open file; use as many as this process may have."""
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
