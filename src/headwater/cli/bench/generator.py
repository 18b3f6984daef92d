"""A load generator: requests one after the other, or each when it is due.

A sender sends its next request when the last one is answered. With a pace, requests are due at
fixed times instead, and their latency counts from then: a server that falls behind cannot hide it
by making the client wait.

How requests reach a server is decided elsewhere. `headwater bench` sends through the client, so
that it works with any server, with TLS and with credentials. The project's own benchmarks write to
plain sockets, to keep their own cost out of the figures. Hence callbacks rather than tasks.
"""

from __future__ import annotations

import asyncio
import math
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence


class Tally:
    """What was sent, how long each answer took, in nanoseconds, and when to stop."""

    def __init__(self, count: float = math.inf, until_ns: float = math.inf) -> None:
        self.count = count
        self.until_ns = until_ns
        self.sent = 0
        self.latencies_ns = array("q")
        self.errors = 0

    def stop(self) -> None:
        self.until_ns = 0


class Pace:
    """Due times at a fixed rate, whatever happens to earlier requests."""

    def __init__(self, per_second: float, delay_s: float = 0.0) -> None:
        self._first_ns = time.perf_counter_ns() + int(delay_s * 1e9)
        self._interval_ns = 1e9 / per_second
        self._taken = 0

    def take(self) -> int:
        due_ns = self._first_ns + int(self._taken * self._interval_ns)
        self._taken += 1
        return due_ns


class Sender(ABC):
    """Has one request in flight at a time. Senders may share a tally, and a pace."""

    def __init__(self, tally: Tally, pace: Pace | None = None) -> None:
        self.tally = tally
        self._pace = pace
        self._due_ns = 0

    @abstractmethod
    def send(self, due_ns: int) -> None:
        """Send a request, and call `answered` when it has been answered."""

    @abstractmethod
    def ended(self) -> None:
        """There is nothing left to send."""

    def send_next(self) -> None:
        due_ns = self._pace.take() if self._pace else time.perf_counter_ns()
        if self._pace and (early_s := -late_s(due_ns)) > 0 and due_ns < self.tally.until_ns:
            asyncio.get_running_loop().call_later(early_s, self._send, due_ns)
        else:
            self._send(due_ns)

    def answered(self, *, failed: bool = False) -> None:
        if failed:
            self.tally.errors += 1
        else:
            self.tally.latencies_ns.append(time.perf_counter_ns() - self._due_ns)
        self.send_next()

    def _send(self, due_ns: int) -> None:
        tally = self.tally
        if tally.sent >= tally.count or due_ns >= tally.until_ns:
            self.ended()
        else:
            tally.sent += 1
            self._due_ns = due_ns
            self.send(due_ns)


def late_s(due_ns: int) -> float:
    """How long ago that was due; negative if it is in the future."""
    return (time.perf_counter_ns() - due_ns) / 1e9


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of sorted values; 0 if there are none.

    >>> percentile([1, 2, 3, 4], 50)
    2
    """
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)] if ordered else 0.0
