"""Paced writers and live readers: the latency scenario and the editors."""

import asyncio
import random
import sys
import time
from array import array
from collections import deque
from contextlib import suppress

from benchmarks.load.http import Connection, connect, create_stream, stream_path
from benchmarks.load.jobs import LiveTraffic
from benchmarks.load.measure import Result, Window
from benchmarks.load.messages import JsonMessages, Messages, Updates
from benchmarks.load.sse import (
    AT_FROM,
    AT_UNTIL,
    BY_FROM,
    BY_UNTIL,
    Mark,
    SseReader,
    connect_all,
)
from headwater.cli.load import percentile

_NOBODY = b"------"
_PHASE_SEED = 20_241_009  # every run spreads its writers over time in the same way


class _Tally:
    """Counts what was written and what arrived; only messages written in the window count."""

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self.from_ns = self.until_ns = 0
        self.written = 0
        self.acknowledged = 0
        self.errors = 0
        self.latencies_ns = array("q")
        self.lags = array("d")
        self._expected = sys.maxsize
        self._complete = asyncio.Event()

    def open_window(self, seconds: float) -> None:
        self.from_ns = time.monotonic_ns()
        self.until_ns = self.from_ns + int(seconds * 1e9)

    def count_written(self, at_ns: int) -> None:
        self.written += self.from_ns <= at_ns < self.until_ns

    def count_answer(self, status: int) -> None:
        if status not in {200, 204}:
            self.errors += 1
        elif self.from_ns <= time.monotonic_ns() < self.until_ns:
            self.acknowledged += 1

    def deliver(self, data: bytes, mark: int, now_ns: int, reader: bytes) -> None:
        start, size, decode = self._mark
        while 0 <= mark <= len(data) - size:
            text = decode(data[mark : mark + size])
            at_ns = int(text[AT_FROM:AT_UNTIL])
            author = text[BY_FROM:BY_UNTIL]
            if author != reader and self.from_ns <= at_ns < self.until_ns:
                self.latencies_ns.append(now_ns - at_ns)
            mark = data.find(start, mark + size)
        self._check_complete()

    async def drain(self, expected: int, seconds: float) -> None:
        """Wait until everything expected has arrived, or give up."""
        self._expected = expected
        self._check_complete()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._complete.wait(), seconds)

    def _check_complete(self) -> None:
        if len(self.latencies_ns) >= self._expected:
            self._complete.set()


class _PacedWriter:
    """Writes at a fixed pace, whatever the server does.

    A message counts from the moment its timer fires. When the one before is not answered yet it
    waits in line, as keystrokes do: a slow answer delays what follows instead of thinning it out.
    """

    def __init__(
        self, connection: Connection, path: str, messages: Messages, job: LiveTraffic, tally: _Tally
    ) -> None:
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: {_kind(job).content_type}\r\n"
            f"Content-Length: {job.message_bytes}\r\n\r\n"
        ).encode()
        self._messages = messages
        self._port = job.port
        self._connection = connection
        self._tally = tally
        self._interval = 1 / job.rate
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
        self._tally.count_written(now_ns)
        self._tally.lags.append(self._loop.time() - self._due)
        if self._in_flight:
            self._waiting.append(now_ns)
        else:
            self._send(now_ns)
        self._due += self._interval
        self._loop.call_at(self._due, self._write)

    def _send(self, at_ns: int) -> None:
        self._in_flight = True
        self._connection.send(self._head + self._messages.write(at_ns), self._answered)

    def _answered(self, status: int) -> None:
        self._tally.count_answer(status)
        if status:
            self._send_next()
        else:  # the connection is gone; what waits goes over a new one
            self._reconnecting = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        self._connection = await connect(self._port)
        self._send_next()

    def _send_next(self) -> None:
        self._in_flight = False
        if self._waiting:
            self._send(self._waiting.popleft())


async def live_traffic(job: LiveTraffic) -> Result:
    tally = _Tally(_kind(job).mark)
    readers, writers = await _set_up(job, tally)
    phase = random.Random(_PHASE_SEED)
    for writer in writers:
        writer.start(phase.random() / job.rate)
    await asyncio.sleep(job.warmup_seconds)
    window = Window(job.server_pid)
    tally.errors, tally.lags = 0, array("d")
    tally.open_window(job.seconds)
    window.start()
    await asyncio.sleep(job.seconds)
    result = window.stop()
    for writer in writers:
        writer.stop()
    expected = tally.written * (job.readers - job.writers_read)
    await tally.drain(expected, job.drain_seconds)
    for reader in readers:
        reader.close()
    reconnects = sum(reader.reconnects for reader in readers)
    return result | _figures(tally, expected, job) | {"reconnects": reconnects}


async def _set_up(job: LiveTraffic, tally: _Tally) -> tuple[list[SseReader], list[_PacedWriter]]:
    kind = _kind(job)
    paths = [_path(job, document) for document in range(job.documents)]
    creator = await connect(job.port)
    for path in paths:
        await create_stream(creator, path, kind.content_type)
    creator.close()
    readers = [
        SseReader(job.port, path, _reader_name(job, document, index), tally.deliver, kind.mark)
        for document, path in enumerate(paths)
        for index in range(job.readers)
    ]
    await connect_all(readers)
    # Writers connect last: a server may close a connection that stays silent for some seconds.
    writers = [
        _PacedWriter(
            await connect(job.port),
            path,
            kind(_author(job, document, index), job.message_bytes),
            job,
            tally,
        )
        for document, path in enumerate(paths)
        for index in range(job.writers)
    ]
    return readers, writers


def _kind(job: LiveTraffic) -> type[JsonMessages | Updates]:
    return Updates if job.yjs else JsonMessages


def _path(job: LiveTraffic, document: int) -> str:
    name = f"{job.prefix}{document}"
    return f"/v1/yjs/benchmark/docs/{name}" if job.yjs else stream_path(name)


def _reader_name(job: LiveTraffic, document: int, index: int) -> bytes:
    is_writer = job.writers_read and index < job.writers
    return _author(job, document, index) if is_writer else _NOBODY


def _author(job: LiveTraffic, document: int, index: int) -> bytes:
    return b"%06d" % (document * job.writers + index)


def _figures(tally: _Tally, expected: int, job: LiveTraffic) -> Result:
    delivered = len(tally.latencies_ns)
    # What never came has waited at least the whole drain. Leaving it out would make a server that
    # drowns look fast, so it counts with that time, which is still too kind.
    missing = max(0, expected - delivered)
    ordered = sorted([*tally.latencies_ns, *([int(job.drain_seconds * 1e9)] * missing)])
    return {
        "offered_per_second": tally.written / job.seconds,
        "appends_per_second": tally.acknowledged / job.seconds,
        "errors": tally.errors,
        "deliveries": delivered,
        "delivered_percent": 100 * delivered / expected if expected else 0.0,
        # How late the generator itself was: a tail of this size is its own, not the server's.
        "generator_lag_p99_ms": 1e3 * percentile(sorted(tally.lags), 99),
        "p50_ms": percentile(ordered, 50) / 1e6,
        "p99_ms": percentile(ordered, 99) / 1e6,
    }
