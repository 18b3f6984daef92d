"""Shorthands for what tests do with a log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from headwater.core.decisions import Append, Create
from headwater.core.errors import StreamError
from headwater.core.lineage import ForkRequest
from headwater.core.offsets import Anchor, Offset, parse_offset
from headwater.core.producers import ProducerStamp
from headwater.core.stream import Appended
from headwater.service.entries import Event
from headwater.service.log import Log
from tests.support.faulty_engine import FaultyEngine

R = TypeVar("R")
BYTES = "application/octet-stream"


class ManualClock:
    """A clock that only moves when a test says so."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def data(
    body: bytes,
    producer: tuple[str, int, int] | None = None,
    *,
    close: bool = False,
    stream_seq: str | None = None,
) -> Append:
    stamp = ProducerStamp(*producer) if producer else None
    return Append(body, BYTES, close, stamp, stream_seq)


def fork(path: str, source: str, offset: str | None = None, sub_offset: int = 0) -> Create:
    return Create(path, fork=ForkRequest(source, offset, sub_offset))


async def read_all(log: Log, path: str, offset: str = "-1") -> bytes:
    """Everything from an offset on, chunk by chunk, as a catch-up reader gets it."""
    content = b""
    position: Anchor | Offset = parse_offset(offset)
    while True:
        chunk = await log.read(path, position)
        content += b"".join(chunk.bodies)
        if chunk.up_to_date:
            return content
        assert chunk.bodies, "a chunk that is not the last holds something"
        position = parse_offset(chunk.next_offset)


def begin(work: Awaitable[R]) -> asyncio.Future[R]:
    """Start a request without waiting for its answer."""
    return asyncio.ensure_future(work)


async def turns(count: int = 10) -> None:
    """Let everything run that needs no thread; see `warm`."""
    for _ in range(count):
        await asyncio.sleep(0)


async def warm(log: Log, *paths: str) -> None:
    """Load streams, or the fact that there are none, so that requests are decided at once."""
    for path in paths:
        await log.entry(path)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that a thread or a timer does."""
    async with asyncio.timeout(120):
        while not condition():
            await turns(1)


async def outcome(work: Awaitable[R]) -> R | type[StreamError]:
    """The result of a request, or the error that refused it."""
    try:
        return await work
    except StreamError as error:
        return type(error)


class Ear:
    """A listener that records its notifications."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self._news = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.heard.append(event)
        self._news.set()

    async def next(self) -> Event:
        while not self.heard:
            self._news.clear()
            await self._news.wait()
        return self.heard.pop(0)


async def listen(log: Log, path: str) -> Ear:
    ear = Ear()
    (await log.entry(path)).listeners.add(ear)
    return ear


def bodies_of(mutations: list[Any]) -> list[bytes]:
    return [mutation.body for mutation in mutations if isinstance(mutation, Appended)]


async def hold_a_commit(log: Log, engine: FaultyEngine, path: str = "held") -> None:
    """Shut the gate with one commit at it, so that everything from now on queues behind it."""
    with suppress(StreamError):
        await log.create(Create(path))
    engine.commit_gate.shut()
    held = begin(log.append(path, data(b"held")))
    held.add_done_callback(lambda done: done.cancelled() or done.exception())
    await engine.commit_gate.arrival()
