"""The memory engine: for tests and throw-away servers. Nothing survives the process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.core.groups.state import GroupMutation
from headwater.core.histograms import SECONDS, Histogram
from headwater.core.live.templates import LiveMutation
from headwater.core.mutations import AnyMutation
from headwater.core.snapshots import SnapshotMutation
from headwater.core.stream import Appended, Created, Deleted, ForkCounted, StreamState, evolve
from headwater.core.subscriptions.state import SubscriptionMutation
from headwater.store.engine import EngineFigures, Problem
from headwater.store.memory.appends import Appends
from headwater.store.memory.groups import Groups
from headwater.store.memory.snapshots import Snapshots
from headwater.store.memory.streams import Streams
from headwater.store.memory.subscriptions import Subscriptions
from headwater.store.memory.tables import Log, Tables
from headwater.store.memory.templates import Templates
from headwater.store.reachability import is_needed, needs_of


class MemoryEngine:
    name = "memory"
    history = None

    def __init__(self) -> None:
        self._tables = tables = Tables()
        self.streams = Streams(tables)
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
            tables, config = self._tables, mutation.config
            tables.logs[config.id] = Log(StreamState.created(config))
            tables.ids[config.path] = config.id
            tables.next_id = max(tables.next_id, config.id + 1)
        elif not isinstance(mutation, ForkCounted):
            tables = self._tables
            log = tables.logs[mutation.stream_id]
            evolve(log.state, mutation)
            if isinstance(mutation, Appended):
                log.appends.append(mutation)
                log.ids.update(mutation.ids)
            elif isinstance(mutation, Deleted):
                del tables.logs[mutation.stream_id]
                self.groups.delete_of(mutation.stream_id)
                if tables.ids.get(log.state.config.path) == mutation.stream_id:
                    del tables.ids[log.state.config.path]

    def reap(self, max_appends: int) -> bool:
        with self._tables.lock:
            logs = self._tables.logs
            live = [log.state.config for log in logs.values() if not log.state.soft_deleted]
            for run, log in logs.items():
                needs = needs_of(run, live)
                log.appends = [a for a in log.appends if is_needed(a.start, a.end, needs)]
        return False

    def verify(self) -> Iterator[Problem | str]:
        yield f"{len(self._tables.logs)} streams in memory; nothing is stored"

    def figures(self) -> EngineFigures:
        return EngineFigures(Histogram(SECONDS), {})

    def close(self) -> None:
        pass
