"""The load that `bench` puts on a server: appends over many connections, followed or not.

Each connection sends its next append when the last one is answered. With a rate, appends are due
at fixed times instead, and their latency counts from then: a server that falls behind cannot hide
it by making the client wait.

It goes through the client, so that it works with any server, with TLS and with credentials. The
project's own benchmarks speak plain sockets, to keep their own cost out of the figures; when
something is due, and what a percentile is, they take from here.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from array import array
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headwater.cli.records import LatencyRecord
from headwater.client import AsyncHeadwater, AsyncStream, HeadwaterError, StreamNotFound

MESSAGE_BYTES_MIN: Final = 64
# Should the benchmark be killed, its streams go away by themselves.
STREAM_TTL_S: Final = 3_600

_WARM_UP_S: Final = 10.0
_GRACE_S: Final = 5.0
_ERRORS_MAX: Final = 100
_AT_A_TIME: Final = 32


@dataclass(frozen=True, slots=True)
class Load:
    """What to do, and when to stop: at the count or after the time, whichever comes first."""

    connections: int
    streams: int
    message_bytes: int
    count: int
    seconds: float
    rate: float | None
    follow: bool
    prefix: str
    keep: bool


@dataclass(slots=True)
class Outcome:
    """What came of it; latencies in nanoseconds."""

    seconds: float = 0.0
    appends: array[int] = field(default_factory=lambda: array("q"))
    deliveries: array[int] = field(default_factory=lambda: array("q"))
    errors: int = 0
    first_error: HeadwaterError | None = None

    def failed(self, error: HeadwaterError) -> None:
        self.errors += 1
        self.first_error = self.first_error or error


class _Probe(msgspec.Struct):
    """The part of a message that is of interest: when it was due."""

    at: int


Report = Callable[[int], None]


async def run(client: AsyncHeadwater, load: Load, report: Report) -> Outcome:
    """Create the streams, write to them, and delete them again."""
    name = f"{load.prefix}/{uuid.uuid4().hex[:8]}"
    streams = [
        client.stream(f"{name}/{number}", content_type="application/json")
        for number in range(load.streams)
    ]
    try:
        await _for_all(streams, lambda stream: stream.create(ttl_s=STREAM_TTL_S))
        return await _write(streams, load, report)
    finally:
        if not load.keep:
            with suppress(HeadwaterError):
                await _for_all(streams, _delete)


async def _write(streams: list[AsyncStream], load: Load, report: Report) -> Outcome:
    outcome = Outcome()
    followers = _Followers(streams, outcome) if load.follow else None
    if followers is not None:
        await followers.start()
    try:
        await _Writers(streams, load, outcome, report).run()
        if followers is not None:
            await followers.drain()
    finally:
        if followers is not None:
            await followers.stop()
    return outcome


class _Writers:
    """One task per connection; together they send the appends in order of their numbers."""

    def __init__(
        self, streams: list[AsyncStream], load: Load, outcome: Outcome, report: Report
    ) -> None:
        self._streams = streams
        self._load = load
        self._outcome = outcome
        self._report = report
        self._next = 0
        self._pace = Pace(load.rate) if load.rate else None
        self._deadline_ns = 0

    async def run(self) -> None:
        begun_ns = time.perf_counter_ns()
        self._deadline_ns = begun_ns + int(self._load.seconds * 1e9)
        tasks = {asyncio.create_task(self._work()) for _ in range(self._load.connections)}
        try:
            done, late = await asyncio.wait(tasks, timeout=self._load.seconds + _GRACE_S)
            self._outcome.errors += len(late)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._outcome.seconds = (time.perf_counter_ns() - begun_ns) / 1e9
        for task in done:
            task.result()

    async def _work(self) -> None:
        outcome, load = self._outcome, self._load
        while self._next < load.count and outcome.errors < _ERRORS_MAX:
            number, self._next = self._next, self._next + 1
            due_ns = await self._wait_until_due()
            if due_ns >= self._deadline_ns:
                return
            stream = self._streams[number % len(self._streams)]
            try:
                await stream.append(message(due_ns, load.message_bytes))
            except HeadwaterError as error:
                outcome.failed(error)
            else:
                outcome.appends.append(time.perf_counter_ns() - due_ns)
            self._report(len(outcome.appends))

    async def _wait_until_due(self) -> int:
        if self._pace is None:
            return time.perf_counter_ns()
        due_ns = self._pace.take()
        if due_ns < self._deadline_ns:
            await asyncio.sleep(max(0.0, -late_s(due_ns)))
        return due_ns


class Pace:
    """The times at which things are due at a fixed rate, whatever becomes of those before."""

    def __init__(self, per_second: float, delay_s: float = 0.0) -> None:
        self._first_ns = time.perf_counter_ns() + int(delay_s * 1e9)
        self._interval_ns = 1e9 / per_second
        self._taken = 0

    def take(self) -> int:
        due_ns = self._first_ns + int(self._taken * self._interval_ns)
        self._taken += 1
        return due_ns


def late_s(due_ns: int) -> float:
    """How long ago that was due; negative while it is not."""
    return (time.perf_counter_ns() - due_ns) / 1e9


class _Followers:
    """One reader per stream over server-sent events, timing how old each message is."""

    def __init__(self, streams: list[AsyncStream], outcome: Outcome) -> None:
        self._streams = streams
        self._outcome = outcome
        self._tasks: list[asyncio.Task[None]] = []
        self._warm = asyncio.Semaphore(0)
        self._arrived = asyncio.Event()
        self._failure: HeadwaterError | None = None

    async def start(self) -> None:
        """Wait until a first message has reached everyone, so that all are connected."""
        self._tasks = [asyncio.create_task(self._follow(stream)) for stream in self._streams]
        first = message(0, MESSAGE_BYTES_MIN)
        await _for_all(self._streams, lambda stream: stream.append(first))
        try:
            async with asyncio.timeout(_WARM_UP_S):
                for _ in self._streams:
                    await self._warm.acquire()
            if self._failure is not None:
                raise self._failure
        except (TimeoutError, HeadwaterError):
            await self.stop()
            raise

    async def drain(self) -> None:
        """Wait a little for what is still on its way."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                while len(self._outcome.deliveries) < len(self._outcome.appends):
                    self._arrived.clear()
                    await self._arrived.wait()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, stream: AsyncStream) -> None:
        try:
            await self._receive(stream)
        except HeadwaterError as error:
            self._failure = error
            for _ in self._streams:
                self._warm.release()

    async def _receive(self, stream: AsyncStream) -> None:
        # From the start, not from now on: the first message may come before the first request.
        async with stream.follow(live="sse") as reader:
            async for batch in reader:
                now_ns = time.perf_counter_ns()
                for probe in batch.messages(_Probe) if batch else []:
                    if probe.at:
                        self._outcome.deliveries.append(now_ns - probe.at)
                    else:
                        self._warm.release()
                self._arrived.set()


