"""How tests share the machine when several workers run them (`make test`, `pytest -n 2`).

* There are four more workers than cores, because tests wait a lot: for servers to start, for disks,
  for time to pass. The public suite, for example, waits for three quarters of its time.
* Spark tests and those marked `slow` come first: at the end the others would wait for them.
  `schedule` decides which worker gets which tests.
* Tests marked `late` come after the others and next to each other. They kill servers until a time
  is over, and would achieve less of that next to tests that load the machine. One of them needs
  about half a core. Long and short ones alternate: a worker always holds two tests, and two long
  ones in a row would keep everyone else waiting.
* Tests marked `alone` come last, and each runs while no other worker runs anything. They load every
  core themselves, or would prove less next to any other load.
* All others share the machine.

This is done with a lock on this very file: everyone shares it for the length of a test, `alone` has
it exclusively. A test that wants it exclusively also holds a second lock, which the others have to
pass, so it waits for the running tests and for no later ones. Time spent waiting is not part of
what pytest reports as the duration of a test.

Without workers there is nothing to share, and nothing is locked.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Final

import pytest

_LATE_AND_LONG: Final = 3
_LATE: Final = 4
MACHINE = Path(__file__)
TURNSTILE = MACHINE.with_name("server.py")


def workers() -> int:
    return (os.cpu_count() or 1) + 4


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """The same tests, in the order described at the top of this module."""
    turns: dict[int, list[pytest.Item]] = {}
    for item in items:
        turns.setdefault(_turn(item), []).append(item)
    late = zip_longest(turns.pop(_LATE_AND_LONG, ()), turns.pop(_LATE, ()))
    turns[_LATE] = [item for pair in late for item in pair if item is not None]
    return [item for turn in sorted(turns) for item in turns[turn]]


def _turn(item: pytest.Item) -> int:
    slow = item.get_closest_marker("slow") is not None
    if item.get_closest_marker("alone"):
        return 5
    if item.get_closest_marker("late"):
        return _LATE_AND_LONG if slow else _LATE
    if "spark" in item.path.parts:
        return 0
    return 1 if slow else 2


@contextmanager
def turn(item: pytest.Item) -> Iterator[None]:
    """Hold the locks that a test needs."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    alone = item.get_closest_marker("alone") is not None
    mode = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with MACHINE.open() as machine, TURNSTILE.open() as turnstile:
        fcntl.flock(turnstile, mode)
        fcntl.flock(machine, mode)
        if not alone:
            fcntl.flock(turnstile, fcntl.LOCK_UN)
        yield
