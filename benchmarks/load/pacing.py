"""Writers that keep a pace whatever the server does, and their figures."""

import asyncio
import random
import sys
import time
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Sequence

from benchmarks.load.latencies import latency_figures
from benchmarks.load.measure import Result
from headwater.cli.bench.generator import Pace, late_s, percentile

_PHASE_SEED = 20_241_009  # every run spreads its writers over time in the same way


class Tally:
    """Counts written and delivered messages; only those written within the window count."""

    def __init__(self) -> None:
        self.from_ns = self.until_ns = 0
        self.written = 0
        self.latencies_ns = array("q")
        self.lags = array("d")
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expected = sys.maxsize

    def open_window(self, seconds: float) -> None:
        self.lags = array("d")
        self.from_ns = time.monotonic_ns()
        self.until_ns = self.from_ns + int(seconds * 1e9)

    def counts(self, at_ns: int) -> bool:
        return self.from_ns <= at_ns < self.until_ns

    async def drain(self, expected: int, seconds: float) -> None:
        """Wait until everything expected has arrived, or give up."""
        self._expected = expected
        self.check_complete()
        await asyncio.wait([self.finished], timeout=seconds)
        if self.finished.done():
            self.finished.result()
        else:
            self.finished.cancel()

    def check_complete(self) -> None:
        if len(self.latencies_ns) >= self._expected and not self.finished.done():
            self.finished.set_result(None)

    def fail(self, reason: str) -> None:
        if not self.finished.done():
            self.finished.set_exception(RuntimeError(reason))

    def figures(self, expected: int, drain_seconds: float) -> Result:
        delivered = len(self.latencies_ns)
        # What never arrived has waited at least the whole drain. Leaving it out would make an
        # overloaded server look fast, so it counts with that time, which is still too kind.
        missing = max(0, expected - delivered)
        latencies = [*self.latencies_ns, *([int(drain_seconds * 1e9)] * missing)]
        return latency_figures(latencies) | {
            "delivered_percent": 100 * delivered / expected if expected else 0.0,
            # How late the generator itself was: a tail of this size is its own, not the server's.
            "generator_lag_p99_ms": 1e3 * percentile(sorted(self.lags), 99),
        }


class Paced(ABC):
    """Does something at a fixed pace, until it is stopped."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.stopped = False

    @abstractmethod
    def due(self) -> None:
        """Do it now."""

    def start(self, per_second: float, delay: float) -> None:
        self._pace = Pace(per_second, delay)
        self._loop = asyncio.get_running_loop()
        self._wait()

    def _wait(self) -> None:
        due_ns = self._pace.take()
        self._loop.call_later(max(0.0, -late_s(due_ns)), self._tick, due_ns)

    def _tick(self, due_ns: int) -> None:
        if not self.stopped:
            self.tally.lags.append(max(0.0, late_s(due_ns)))
            self.due()
            self._wait()


class PacedWriter(Paced):
    """Writes one message at a time.

    A message counts from the moment its timer fires. If the previous one is not answered yet, it
    queues, as keystrokes do: a slow answer delays what follows instead of thinning it out.
    """

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._waiting: deque[int] = deque()
        self._in_flight = False

    @abstractmethod
    def send(self, at_ns: int) -> None:
        """Write a message with that time, and call ``answered`` when it has been answered."""

    def due(self) -> None:
        now_ns = time.monotonic_ns()
        self.tally.written += self.tally.counts(now_ns)
        if self._in_flight:
            self._waiting.append(now_ns)
        else:
            self._in_flight = True
            self.send(now_ns)

    def answered(self) -> None:
        self._in_flight = bool(self._waiting)
        if self._in_flight:
            self.send(self._waiting.popleft())


def start_spread(paced: Sequence[Paced], per_second: float) -> None:
    """Start all of them, spread over the first interval."""
    phase = random.Random(_PHASE_SEED)
    for one in paced:
        one.start(per_second, phase.random() / per_second)


def stop(paced: Sequence[Paced]) -> None:
    for one in paced:
        one.stopped = True