def message(at: int, length: int) -> bytes:
    """A JSON message of that many bytes.

    >>> len(message(123_456_789, 200))
    200
    """
    head, tail = b'{"at":%d,"pad":"' % at, b'"}'
    return head + b"x" * (length - len(head) - len(tail)) + tail


def latency(values_ns: array[int], seconds: float) -> LatencyRecord:
    """The usual figures of a set of latencies."""
    ordered = sorted(values_ns)

    def at_most_ms(percent: float) -> float:
        return round(percentile(ordered, percent) / 1e6, 3)

    return LatencyRecord(
        count=len(ordered),
        per_s=round(len(ordered) / seconds, 1) if seconds else 0.0,
        p50_ms=at_most_ms(50),
        p90_ms=at_most_ms(90),
        p99_ms=at_most_ms(99),
        max_ms=at_most_ms(100),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of values that are sorted already; 0 if there are none.

    >>> percentile([1, 2, 3, 4], 50)
    2
    """
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)] if ordered else 0.0


async def _delete(stream: AsyncStream) -> None:
    # Not all may have been created.
    with suppress(StreamNotFound):
        await stream.delete()


async def _for_all(
    streams: list[AsyncStream], action: Callable[[AsyncStream], Awaitable[object]]
) -> None:
    """Do it to every stream, several at a time; the first failure ends it."""
    limit = asyncio.Semaphore(_AT_A_TIME)

    async def act(stream: AsyncStream) -> None:
        async with limit:
            await action(stream)

    try:
        async with asyncio.TaskGroup() as tasks:
            for stream in streams:
                tasks.create_task(act(stream))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
