"""The memory engine, for tests and throw-away servers. Nothing survives the process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.core.groups.mutations import GroupMutation
from headwater.core.histograms import SECONDS, Histogram
from headwater.core.live.templates import LiveMutation
from headwater.core.mutations import AnyMutation
from headwater.core.snapshots import SnapshotMutation
from headwater.core.stream import (
    STAMPED,
    Appended,
    Created,
    Deleted,
    ForkCounted,
    Mutation,
    ProducersForgotten,
    Purged,
    Reconfigured,
    SoftDeleted,
    StreamState,
    Touched,
    TrimPlanned,
    Undeleted,
    evolve,
)
from headwater.core.subscriptions.state import SubscriptionMutation
from headwater.store.engine import Problem
from headwater.store.engine.figures import EngineFigures
from headwater.store.garbage import Collector, note_release
from headwater.store.memory.appends import Appends
from headwater.store.memory.groups import Groups
from headwater.store.memory.releases import MemoryReleases
from headwater.store.memory.snapshots import Snapshots
from headwater.store.memory.streams import Streams
from headwater.store.memory.subscriptions import Subscriptions
from headwater.store.memory.tables import Kept, Log, Tables
from headwater.store.memory.templates import Templates


class MemoryEngine:
    name = "memory"
    lease = None
    membership = None
    committer = None
    history = None

    def __init__(self, producers_preloaded_max: int = 1_000) -> None:
        self._tables = tables = Tables()
        self._releases = MemoryReleases(tables)
        self._collector = Collector()
        self.streams = Streams(tables, producers_preloaded_max)
        self.appends = Appends(tables)
        self.groups = Groups(tables.lock)
        self.subscriptions = Subscriptions(tables.lock)
        self.templates = Templates(tables)
        self.snapshots = Snapshots(tables)

    def commit(self, mutations: Sequence[AnyMutation]) -> None:
        with self._tables.lock:
            for mutation in mutations:
                self._apply(mutation)

    def _apply(self, mutation: AnyMutation) -> None:
        if isinstance(mutation, GroupMutation):
            self.groups.apply(mutation)
        elif isinstance(mutation, LiveMutation):
            self.templates.apply(mutation)
        elif isinstance(mutation, SubscriptionMutation):
            self.subscriptions.apply(mutation)
        elif isinstance(mutation, SnapshotMutation):
            self.snapshots.apply(mutation)
        elif isinstance(mutation, Created):
            self._tables.add(Log(StreamState.created(mutation.config)))
        elif isinstance(mutation, Undeleted):
            self._undelete(mutation)
        elif isinstance(mutation, Purged):
            if self._tables.unkeep(mutation.stream_id) is not None:
                self.groups.delete_of(mutation.stream_id)
        elif not isinstance(mutation, ForkCounted):
            self._change(mutation)

    def _undelete(self, mutation: Undeleted) -> None:
        kept = self._tables.unkeep(mutation.stream_id)
        assert kept is not None
        # The mutation's state may lack some producers.
        kept.log.state = state = kept.log.state.undeleted(mutation.at_ms)
        self._tables.add(kept.log)
        for producer_id in state.producers:
            self._tables.producers.set((mutation.stream_id, producer_id), mutation.at_ms)
        note_release(self._collector, self._releases, mutation)

    def _change(self, mutation: Mutation) -> None:
        tables = self._tables
        assert not isinstance(mutation, Created)
        note_release(self._collector, self._releases, mutation)
        log = tables.logs[mutation.stream_id]
        evolve(log.state, mutation)
        self._note_producers(log.state, mutation)
        match mutation:
            case Appended():
                log.appends.append(mutation)
                log.ids.update(mutation.ids)
                if mutation.trim_due_ms is not None:
                    tables.trims.set(mutation.stream_id, mutation.trim_due_ms)
            case Deleted(stream_id, at_ms, kept_until_ms):
                tables.remove(stream_id)
                if kept_until_ms is None:
                    self.groups.delete_of(stream_id)
                else:
                    tables.keep(Kept(log, at_ms, kept_until_ms))
            case TrimPlanned(stream_id, due_ms):
                tables.trims.set(stream_id, due_ms)
            case SoftDeleted(stream_id):
                tables.trims.set(stream_id, None)
                tables.plan_expiry(log.state)
            case Reconfigured(stream_id):
                tables.trims.set(stream_id, log.state.trim_due_ms)
                tables.plan_expiry(log.state)
            case Touched():
                tables.plan_expiry(log.state)
            case _:
                pass

    def _note_producers(self, state: StreamState, mutation: Mutation) -> None:
        schedule, stream_id = self._tables.producers, state.config.id
        if isinstance(mutation, STAMPED):
            if mutation.producer is not None:
                producer_id = mutation.producer.id
                schedule.set((stream_id, producer_id), state.producers[producer_id].used_at_ms)
        elif isinstance(mutation, ProducersForgotten):
            for producer_id in mutation.ids:
                schedule.set((stream_id, producer_id), None)

    def has_room(self) -> bool:
        return True

    def reap(self, max_appends: int) -> bool:
        with self._tables.lock:
            return self._collector.step(self._releases, max_appends)

    def verify(self) -> Iterator[Problem | str]:
        yield f"{len(self._tables.logs)} streams in memory; nothing is stored"

    def figures(self) -> EngineFigures:
        return EngineFigures(Histogram(SECONDS), {})

    def close(self) -> None:
        pass
