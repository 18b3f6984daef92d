"""This node among the others, from the event loop's side.

The engine's membership looks at the cluster on its own thread. After every look, this module finds
what has changed: gained shards are announced to those that keep something per shard, shards beyond
this node's share are handed over, and requests that wait for an owner look again.

A hand-over loses nothing and shows nobody an error. Once it begins, nothing new is decided about
the shards: requests wait, as they do for an owner that is not known yet. What is in flight is
committed, followers of a stream are sent to reconnect, everything is dropped, and then the shards
are given to the new owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Final, TypeVar

import structlog

from headwater.core.cluster import ClusterSeen, NodeSeen
from headwater.core.errors import StreamError
from headwater.service.log import Log
from headwater.store.engine.membership import Membership

_THREADS: Final = 2
_LOOK_AGAIN_S: Final = 0.1
_GIVE_UP_AFTER_S: Final = 1.0

R = TypeVar("R")
Keeper = Callable[[Set[int]], Awaitable[None]]

log = structlog.get_logger()


class Node:
    def __init__(self, streams: Log, membership: Membership) -> None:
        self._streams = streams
        self._membership = membership
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="headwater-cluster")
        self._changed = asyncio.Event()
        self._shards: Set[int] = frozenset()
        self._moving: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeping: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Future[None] | None = None
        self._rest_until = 0.0
        self.on_gain: list[Keeper] = []
        """Called with shards that this node has gained."""
        self.on_release: list[Keeper] = []
        """Called with shards that are about to be given away; the hand-over waits for them."""
        self.on_look: list[Callable[[], None]] = []
        self.ask: Callable[[NodeSeen, int, int], Awaitable[bool]] | None = None
        """How to ask an owner to hand a shard over to a node."""
        self.watch = streams.watch("cluster")
        self.handed_over = 0

    # ── State ────────────────────────────────────────────────────────────────────────────────

    @property
    def id(self) -> int:
        return self._membership.node_id

    @property
    def seen(self) -> ClusterSeen:
        return self._membership.seen

    @property
    def shards(self) -> Set[int]:
        return self._membership.shards

    @property
    def lease_s(self) -> float:
        return self._membership.lease_s

    @property
    def takeovers(self) -> int:
        return self._membership.taken_over

    def home(self, name: str) -> int:
        return self._membership.home(name)

    def demand(self, shard: int) -> None:
        self._membership.demand(shard)

    def others(self) -> list[NodeSeen]:
        return [node for node in self.seen.nodes if node.id != self.id]

    # ── Looking ──────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._membership.on_look = self._on_look
        self._looked()

    def _on_look(self) -> None:
        # Without a loop the process is going down.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._looked)

    def _looked(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for listener in self.on_look:
            listener()
        gained, self._shards = self.shards - self._shards, self.shards
        if gained:
            for keeper in self.on_gain:
                self._spawn(keeper(gained), self._tasks)
        if self._moving is None and monotonic() >= self._rest_until and self._membership.excess():
            self._moving = self._loop.create_task(self._hand_over(self._membership.excess()))

    def _spawn(self, work: Awaitable[None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.ensure_future(self._watched(work))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _watched(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            self.watch.failed(error)

    async def settled(self) -> None:
        """Wait until everything kept per shard is loaded for the gained shards."""
        self._looked()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def refresh(self) -> None:
        """Look at the cluster now. Calls during a look wait for the next one."""
        while self._refreshing is not None:
            await asyncio.shield(self._refreshing)
        self._refreshing = self._loop.create_future()
        try:
            await self._in_thread(self._membership.look)
        finally:
            self._refreshing.set_result(None)
            self._refreshing = None

    async def change(self, timeout_s: float) -> None:
        """Wait for the next look, with a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    async def renew(self) -> None:
        """Make sure that no other node has taken over."""
        await self._in_thread(self._membership.renew)

    @property
    def is_good(self) -> bool:
        return self._membership.is_good

    async def drain(self, node_id: int, *, draining: bool = True) -> bool:
        return await self._in_thread(lambda: self._membership.drain(node_id, draining=draining))

    async def _in_thread(self, work: Callable[..., R], *arguments: object) -> R:
        return await self._loop.run_in_executor(self._threads, work, *arguments)

    # ── Handing over ─────────────────────────────────────────────────────────────────────────

    async def hand(self, shard: int, node_id: int) -> bool:
        """Hand one shard over to a node that asks for it; False if that is not possible."""
        while self._moving is not None:
            await asyncio.wait([self._moving])
        if node_id == self.id:
            return shard in self.shards
        if shard not in self.shards or self.seen.node(node_id) is None:
            return False
        self._moving = self._loop.create_task(self._hand_over({shard: node_id}))
        await asyncio.wait([self._moving])
        return shard not in self.shards

    async def shards_of(self, paths: Set[str]) -> Set[int]:
        """The shards of streams: where they are, or would be."""
        return set(await self._in_thread(self._membership.shards_of, sorted(paths)))

    async def gather(self, shards: Set[int]) -> None:
        """Get shards handed over to this node, for an operation on all of them at once.

        This fails if their owner cannot be reached: then the other nodes notice, and take over.
        For a while, this node gives nothing away.
        """
        self._rest_until = monotonic() + self.lease_s
        for shard in sorted(shards - self.shards):
            owner = self.seen.owner(shard)
            if owner is not None and owner.id != self.id and self.ask is not None:
                await self.ask(owner, shard, self.id)
        await self.refresh()
        if shards - self.shards:
            await self.change(_LOOK_AGAIN_S)

    async def _hand_over(self, moves: Mapping[int, int]) -> None:
        shards = frozenset(moves)
        self._membership.withhold(shards)
        self._shards -= shards
        try:
            for keeper in self.on_release:
                await keeper(shards)
            await self._streams.release(shards)
            # Between two commits, so that the collector is not working on them either.
            await self._streams.writer.run(lambda: self._membership.give(moves))
            self.handed_over += len(shards)
            log.info("handed_over", shards=sorted(shards))
            self.watch.succeeded()
        except Exception as error:
            self._rest_until = monotonic() + _GIVE_UP_AFTER_S
            self.watch.failed(error, _GIVE_UP_AFTER_S)
            self._spawn(self._keep(shards), self._keeping)
        finally:
            self._moving = None

    async def _keep(self, shards: Set[int]) -> None:
        """Use shards again. Not at once: they may have been given away although the call failed,
        and their new owner then writes to them.
        """
        while True:
            try:
                await self._in_thread(self._membership.keep, shards)
            except StreamError as error:
                self.watch.failed(error, _LOOK_AGAIN_S)
                await asyncio.sleep(_LOOK_AGAIN_S)
            else:
                return

    async def empty(self, timeout_s: float) -> None:
        """Hand everything over before this node ends, if another node can take it."""
        deadline = monotonic() + timeout_s
        if not self._has_heir():
            return
        try:
            await self.drain(self.id)
            # The others may be gone by now, or about to be.
            while self.seen_shards() and self._has_heir() and monotonic() < deadline:
                await self.change(self.lease_s)
        except StreamError as error:
            self.watch.failed(error)

    def _has_heir(self) -> bool:
        """Whether there is a node that would take this one's shards."""
        return any(not node.draining for node in self.others())

    def seen_shards(self) -> int:
        """How many shards this node has, including those about to be given away."""
        return sum(shard.node_id == self.id for shard in self.seen.shards)

    async def stop(self) -> None:
        self._membership.on_look = lambda: None
        if self._moving is not None:
            await self._moving
        tasks = [*self._tasks, *self._keeping]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False)
