"""Many clients at once, few streams in memory: everything stays correct.

Each client has streams of its own and compares every answer with its own naive model. All of them
share the writer, the threads and a registry that is far too small for their streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import StreamError
from headwater.core.expiry import FOREVER
from headwater.core.limits import Limits
from headwater.core.lineage import ForkRequest
from headwater.core.producers import ProducerStamp
from headwater.service.log import Log
from headwater.store.engine import Engine
from headwater.store.memory.engine import MemoryEngine
from headwater.store.sqlite.engine import SqliteEngine
from tests.support import seeds
from tests.support.logs import BYTES, ManualClock, outcome, read_all
from tests.support.models import PlainBody, PlainRequest, PlainStream, PlainStreams

CRAMPED = Limits(
    streams_in_memory_max=16,
    hot_bytes_per_stream_max=8,
    chunk_bytes_max=5,
    producer_wait_ms=0,
    producers_preloaded_max=1,
)


class Client:
    """Does random things to its own streams, and knows what should come of each."""

    def __init__(self, log: Log, name: str, random: Random, now_ms: int) -> None:
        self.log = log
        self.name = name
        self.random = random
        self.now_ms = now_ms
        self.model = PlainStreams()

    async def live(self, steps: int) -> None:
        actions = [self.create, self.fork, self.append, self.append, self.append, self.delete]
        for _ in range(steps):
            await self.random.choice(actions)()
            await self.check(self.path())
        for path in [*self.model.streams]:
            await self.check(path)

    def path(self) -> str:
        return f"{self.name}/{self.random.randrange(4)}"

    def body(self) -> PlainBody:
        return PlainBody(self.random.randbytes(self.random.randint(1, 6)), None)

    def plain(self, path: str) -> PlainStream:
        return PlainStream(path, False, None, None, self.now_ms)

    async def create(self) -> None:
        path, body = self.path(), self.body()
        wanted = self.plain(path)
        expected = self.model.create(wanted, body, self.now_ms)
        await self.note(
            path, await outcome(self.log.create(Create(path, BYTES, body.sent))), expected
        )

    async def fork(self) -> None:
        path, source = self.path(), self.path()
        if path in self.model.streams:
            return
        there = self.model.streams.get(source)
        index = self.random.randint(0, len(there.appends)) if there else 0
        sub_offset = self.random.randint(0, 2)
        tokens = ["-1", *(there.tokens if there else [])]
        asked = ForkRequest(source, tokens[index], sub_offset)
        reply = await outcome(self.log.create(Create(path, lifetime=FOREVER, fork=asked)))
        point = self.model.fork_point(source, index, sub_offset, self.now_ms)
        if isinstance(point, type):
            assert reply is point
            return
        wanted = self.plain(path)
        wanted.source, wanted.appends, wanted.messages = point
        wanted.tokens = wanted.source.tokens[: len(wanted.appends) - (sub_offset > 0)]
        wanted.asked_for = asked
        await self.note(path, reply, self.model.create(wanted, PlainBody(b"", None), self.now_ms))

    async def append(self) -> None:
        path, body = self.path(), self.body()
        close = self.random.random() < 0.05
        producer = None
        if self.random.random() < 0.5:
            producer = (f"p{self.random.randrange(3)}", 0, self.random.randrange(3))
        request = PlainRequest(body, BYTES, close, producer)
        expected = self.model.append(path, request, self.now_ms)
        stamp = ProducerStamp(*producer) if producer else None
        reply = await outcome(self.log.append(path, Append(body.sent, BYTES, close, stamp)))
        await self.note(path, reply, expected)

    async def delete(self) -> None:
        path = self.path()
        assert await outcome(self.log.delete(path)) is self.model.delete(path, self.now_ms)

    async def note(self, path: str, reply: object, expected: object) -> None:
        if isinstance(expected, type) or isinstance(reply, type):
            assert reply is expected
            return
        stream = self.model.streams[path]
        token = getattr(reply, "next_offset")  # noqa: B009
        if len(stream.tokens) < len(stream.appends):
            stream.tokens.append(token)
        assert stream.tokens[-1:] == ([token] if stream.appends else [])

    async def check(self, path: str) -> None:
        """Read the stream from some place on."""
        stream = self.model.find(path, self.now_ms)
        if isinstance(stream, type):
            assert await outcome(read_all(self.log, path)) is stream
            return
        start = self.random.randint(0, len(stream.tokens))
        offset = "-1" if start == 0 else stream.tokens[start - 1]
        assert await read_all(self.log, path, offset) == b"".join(stream.appends[start:])


@pytest.mark.parametrize("seed", seeds.several(3))
@pytest.mark.parametrize(
    "make_engine",
    [
        pytest.param(lambda directory: MemoryEngine(), id="memory"),
        pytest.param(lambda directory: SqliteEngine(directory, 1), id="sqlite"),
    ],
)
async def test_streams_that_come_and_go_in_memory_stay_correct(
    tmp_path: Path, make_engine: Callable[[Path], Engine], seed: int
) -> None:
    clock = ManualClock()
    log = await Log.start(make_engine(tmp_path / "data"), CRAMPED, clock=clock)
    try:
        clients = [
            Client(log, f"c{number}", Random(1_000 * seed + number), clock.now_ms)
            for number in range(20)
        ]
        await asyncio.gather(*(client.live(40) for client in clients))
        there = {path for client in clients for path in client.model.streams}
        assert len(there) > CRAMPED.streams_in_memory_max
        assert len(log._registry) < len(there), "some were dropped on the way"
        problems = [line for line in log.engine.verify() if not isinstance(line, str)]
        assert problems == []
    finally:
        await log.stop()


async def test_a_registry_drops_the_idle_and_keeps_the_busy() -> None:
    log = await Log.start(MemoryEngine(), CRAMPED, clock=ManualClock())
    try:
        await log.create(Create("watched"))
        watched = await log.entry("watched")
        watched.listeners.add(lambda event: None)
        for number in range(100):
            await log.create(Create(f"s/{number}"))
        assert len(log._registry) <= CRAMPED.streams_in_memory_max + 1
        assert log.ready("watched") is watched
        assert log.ready("s/0") is None
        assert not isinstance(await outcome(read_all(log, "s/0")), StreamError)
    finally:
        await log.stop()
