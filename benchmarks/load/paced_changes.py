"""From the moment a change is sent until the query that it concerns is told."""

import asyncio
import random
import time
from array import array

from benchmarks.load.changes import OWNER, TABLE, edited, owner_key, owner_template
from benchmarks.load.http import request, stream_path
from benchmarks.load.jobs import PacedChanges
from benchmarks.load.measure import Result, Window
from benchmarks.load.touch import Asker, Trouble, Waiter, ask_at, create_live
from headwater.cli.load import percentile

_OWNER = 48_213
_PHASE_SEED = 20_241_009  # every run spreads its writers over time in the same way


class _Tally:
    def __init__(self) -> None:
        self.counting = False
        self.sent = 0
        self.latencies_ns = array("q")
        self.lags = array("d")


class _Query:
    """One live stream: a writer at a fixed pace, and the query that waits for its changes.

    Only one change is under way at a time, so that each wake belongs to one change. Where it is not
    through when the next is due, that one is sent as soon as it is.
    """

    def __init__(self, writer: Asker, path: str, rate: float, tally: _Tally, trouble: Trouble):
        self._writer = writer
        self._path = path
        self._interval = 1 / rate
        self._tally = tally
        self._trouble = trouble
        self._loop = asyncio.get_running_loop()
        self._version = 0
        self._due = 0.0
        self._is_late = False
        self._sent_ns = 0
        self._counts = False
        self._answered = self._seen = True
        self.stopped = False

    @property
    def is_through(self) -> bool:
        return self._answered and self._seen

    def start(self, delay: float) -> None:
        self._due = self._loop.time() + delay
        self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        if self.stopped:
            return
        self._tally.lags.append(self._loop.time() - self._due)
        if self.is_through:
            self._send()
        else:
            self._is_late = True
        self._due += self._interval
        self._loop.call_at(self._due, self._tick)

    def _send(self) -> None:
        self._is_late = self._answered = self._seen = False
        self._version += 1
        self._counts = self._tally.counting
        self._tally.sent += self._counts
        self._sent_ns = time.monotonic_ns()
        change = edited(_OWNER, self._version)
        self._writer.send(request("POST", self._path, change), self._appended)

    def _appended(self, status: int) -> None:
        if status not in {200, 204}:
            self._trouble.report(f"an append was answered {status}")
            return
        self._answered = True
        self._go_on()

    def touched(self, _: int) -> None:
        if not self._seen:
            self._seen = True
            if self._counts:
                self._tally.latencies_ns.append(time.monotonic_ns() - self._sent_ns)
            self._go_on()

    def _go_on(self) -> None:
        if self.is_through and self._is_late and not self.stopped:
            self._send()


async def paced_changes(job: PacedChanges) -> Result:
    tally, trouble = _Tally(), Trouble()
    queries = [await _query(job, number, tally, trouble) for number in range(job.streams)]
    phase = random.Random(_PHASE_SEED)
    for query in queries:
        query.start(phase.random() / job.rate)
    await trouble.sleep(job.warmup_seconds)
    window = Window(job.server_pid)
    tally.lags = array("d")
    tally.counting = True
    window.start()
    await trouble.sleep(job.seconds)
    tally.counting = False
    result = window.stop()
    for query in queries:
        query.stopped = True
    deadline = time.monotonic() + job.drain_seconds
    while time.monotonic() < deadline and not all(query.is_through for query in queries):
        await trouble.sleep(0.02)
    return result | _figures(tally, job) | {"errors": trouble.retries}


async def _query(job: PacedChanges, number: int, tally: _Tally, trouble: Trouble) -> _Query:
    path = stream_path(f"{job.prefix}{number}")
    writer = await ask_at(job.port)
    cursor = await create_live(writer, path, [(TABLE, OWNER)])
    query = _Query(writer, path, job.rate, tally, trouble)
    keys, templates = [owner_key(_OWNER)], [owner_template()]
    waiter = Waiter(await ask_at(job.port), path, 0, keys, templates, query.touched, trouble)
    waiter.wait(cursor.encode())
    return query


def _figures(tally: _Tally, job: PacedChanges) -> Result:
    seen = len(tally.latencies_ns)
    # What was never told has waited at least the whole drain; see the live scenarios.
    missing = tally.sent - seen
    ordered = sorted([*tally.latencies_ns, *([int(job.drain_seconds * 1e9)] * missing)])
    return {
        "seen_per_second": seen / job.seconds,
        "delivered_percent": 100 * seen / tally.sent if tally.sent else 0.0,
        "generator_lag_p99_ms": 1e3 * percentile(sorted(tally.lags), 99),
        "p50_ms": percentile(ordered, 50) / 1e6,
        "p99_ms": percentile(ordered, 99) / 1e6,
    }
