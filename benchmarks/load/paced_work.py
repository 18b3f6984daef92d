"""From the moment a writer wants to append a message until a member of a group has it."""

import asyncio
import sys
import time
from array import array
from collections import deque

from benchmarks.load.brokers import BROKERS, Broker, connect
from benchmarks.load.jobs import PacedWork
from benchmarks.load.measure import Result, Window
from benchmarks.load.sse import AT_FROM, AT_UNTIL, MARK_START, marked_message
from headwater.cli.load import percentile

_GROUP = "paced"
_AUTHOR = b"000000"


class _Tally:
    """Counts what was written and what arrived; only messages written in the window count."""

    def __init__(self) -> None:
        self.from_ns = self.until_ns = 0
        self.written = 0
        self.latencies_ns = array("q")
        self.lags = array("d")
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expected = sys.maxsize

    def counts(self, at_ns: int) -> bool:
        return self.from_ns <= at_ns < self.until_ns

    def deliver(self, data: bytes) -> None:
        mark, now_ns = data.find(MARK_START), time.monotonic_ns()
        at_ns = int(data[mark + AT_FROM : mark + AT_UNTIL])
        if self.counts(at_ns):
            self.latencies_ns.append(now_ns - at_ns)
            self._check_complete()

    async def drain(self, seconds: float) -> None:
        """Wait until everything that was written has arrived, or give up."""
        self._expected = self.written
        self._check_complete()
        await asyncio.wait([self.finished], timeout=seconds)
        if self.finished.done():
            self.finished.result()
        else:
            self.finished.cancel()

    def _check_complete(self) -> None:
        if len(self.latencies_ns) >= self._expected and not self.finished.done():
            self.finished.set_result(None)

    def fail(self, reason: str) -> None:
        if not self.finished.done():
            self.finished.set_exception(RuntimeError(reason))


class _Writer:
    """Keeps its pace whatever the server does; what is due while it waits stands in line."""

    def __init__(self, broker: Broker, job: PacedWork, tally: _Tally) -> None:
        self._broker = broker
        self._stream = job.stream
        self._tally = tally
        self._interval = job.writers / job.rate
        self._before, self._after = marked_message(_AUTHOR, job.message_bytes)
        self._waiting: deque[int] = deque()
        self._in_flight = False
        self._stopped = False

    def start(self, delay: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + delay
        self._loop.call_at(self._due, self._write)

    def stop(self) -> None:
        self._stopped = True

    def _write(self) -> None:
        if self._stopped:
            return
        now_ns = time.monotonic_ns()
        self._tally.written += self._tally.counts(now_ns)
        self._tally.lags.append(self._loop.time() - self._due)
        self._waiting.append(now_ns)
        if not self._in_flight:
            self._send()
        self._due += self._interval
        self._loop.call_at(self._due, self._write)

    def _send(self) -> None:
        self._in_flight = bool(self._waiting)
        if self._in_flight:
            message = self._before + b"%019d" % self._waiting.popleft() + self._after
            self._broker.append(self._stream, [message], self._send)


class _Member:
    """Takes one message at a time and acknowledges it."""

    def __init__(self, broker: Broker, number: int, job: PacedWork, tally: _Tally) -> None:
        self._broker = broker
        self._stream = job.stream
        self._name = f"member-{number}"
        self._tally = tally

    def fetch(self) -> None:
        self._broker.fetch(self._stream, _GROUP, self._name, 1, self._fetched)

    def _fetched(self, receipts: list[bytes], data: bytes) -> None:
        if receipts:
            self._tally.deliver(data)
            self._broker.ack(self._stream, _GROUP, receipts, self.fetch)
        else:
            self.fetch()


async def paced_work(job: PacedWork) -> Result:
    tally = _Tally()
    kind = BROKERS[job.broker]
    brokers = await connect(kind, job.port, job.writers + job.consumers, tally.fail)
    await _create(brokers[0], job, tally)
    writers = [_Writer(broker, job, tally) for broker in brokers[: job.writers]]
    for number, broker in enumerate(brokers[job.writers :]):
        _Member(broker, number, job, tally).fetch()
    for number, writer in enumerate(writers):
        writer.start(number / job.rate)
    result = await _measure(job, writers, tally)
    for broker in brokers:
        broker.close()
    return result | _figures(tally, job)


async def _create(broker: Broker, job: PacedWork, tally: _Tally) -> None:
    created: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    broker.create_stream(
        job.stream,
        lambda: broker.create_group(job.stream, _GROUP, lambda: created.set_result(None)),
    )
    await asyncio.wait([created, tally.finished], return_when=asyncio.FIRST_COMPLETED)
    if tally.finished.done():
        tally.finished.result()


async def _measure(job: PacedWork, writers: list[_Writer], tally: _Tally) -> Result:
    await asyncio.wait([tally.finished], timeout=job.warmup_seconds)
    window = Window(job.server_pid)
    window.start()
    tally.lags = array("d")
    tally.from_ns = time.monotonic_ns()
    tally.until_ns = tally.from_ns + int(job.seconds * 1e9)
    await asyncio.wait([tally.finished], timeout=job.seconds)
    result = window.stop()
    for writer in writers:
        writer.stop()
    await tally.drain(job.drain_seconds)
    return result


def _figures(tally: _Tally, job: PacedWork) -> Result:
    delivered = len(tally.latencies_ns)
    # What never came has waited at least the whole drain; see the live scenarios.
    missing = max(0, tally.written - delivered)
    ordered = sorted([*tally.latencies_ns, *([int(job.drain_seconds * 1e9)] * missing)])
    return {
        "offered_per_second": tally.written / job.seconds,
        "delivered_percent": 100 * delivered / tally.written if tally.written else 0.0,
        "generator_lag_p99_ms": 1e3 * percentile(sorted(tally.lags), 99),
        "p50_ms": percentile(ordered, 50) / 1e6,
        "p99_ms": percentile(ordered, 99) / 1e6,
    }
