"""The data of the memory engine: a log for each stream, and indexes.

Every periodic query has an index that is updated with the streams, so that an engine with many idle
streams never has to scan them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import RLock

from headwater.core.expiry import touch_interval_ms
from headwater.core.live.templates import TemplateRecord
from headwater.core.schedules import Schedule
from headwater.core.snapshots import SnapshotTaken
from headwater.core.stream import StreamState
from headwater.store.garbage import Release
from headwater.store.memory.append_log import AppendLog
from headwater.store.reachability import Member


@dataclass(slots=True)
class Log:
    state: StreamState
    appends: AppendLog = field(default_factory=AppendLog)
    ids: dict[str, int] = field(default_factory=dict)
    templates: dict[int, TemplateRecord] = field(default_factory=dict)
    snapshots: dict[int, SnapshotTaken] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kept:
    """A deleted stream that can be undeleted."""

    log: Log
    deleted_at_ms: int
    until_ms: int


class Tables:
    def __init__(self) -> None:
        self.lock = RLock()
        self.logs: dict[int, Log] = {}
        self.ids: dict[str, int] = {}
        self.paths: list[str] = []
        """Sorted."""
        self.forks: dict[int, list[tuple[int, int]]] = {}
        """The forks of each stream that has any, by base and id, ascending."""
        self.releases: dict[int, Release] = {}
        self.deadlines = Schedule[int]()
        self.trims = Schedule[int]()
        self.producers = Schedule[tuple[int, str]]()
        """When each producer was last used, by stream and id."""
        self.kept: dict[int, Kept] = {}
        """In the order of deletion."""
        self.kept_ends = Schedule[int]()
        self.next_id = 1

    def add(self, log: Log) -> None:
        state, config = log.state, log.state.config
        self.logs[config.id] = log
        if config.path not in self.ids:
            insort(self.paths, config.path)
        self.ids[config.path] = config.id
        if config.source_id is not None:
            insort(self.forks.setdefault(config.source_id, []), (config.lineage.base, config.id))
        self.next_id = max(self.next_id, config.id + 1)
        self.plan_expiry(state)
        self.trims.set(config.id, state.trim_due_ms)

    def keep(self, kept: Kept) -> None:
        stream_id = kept.log.state.config.id
        self.kept[stream_id] = kept
        self.kept_ends.set(stream_id, kept.until_ms)

    def unkeep(self, stream_id: int) -> Kept | None:
        self.kept_ends.set(stream_id, None)
        return self.kept.pop(stream_id, None)

    def remove(self, stream_id: int) -> None:
        state = self.logs.pop(stream_id).state
        config = state.config
        for producer_id in state.producers:
            self.producers.set((stream_id, producer_id), None)
        self.releases.pop(stream_id, None)
        self.deadlines.set(stream_id, None)
        self.trims.set(stream_id, None)
        if self.ids.get(config.path) == stream_id:
            del self.ids[config.path]
            del self.paths[bisect_left(self.paths, config.path)]
        if config.source_id is not None:
            siblings = self.forks[config.source_id]
            del siblings[bisect_left(siblings, (config.lineage.base, stream_id))]
            if not siblings:
                del self.forks[config.source_id]

    def plan_expiry(self, state: StreamState) -> None:
        """Schedule a check whether a stream has expired; the stored access time may lag."""
        lifetime = state.config.lifetime
        deadline = lifetime.deadline_ms(state.stored_touch_ms + touch_interval_ms(lifetime))
        self.deadlines.set(state.config.id, None if state.soft_deleted else deadline)

    def listed(self, prefix: str, after: str) -> Iterator[StreamState]:
        """Streams whose path has a prefix and sorts after another, in order."""
        first = bisect_left(self.paths, max(prefix, after))
        for index in range(first, len(self.paths)):
            path = self.paths[index]
            if not path.startswith(prefix):
                break
            state = self.logs[self.ids[path]].state
            if path > after and not state.soft_deleted:
                yield state

    # ── For the collector ────────────────────────────────────────────────────────────────────

    def member(self, stream_id: int) -> Member | None:
        log = self.logs.get(stream_id)
        if log is None:
            return None
        config = log.state.config
        live = not log.state.soft_deleted
        return Member(stream_id, config.source_id, config.lineage.base, config.kept_from, live)

    def forks_of(self, stream_id: int, before: tuple[int, int], limit: int) -> Sequence[Member]:
        forks = self.forks.get(stream_id, [])
        last = bisect_left(forks, before)
        found = (self.member(fork) for _, fork in reversed(forks[max(0, last - limit) : last]))
        return [member for member in found if member is not None]
