"""The simulation: many clients, one log, an engine that fails, and a ledger that knows better.

A run is determined by its seed alone. Clients create, append (with and without producers, several
requests at once and out of order), close, fork, delete and read at random, hang up now and then,
and are cut off when the server crashes and comes back. Commits fail before or after they are
stored, look-ups fail for a while, queues run full, streams are dropped from memory and expire.

Checked at every answer:

- what is acknowledged is committed, and what is refused is written nowhere;
- a read gives exactly committed bytes, includes everything that was acknowledged before it began,
  and reports the end only where it is;
- what is not found was really not there at some moment of the request;
- a producer's requests are stored once each and in order;
- a fork begins with the bytes of its source up to the point that was asked for.

Others work in groups (`workers.py`) and on relaxed streams (`relaxed.py`), each with checks of
their own.

Checked of every commit: see `ledger.py`. Checked at the end of every phase: nothing waits any more,
followers have seen everything, and what the log has in memory is what the engine holds.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, NamedTuple

from headwater.core.decisions import AppendReply, Create, CreateReply
from headwater.core.errors import (
    StorageUnavailable,
    StreamError,
    StreamGone,
    StreamNotFound,
    TooBusy,
)
from headwater.core.expiry import FOREVER, Lifetime, touch_interval_ms
from headwater.core.lineage import ForkRequest
from headwater.core.offsets import Anchor, Offset, parse_offset
from headwater.service.chunks import Chunk
from headwater.service.entries import Entry, Event
from tests.simulation.ledger import Account
from tests.simulation.relaxed import finish_relaxed, relaxed_team
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.workers import Worker, finish, team
from tests.simulation.world import LIMITS, PATHS, NoAnswer, World
from tests.support.logs import data

_TRACE_LINES: Final = 30


@dataclass(frozen=True)
class Scale:
    """How much happens in a run."""

    clients: int = 16
    steps: int = 25
    phases: int = 3


@dataclass
class Outcome:
    trace: list[str]
    counts: Counter[str]
    transactions: int


UNKNOWN = (StorageUnavailable, NoAnswer)
"""What leaves open whether it happened."""


class Known(NamedTuple):
    end: int
    closed: bool


class Client:
    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = world.random
        self.bodies = 0
        self.epochs: Counter[str] = Counter()
        self.seqs: Counter[str] = Counter()

    async def live(self, steps: int) -> None:
        actions = [
            *[self.append] * 4,
            *[self.burst] * 2,
            *[self.read] * 4,
            *[self.create] * 3,
            *[self.fork] * 5,
            *[self.delete] * 3,
            self.close,
        ]
        for step in range(steps):
            await asyncio.sleep(self.random.random() * 0.01)
            action = self.create if step < 2 else self.random.choice(actions)
            await action(self.path())
            if self.world.has_crashed:
                return

    def path(self) -> str:
        """Mostly one of a few, so that clients get in each other's way."""
        return self.random.choice(PATHS[:5] if self.random.random() < 0.6 else PATHS)

    def body(self) -> bytes:
        """Nobody else ever sends the same bytes."""
        self.bodies += 1
        return f"<{self.name}.{self.bodies}>".encode()

    async def attempt(self, what: str, work: Awaitable[Any]) -> Any:
        """The answer, or the error that came instead of it."""
        result: Any
        try:
            result = await self.world.ask(work)
        except (StreamError, NoAnswer) as error:
            result = error
        self.world.note(self.name, what, result)
        if self.world.engine.objection is not None:
            raise self.world.engine.objection
        kind = type(result).__name__ if isinstance(result, Exception) else "done"
        self.world.counts[f"{what.split()[0]} {kind}"] += 1
        return result

    # ── Writing ──────────────────────────────────────────────────────────────────────────────

    async def create(self, path: str) -> None:
        body, since = self.body(), self.world.ledger.transactions
        lifetime = Lifetime(ttl_s=1) if path.startswith("short") else FOREVER
        command = Create(path, body=body, lifetime=lifetime)
        result = await self.attempt(f"create {path}", self.world.log.create(command))
        self.check_create(path, result, body, since)

    async def fork(self, path: str) -> None:
        source, free = self.path(), [path for path in PATHS[:8] if self.world.ledger.is_free(path)]
        if free and self.random.random() < 0.7:
            path = self.random.choice(free)
        token = self.random.choice([None, "-1", *self.world.tokens[source][-5:]])
        sub_offset = self.random.choice([0, 0, 1, 3]) if token else 0
        known, since = self.known(source), self.world.ledger.transactions
        asked = ForkRequest(source, token, sub_offset)
        what = f"fork {path} from {source} at {token}+{sub_offset}"
        result = await self.attempt(what, self.world.log.create(Create(path, fork=asked)))
        for account in self.check_create(path, result, b"", since):
            config = account.config
            assert config.source_id is not None
            forked = self.world.ledger.accounts[config.source_id]
            assert forked.config.path == source
            if token is not None:
                start = parse_offset(token)
                position = start.position if isinstance(start, Offset) else 0
                assert config.lineage.base == forked.boundary(position) + sub_offset
            elif config.source_id in known:
                assert config.lineage.base >= known[config.source_id].end

    def check_create(self, path: str, result: object, body: bytes, since: int) -> list[Account]:
        """Returns the stream that was made, if it is clear which one it was."""
        if isinstance(result, CreateReply) and result.new:
            made = [a for a in self.world.ledger.by_path[path] if a.created_at > since]
            if body:
                made = [account for account in made if body in account.content]
            assert made, "acknowledged, but not committed"
            self.world.tokens[path].append(result.next_offset)
            if len(made) == 1:
                made[0].learn(made[0].config.lineage.base + len(body))
                return made
        elif isinstance(result, StreamError) and not isinstance(result, UNKNOWN):
            self.assert_nowhere(path, body)
        return []

    async def append(self, path: str) -> None:
        body = self.body()
        work = self.world.log.append(path, data(body))
        result = await self.attempt(f"append {path}", _as_coroutine(work))
        self.check_append(path, result, body)

    def check_append(self, path: str, result: object, body: bytes) -> None:
        if isinstance(result, AppendReply):
            holders = self.holders(path, body)
            assert len(holders) >= 1, "acknowledged, but not committed"
            end = parse_offset(result.next_offset)
            if not result.duplicate and isinstance(end, Offset):
                account = self.world.ledger.accounts[end.run]
                assert account.config.path == path
                assert account.content[: end.position].endswith(body)
                account.learn(end.position)
                self.world.tokens[path].append(result.next_offset)
        elif isinstance(result, StreamError) and not isinstance(result, UNKNOWN):
            self.assert_nowhere(path, body)

    async def burst(self, path: str) -> None:
        """Several requests of one producer at once, in any order, then again until all is well."""
        epoch, first = self.epochs[path], self.seqs[path]
        requests = [(first + n, self.body()) for n in range(self.random.randint(1, 4))]
        shuffled = self.random.sample(requests, len(requests))
        failed = await asyncio.gather(
            *(self.produce(path, epoch, seq, body) for seq, body in shuffled)
        )
        for _ in range(5):
            if not any(failed):
                self.seqs[path] = first + len(requests)
                return
            failed = [await self.produce(path, epoch, seq, body) for seq, body in requests]
            if self.world.has_crashed or not all(
                error is None or _passes(error) for error in failed
            ):
                break
        # Given up: what became of the last requests is open, so the next ones are another epoch's.
        self.epochs[path], self.seqs[path] = epoch + 1, 0

    async def produce(self, path: str, epoch: int, seq: int, body: bytes) -> Exception | None:
        work = self.world.log.append(path, data(body, (self.name, epoch, seq)))
        what = f"produce {path} {epoch}/{seq}"
        result = await self.attempt(what, _as_coroutine(work))
        if isinstance(result, AppendReply):
            self.check_append(path, result, body)
            return None
        assert isinstance(result, Exception)
        return result

    async def close(self, path: str) -> None:
        if self.random.random() < 0.5:
            return
        body = self.body()
        work = self.world.log.append(path, data(body, close=True))
        result = await self.attempt(f"close {path}", _as_coroutine(work))
        self.check_append(path, result, body)
        if isinstance(result, AppendReply):
            for account in self.holders(path, body):
                assert account.closed, "acknowledged as closed, but not committed"
                account.learn(len(account.content), closed=True)

    async def delete(self, path: str) -> None:
        since, known = self.world.ledger.transactions, self.known(path)
        result = await self.attempt(f"delete {path}", self.world.log.delete(path))
        if result is None:
            deleted = [a for a in self.world.ledger.by_path[path] if (a.gone_at or 0) > since]
            assert deleted, "acknowledged as deleted, but not committed"
            if len(deleted) == 1:
                deleted[0].known_gone = True
        elif isinstance(result, StreamNotFound | StreamGone):
            self.check_absence(path, known)

    # ── Reading ──────────────────────────────────────────────────────────────────────────────

    async def read(self, path: str) -> None:
        ledger, known = self.world.ledger, self.known(path)
        gone = [account for account in ledger.by_path.get(path, []) if account.known_gone]
        token = self.random.choice(["-1", "now", *self.world.tokens[path][-4:]])
        work = self.world.log.read(path, parse_offset(token))
        result = await self.attempt(f"read {path} at {token}", work)
        if isinstance(result, StreamNotFound | StreamGone):
            self.check_absence(path, known)
        if not isinstance(result, Chunk):
            return
        account = ledger.accounts[result.config.id]
        assert account.config.path == path
        assert account not in gone, "read from a stream that had been deleted"
        check_chunk(result, account)
        if result.up_to_date:
            before = known.get(result.config.id, Known(0, False))
            assert result.end >= before.end, "what was acknowledged before is missing"
            assert result.closed or not before.closed
        account.learn(result.end, closed=result.closed)

    # ── What the ledger says ─────────────────────────────────────────────────────────────────

    def present(self, path: str) -> list[Account]:
        return [a for a in self.world.ledger.by_path.get(path, []) if a.gone_at is None]

    def holders(self, path: str, body: bytes) -> list[Account]:
        """Streams that were ever at the path and hold the body."""
        return [a for a in self.world.ledger.by_path.get(path, []) if body in a.content]

    def assert_nowhere(self, path: str, body: bytes) -> None:
        assert not body or not self.holders(path, body), "refused, but written"

    def known(self, path: str) -> dict[int, Known]:
        """What everyone has to see at this moment."""
        return {
            account.config.id: Known(account.known_end, account.known_closed)
            for account in self.present(path)
            if account.known
        }

    def check_absence(self, path: str, known: dict[int, Known]) -> None:
        """Streams with a short life may have ended without a commit that says so."""
        if path.startswith("short"):
            return
        for stream_id in known:
            account = self.world.ledger.accounts[stream_id]
            assert account.gone_at is not None, "not found, but it was there all the time"


