"""The clock of a cluster: PostgreSQL's time, extrapolated by this machine's monotonic clock.

Leases of groups, expiry and retention are times that one node stores and another one acts on. If
each used its own clock, a node whose clock is a day ahead would expire what the others keep, and
one whose clock is behind would hold for a day what another leased for a minute. So a node's own
time of day is ignored. Each heartbeat brings PostgreSQL's time, which was correct at some moment
between request and answer: if our time lies within those bounds it stays, and otherwise it moves as
little as necessary. So it neither jitters nor is misled by a slow answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

NOW_MS: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


class SharedClock:
    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._ahead_ms: int | None = None

    def __call__(self) -> int:
        """Milliseconds since 1970. `tell` must have been called once."""
        assert self._ahead_ms is not None
        return self._monotonic_ns() // 1_000_000 + self._ahead_ms

    def tell(self, now_ms: int, asked_s: float, answered_s: float) -> None:
        """PostgreSQL's time, taken between two times of the monotonic clock."""
        least, most = now_ms - int(answered_s * 1000), now_ms - int(asked_s * 1000)
        known = least if self._ahead_ms is None else self._ahead_ms
        self._ahead_ms = min(max(known, least), most)
