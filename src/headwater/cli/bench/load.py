"""The load that `bench` puts on a server: appends over many connections, followed or not."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from array import array
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from headwater.cli.bench.generator import Pace, Sender, Tally, percentile
from headwater.cli.records import LatencyRecord
from headwater.client import AsyncHeadwater, AsyncStream, HeadwaterError, StreamNotFound

MESSAGE_BYTES_MIN: Final = 64
# If the benchmark is killed, its streams expire by themselves.
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


class Outcome(Tally):
    """The outcome of a run."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.seconds = 0.0
        self.deliveries_ns = array("q")
        self.first_error: HeadwaterError | None = None


class _Probe(msgspec.Struct):
    """The relevant part of a message: when it was due."""

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
    writing = _Run(streams, load, report)
    followers = _Followers(streams, writing.outcome) if load.follow else None
    if followers is not None:
        await followers.start()
    try:
        await writing.go()
        if followers is not None:
            await followers.drain()
    finally:
        if followers is not None:
            await followers.stop()
    return writing.outcome


class _Writer(Sender):
    """Appends through the client; `over` is done when there is nothing left to append."""

    def __init__(self, run: _Run, pace: Pace | None) -> None:
        super().__init__(run.outcome, pace)
        self._run = run
        self.task: asyncio.Task[None] | None = None
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def send(self, due_ns: int) -> None:
        self.task = asyncio.create_task(self._append(due_ns))

    def ended(self) -> None:
        self.over.set_result(None)

    async def _append(self, due_ns: int) -> None:
        try:
            failed = not await self._run.append(due_ns)
        except Exception as error:
            self.over.set_exception(error)
        else:
            self.answered(failed=failed)
            self._run.report(len(self.tally.latencies_ns))


class _Run:
    """Writers, one for each connection, that take the streams in turn."""

    def __init__(self, streams: list[AsyncStream], load: Load, report: Report) -> None:
        self._streams = itertools.cycle(streams)
        self._load = load
        self.outcome = Outcome(load.count)
        self.report = report

    async def append(self, due_ns: int) -> bool:
        """Append one message; returns whether it was stored."""
        try:
            await next(self._streams).append(message(due_ns, self._load.message_bytes))
        except HeadwaterError as error:
            self.outcome.first_error = self.outcome.first_error or error
            if self.outcome.errors + 1 >= _ERRORS_MAX:
                self.outcome.stop()
            return False
        return True

    async def go(self) -> None:
        load, outcome = self._load, self.outcome
        begun_ns = time.perf_counter_ns()
        outcome.until_ns = begun_ns + int(load.seconds * 1e9)
        pace = Pace(load.rate) if load.rate else None
        writers = [_Writer(self, pace) for _ in range(load.connections)]
        for writer in writers:
            writer.send_next()
        try:
            everyone = [writer.over for writer in writers]
            done, late = await asyncio.wait(everyone, timeout=load.seconds + _GRACE_S)
            outcome.errors += len(late)
        finally:
            outcome.stop()
            tasks = [writer.task for writer in writers if writer.task]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        outcome.seconds = (time.perf_counter_ns() - begun_ns) / 1e9
        for over in done:
            over.result()


class _Followers:
    """One reader per stream over Server-Sent Events, measuring the age of each message."""

    def __init__(self, streams: list[AsyncStream], outcome: Outcome) -> None:
        self._streams = streams
        self._outcome = outcome
        self._tasks: list[asyncio.Task[None]] = []
        self._warm = asyncio.Semaphore(0)
        self._arrived = asyncio.Event()
        self._failure: HeadwaterError | None = None

    async def start(self) -> None:
        """Wait until a first message has reached every reader, so that all are connected."""
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
        """Wait a little for messages still on their way."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                while len(self._outcome.deliveries_ns) < len(self._outcome.latencies_ns):
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
                        self._outcome.deliveries_ns.append(now_ns - probe.at)
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


async def _delete(stream: AsyncStream) -> None:
    # Not all may have been created.
    with suppress(StreamNotFound):
        await stream.delete()


async def _for_all(
    streams: list[AsyncStream], action: Callable[[AsyncStream], Awaitable[object]]
) -> None:
    """Apply an action to every stream, several at a time; the first failure ends it."""
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
