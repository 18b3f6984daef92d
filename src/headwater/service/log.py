"""The log: all operations on streams, in one process.

HTTP and embedded use both go through here. Commands are decided by `core`, committed by the writer,
and read back from the hot tail or the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Final, TypeVar

from headwater.core import decisions
from headwater.core.errors import (
    OwnedElsewhere,
    StorageFull,
    StreamError,
    StreamGone,
    StreamNotFound,
)
from headwater.core.limits import Limits
from headwater.core.mutations import StreamDecision
from headwater.core.producers import ProducerLimits
from headwater.core.quotas import Quota
from headwater.core.snapshots import SnapshotDropped
from headwater.core.stream import StreamState
from headwater.service.background import Background, Watch
from headwater.service.batches import Effect
from headwater.service.clock import Clock, clock_of
from headwater.service.creating import CreatingLog
from headwater.service.entries import Entry, Event
from headwater.service.forks import Forks, effects_on, states_of
from headwater.service.grace import Grace
from headwater.service.history.archiving import Archiving, StorageTask, open_archive
from headwater.service.history.compacting import Compacting, RemoteCompacting
from headwater.service.history.fetching import Fetching
from headwater.service.history.publishing import Publishing, connect
from headwater.service.history.sealing import Sealing
from headwater.service.housekeeping import Collection, Expiry, Trimming
from headwater.service.producers import Forgetting
from headwater.service.quotas import Quotas
from headwater.service.registry import Registry
from headwater.service.reordering import WaitingRoom
from headwater.service.replies import Reply
from headwater.service.retention import look
from headwater.service.shared_quotas import SharedQuotas
from headwater.service.writer import Writer
from headwater.store.engine import Engine
from headwater.store.engine.streams import LoadedStream
from headwater.store.history.policies import ArchivePolicy, SealPolicy
from headwater.store.history.remote import RemoteHistory
from headwater.store.sqlite.history import SqliteHistory

R = TypeVar("R")
_GATHERINGS_MAX: Final = 8
_DecideRemoval = Callable[[StreamState, tuple[StreamState, ...], int], StreamDecision[bool]]


class Log(CreatingLog):
    """All streams of one engine. Create it with `await Log.start(...)`, end it with `stop()`."""

    def __init__(
        self,
        engine: Engine,
        limits: Limits,
        linger_ms: int,
        clock: Clock,
        next_stream_id: int,
    ) -> None:
        super().__init__()
        self.engine = engine
        self.limits = limits
        self.clock = clock
        self.producer_limits = ProducerLimits(
            1000 * limits.producer_expiry_s, limits.producers_per_stream_max
        )
        self.membership = membership = engine.membership
        self._registry = Registry(limits, self._fetch, shared=membership is not None)
        self._forks = Forks(self, self._registry)
        self.writer = Writer(engine, limits, linger_ms, self._registry.release_hot)
        self._waiting_room = WaitingRoom(limits.producer_wait_ms, self._append_again)
        self._next_stream_id = next_stream_id
        if membership is not None:
            self.writer.admit = _refuse_released
        self.gather: Callable[[Set[int]], Awaitable[None]] | None = None
        """In a cluster: moves shards to this node, for operations on several at once."""
        self.counts_together = False
        """Whether quotas are shared by all nodes of a cluster."""
        self.grace = Grace(self)
        self.orphans: dict[str, None] = {}
        """Soft-deleted streams that have lost their last fork and are still to be deleted."""
        self.expiry = Expiry(self)
        self.forgetting = Forgetting(self)
        self.tasks: list[Background] = [self.expiry, self.forgetting]
        self.collection = Collection(self)
        self.tasks += [Trimming(self), self.collection]
        """Everything that runs without a request, in rounds."""
        self.watches: list[Watch] = [self.writer.watch]
        """Everything else that runs without a request, on timers and on changes."""
        history = engine.history
        self._fetching = Fetching(history.open_segments.fetched if history else lambda size: None)
        self.sealing: Sealing | None = None
        self.archiving: StorageTask | None = None
        self.compacting: Compacting | RemoteCompacting | None = None

    @classmethod
    async def start(
        cls,
        engine: Engine,
        limits: Limits | None = None,
        *,
        linger_ms: int = 0,
        clock: Clock | None = None,
        sealing: SealPolicy | None = None,
        archive: ArchivePolicy | None = None,
        quotas: tuple[Quota, ...] = (),
        commit_process: bool = False,
    ) -> Log:
        clock = clock or clock_of(engine)
        loop = asyncio.get_running_loop()
        next_stream_id = await loop.run_in_executor(None, engine.streams.next_id)
        history, opened = engine.history, None
        if isinstance(history, SqliteHistory) and archive is not None:
            opened = await loop.run_in_executor(None, open_archive, history, archive)
        elif isinstance(history, RemoteHistory) and archive is not None:
            await loop.run_in_executor(None, connect, history, archive)
        log = cls(engine, limits or Limits(), linger_ms, clock, next_stream_id)
        if quotas and engine.membership is not None:
            shared = SharedQuotas(quotas, engine.membership)
            shared.watch(log.writer)
            log.grace.may_keep = shared.may_keep
            log.counts_together = True
        elif quotas:
            counted = await loop.run_in_executor(None, Quotas, quotas, engine)
            counted.watch(log.writer)
            log.grace.may_keep = counted.may_keep
        if isinstance(history, RemoteHistory) and sealing is not None and archive is not None:
            log.archiving = publishing = Publishing(history, archive, log.writer, clock)
            log.sealing = Sealing(history, sealing, log.writer, clock, publishing.publish)
            if sealing.compact_bytes_per_second:
                log.compacting = RemoteCompacting(
                    history, sealing, log.writer, clock, publishing.publish
                )
        elif isinstance(history, SqliteHistory) and sealing is not None:
            log.sealing = Sealing(history, sealing, log.writer, clock)
            if sealing.compact_bytes_per_second:
                uploads = opened is not None
                log.compacting = Compacting(history, sealing, log.writer, clock, uploads=uploads)
        if archive is not None and opened is not None:
            log.archiving = Archiving(opened, archive, log.writer, clock)
        log.tasks += filter(None, (log.sealing, log.compacting, log.archiving))
        if commit_process and (process := log.writer.use_process()):
            log.tasks.append(process)
        for task in log.tasks:
            task.start()
        return log

    def problems(self) -> dict[str, str]:
        """Current problems that do not keep requests from being answered, by task, or the disk."""
        if self.writer.full:
            self.writer.full = not self.engine.has_room()
        failing = "it has failed, as the log says; it is tried again"
        problems = {watch.name: failing for watch in self.watched() if watch.is_failing}
        return problems | ({"disk": StorageFull().message} if self.writer.full else {})

    def watched(self) -> list[Watch]:
        """Everything that runs without a request."""
        return [*self.tasks, *self.watches]

    def watch(self, name: str) -> Watch:
        """Add a watch for something that runs without a request."""
        self.watches.append(Watch(name))
        return self.watches[-1]

    def wind_down(self) -> None:
        """The server is about to stop: cut short waits for object storage."""
        if self.archiving is not None:
            self.archiving.wind_down()

    async def stop(self) -> None:
        """Finish what was accepted, then close the engine."""
        self.wind_down()
        for task in reversed(self.tasks):
            await task.stop()
        await self.writer.drain()
        self._fetching.stop()
        self._threads.shutdown()
        self.engine.close()

    async def release(self, shards: Set[int]) -> None:
        """Finish everything in shards that another node is to own, and drop them.

        Raises StorageUnavailable if it is not certain what was committed.
        """
        released = self._registry.release(lambda entry: entry.shard in shards)
        for entry in released:
            entry.notify(Event.RELEASED)
            self._waiting_room.release(entry)
        await self.writer.reply_after_all(None)

    async def together(self, work: Callable[[], Awaitable[R]]) -> R:
        """Run an operation on streams of several shards, which this node must own."""
        for _ in range(_GATHERINGS_MAX):
            try:
                return await work()
            except OwnedElsewhere as error:
                if self.gather is None:
                    raise
                await self.gather({error.shard})
        return await work()

    # ── Loading ──────────────────────────────────────────────────────────────────────────────

    def _fetch(self, path: str) -> Awaitable[LoadedStream | None]:
        return self.in_thread(self.engine.streams.load, path)

    def holds(self, entry: Entry) -> bool:
        """Whether this very entry is in memory."""
        return self._registry.ready(entry.path) is entry

    # ── Delete ───────────────────────────────────────────────────────────────────────────────

    async def delete(self, path: str, *, purge: bool = False) -> None:
        """Delete a stream. Unless purged, it can be undeleted for a while."""
        entry, ancestors = await self._forks.with_ancestors(path)
        now_ms, grace_ms = self.clock(), 0 if purge else self.grace.period_ms(entry.state)
        try:
            state = decisions.require(entry.state, path, now_ms)
            decision = decisions.decide_delete(state, states_of(ancestors), now_ms, grace_ms)
        except StreamError as error:
            await self.writer.fail_after(entry, error)
            raise
        return await self._remove((entry, *ancestors), decision)

    async def purge(self, path: str) -> None:
        """Delete a stream and keep nothing, not even what was deleted at its path before."""
        absent: StreamError | None = None
        try:
            await self.delete(path, purge=True)
        except (StreamNotFound, StreamGone) as error:
            absent = error
        if not await self.grace.purge(path) and absent is not None:
            raise absent

    async def clear(self, path: str, stream_id: int, position: int) -> None:
        """Drop what a stream holds before a position, unless it was replaced meanwhile."""
        kept = await self.in_thread(self.engine.snapshots.of_stream, stream_id)
        entry = await self._registry.get(path)
        now_ms = self.clock()
        state = decisions.require(entry.state, path, now_ms)
        if state.config.id != stream_id:
            return
        decision = decisions.decide_trim(state, position, now_ms)
        dropped = [SnapshotDropped(stream_id, s.position) for s in kept if s.position <= position]
        effects: list[Effect] = [(entry, change) for change in (*decision.mutations, *dropped)]
        await self.writer.submit(effects, None)

    async def trim(self, path: str) -> bool:
        """Drop what a stream no longer has to keep. Used by housekeeping."""
        entry = await self._registry.get(path)
        view = entry.view
        if view is None:
            return False
        with entry.pinned():
            # Another entry of the same stream would not know what this one decides.
            held = await look(self, view)
        if held is None or entry.state is None or not entry.shows(view):
            return False
        decision = decisions.decide_retention(entry.state, held, self.clock())
        if not decision.mutations:
            return False
        return await self.writer.submit(effects_on((entry,), decision.mutations), decision.reply)

    async def remove_orphan(self, path: str) -> bool:
        """Delete a soft-deleted stream that has no fork left. Used by housekeeping."""
        return await self._remove_if(decisions.decide_orphan, path)

    async def expire(self, path: str) -> bool:
        """Delete a stream if it has expired. Used by housekeeping."""
        return await self._remove_if(decisions.decide_expire, path)

    async def _remove_if(self, decide: _DecideRemoval, path: str) -> bool:
        entry, ancestors = await self._forks.with_ancestors(path)
        if entry.state is None:
            return False
        decision = decide(entry.state, states_of(ancestors), self.clock())
        return bool(decision.mutations) and await self._remove((entry, *ancestors), decision)

    def _remove(self, family: tuple[Entry, ...], decision: StreamDecision[R]) -> Reply[R]:
        reply = self.writer.submit(effects_on(family, decision.mutations), decision.reply)
        last = family[-1].state
        if last is not None and last.soft_deleted and not last.deleted and not last.forks:
            self.orphans[family[-1].path] = None
        return reply


def _refuse_released(effects: Sequence[Effect]) -> None:
    """Refuse decisions on a stream that has moved to another node meanwhile."""
    for owner, _ in effects:
        if isinstance(owner, Entry) and owner.released:
            raise OwnedElsewhere(owner.shard)
