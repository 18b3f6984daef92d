"""The clock, passed to everything that needs one."""

from __future__ import annotations

import time
from collections.abc import Callable

from headwater.store.engine import Engine

Clock = Callable[[], int]


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def clock_of(engine: Engine) -> Clock:
    """The clock of streams and groups: nodes that share an engine share its time."""
    return engine.membership.clock if engine.membership is not None else wall_clock_ms