class Follower:
    """Reads one path to its end, again and again, whenever it is told that there is news."""

    def __init__(self, world: World, path: str) -> None:
        self.world = world
        self.path = path
        self.stream: int | None = None
        self.position = 0
        self._news = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self._news.set()

    async def follow(self) -> None:
        while True:
            with suppress(StreamError):
                entry = await self.world.log.entry(self.path)
                self.world.log.view(entry)
                entry.listeners.add(self)
                try:
                    await self._stay(entry)
                finally:
                    entry.listeners.discard(self)
            # There is no stream to follow; one may come.
            await asyncio.sleep(0.01)

    async def _stay(self, entry: Entry) -> None:
        """Until the stream goes, which raises, or becomes another one."""
        self._news.set()
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._catch_up(entry)
            except StorageUnavailable:
                await asyncio.sleep(0.001)
                self._news.set()

    async def _catch_up(self, entry: Entry) -> None:
        while True:
            config = self.world.log.view(entry).config
            if config.id != self.stream:
                self.stream, self.position = config.id, 0
            offset = config.lineage.offset_at(self.position)
            chunk = self.world.log.read_hot(entry, offset)
            if chunk is None:
                chunk = await self.world.log.read_cold(entry, offset)
            if chunk.config.id != self.stream:
                continue
            assert chunk.start == self.position
            check_chunk(chunk, self.world.ledger.accounts[chunk.config.id])
            self.position = chunk.end
            if chunk.up_to_date:
                return


