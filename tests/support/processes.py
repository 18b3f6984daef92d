"""Processes that a server has started, and who is still at work in its data directory."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from headwater.store.sqlite.database import LOCK_NAME

PATIENCE_S: Final = 60
_COMMITTER: Final = b"headwater.store.sqlite.committer"


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.01)


def committers(pid: int) -> list[int]:
    """The processes that commit for a server: one, or none if it has just been started."""
    found: list[int] = []
    # A child belongs to the thread that has started it.
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, children.read_text().split())
    return [child for child in found if is_committer(child)]


def committer_of(pid: int, other_than: int = 0) -> int:
    """Wait for the process that commits for a server."""
    wait_until(lambda: set(committers(pid)) - {other_than}, "there is no committer")
    (found,) = set(committers(pid)) - {other_than}
    return found


def is_committer(pid: int) -> bool:
    """Whether this is one, and has not ended."""
    with suppress(OSError):
        return _COMMITTER in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def is_locked(directory: Path) -> bool:
    """Whether somebody is at work in a data directory."""
    try:
        lock = os.open(directory / LOCK_NAME, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def committers_in(directory: Path) -> list[int]:
    """All that commit to a data directory, whoever has started them."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            what = (process / "cmdline").read_bytes()
            if _COMMITTER in what and os.fsencode(directory) in what:
                found.append(int(process.name))
    return found


def bytes_written(pid: int) -> int:
    """How much a process has written to files so far."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            name, _, count = line.partition(": ")
            if name == "wchar":
                return int(count)
    return 0