def check_chunk(chunk: Chunk, account: Account) -> None:
    assert b"".join(chunk.bodies) == account.content[chunk.start : chunk.end], "wrong bytes"
    assert chunk.end <= len(account.content), "more than is committed"
    assert account.closed or not chunk.closed
    size = chunk.end - chunk.start
    assert size <= LIMITS.chunk_bytes_max or len(chunk.bodies) == 1
    if chunk.closed:
        assert chunk.end == len(account.content), "closed, but not at its end"


def _passes(error: Exception) -> bool:
    """Whether trying again may help."""
    return isinstance(error, StorageUnavailable | TooBusy | NoAnswer)


async def _as_coroutine(work: Awaitable[Any]) -> Any:
    return await work


# ── A run ────────────────────────────────────────────────────────────────────────────────────


async def _trouble(world: World) -> None:
    """Now and then nothing can be looked up for a moment."""
    while True:
        await asyncio.sleep(world.random.random() * 0.2)
        world.engine.fail_reads = StorageUnavailable("for a moment")
        await asyncio.sleep(world.random.random() * 0.004)
        world.engine.fail_reads = None


async def _phase(
    world: World, clients: list[Client], workers: list[Worker], steps: int, *, crash: bool
) -> None:
    await world.start()
    world.engine.calm = False
    followers = [Follower(world, path) for path in PATHS[::3]]
    background = [asyncio.ensure_future(follower.follow()) for follower in followers]
    trouble = asyncio.ensure_future(_trouble(world))
    everyone: list[Client | Worker] = [*clients, *workers]
    lives = [asyncio.ensure_future(one.live(steps)) for one in everyone]
    if crash:
        await asyncio.sleep(world.random.random() * 0.15)
        world.note("", "crash", "")
        world.crash()
    await asyncio.gather(*lives)
    trouble.cancel()
    world.engine.fail_reads, world.engine.calm = None, True
    if not crash:
        await finish(world, workers)
        await finish_relaxed(workers)
        await _settle(world, followers)
    for task in (*background, trouble):
        task.cancel()
    results = await asyncio.gather(*background, trouble, return_exceptions=True)
    failed = [r for r in results if isinstance(r, Exception)]
    assert not failed, failed
    world.groups.stop()
    if crash:
        # What waits for a thread that died with the process waits for ever.
        tasks = [one._task for one in world.log.tasks if one._task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    else:
        await world.log.stop()


async def _settle(world: World, followers: list[Follower]) -> None:
    """Everything comes to rest, and then memory and engine agree."""
    for path in PATHS:
        with suppress(StreamError):
            await world.log.read(path, Anchor.TAIL)
    await asyncio.sleep(0.5)
    assert world.log.writer.queued_bytes == 0
    for follower in followers:
        account = next(
            (a for a in world.ledger.by_path.get(follower.path, []) if not a.gone_at), None
        )
        if account is not None and follower.path.startswith("s/"):
            assert follower.stream == account.config.id
            assert follower.position == len(account.content), "a follower was not told"
    for entry in world.log._registry._entries.values():
        if entry.loaded:
            _compare(world, entry)


def _compare(world: World, entry: Entry) -> None:
    stored = world.engine.inner.streams.load(entry.path)
    state = entry.state if entry.state is not None and not entry.state.deleted else None
    assert entry.pending is None
    assert (state is None) == (stored is None), entry.path
    assert (entry.view is None) == (stored is None), entry.path
    if state is None or stored is None or entry.view is None:
        return
    assert state.stored_touch_ms == stored.state.stored_touch_ms
    lag_ms = touch_interval_ms(state.config.lifetime)
    assert replace(state, touched_at_ms=state.stored_touch_ms + lag_ms) == stored.state
    view = entry.view
    assert (view.tail, view.messages, view.closed, view.soft_deleted) == (
        state.tail,
        state.messages,
        state.closed,
        state.soft_deleted,
    )


def _check_producers(world: World) -> None:
    """Every body is in a stream at most once, whatever was sent how often."""
    for account in world.ledger.accounts.values():
        bodies = account.content.split(b">")[:-1]
        whole = [body for body in bodies if body.startswith(b"<") and body.count(b"<") == 1]
        assert len(whole) == len(set(whole)), f"twice in {account.config.path}"


def simulate(seed: int, scale: Scale | None = None) -> Outcome:
    """One run; raises when something is wrong."""
    scale = scale or Scale()
    random = Random(seed)

    async def run() -> Outcome:
        world = World(random)
        clients = [Client(world, f"c{number}") for number in range(scale.clients)]
        workers = [*team(world), *relaxed_team(world)]
        try:
            for phase in range(scale.phases):
                last = phase == scale.phases - 1
                crash = not last and random.random() < 0.6
                await _phase(world, clients, workers, scale.steps, crash=crash)
            _check_producers(world)
        except Exception as error:
            error.add_note("\n".join(["The last that happened:", *world.trace[-_TRACE_LINES:]]))
            raise
        return Outcome(world.trace, world.counts, world.ledger.transactions)

    with _no_collector(), asyncio.Runner(loop_factory=lambda: VirtualLoop(random)) as runner:
        return runner.run(run())


@contextmanager
def _no_collector() -> Iterator[None]:
    """A crash leaves tasks behind, which still clean up when the garbage collector finds them. When
    it does depends on everything that the process did before.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
