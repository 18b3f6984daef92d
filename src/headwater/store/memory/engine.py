"""The memory engine: for tests and throw-away servers. Nothing survives the process."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from operator import attrgetter
from threading import RLock

from headwater.core.blocks import Block
from headwater.core.errors import UnknownOffset
from headwater.core.expiry import touch_interval_ms
from headwater.core.groups.state import GroupMutation, GroupState
from headwater.core.histograms import SECONDS, Histogram
from headwater.core.lineage import Span
from headwater.core.live.templates import (
    LiveMutation,
    TemplateRecord,
    TemplatesRetired,
    TemplatesSaved,
)
from headwater.core.mutations import AnyMutation
from headwater.core.offsets import format_offset
from headwater.core.producers import ProducerState
from headwater.core.snapshots import SnapshotInfo, SnapshotMutation, SnapshotTaken
from headwater.core.stream import (
    Appended,
    Created,
    Deleted,
    ForkCounted,
    StreamState,
    evolve,
)
from headwater.core.subscriptions.state import (
    SecretStored,
    StoredSubscription,
    StreamTail,
    SubscriptionMutation,
)
from headwater.store.engine import (
    EngineFigures,
    LoadedStream,
    Outline,
    Piece,
    Problem,
    SealedPart,
    SeekBy,
    StreamSummary,
)
from headwater.store.memory.groups import MemoryGroups
from headwater.store.memory.subscriptions import MemorySubscriptions
from headwater.store.reachability import is_needed, needs_of

_START = attrgetter("start")


@dataclass(slots=True)
class _Log:
    state: StreamState
    appends: list[Appended] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    templates: dict[int, TemplateRecord] = field(default_factory=dict)
    snapshots: dict[int, SnapshotTaken] = field(default_factory=dict)


class MemoryEngine:
    name = "memory"
    history = None

    def __init__(self) -> None:
        self._lock = RLock()
        self._logs: dict[int, _Log] = {}
        self._ids: dict[str, int] = {}
        self._next_id = 1
        self._groups = MemoryGroups()
        self._subscriptions = MemorySubscriptions()

    def commit(self, mutations: Sequence[AnyMutation]) -> None:
        with self._lock:
            for mutation in mutations:
                self._apply(mutation)

    def _apply(self, mutation: AnyMutation) -> None:
        if isinstance(mutation, Created):
            config = mutation.config
            self._logs[config.id] = _Log(StreamState.created(config))
            self._ids[config.path] = config.id
            self._next_id = max(self._next_id, config.id + 1)
            return
        if isinstance(mutation, ForkCounted):
            return
        if isinstance(mutation, GroupMutation):
            self._groups.apply(mutation)
            return
        if isinstance(mutation, LiveMutation):
            self._apply_live(mutation)
            return
        if isinstance(mutation, SubscriptionMutation):
            self._subscriptions.apply(mutation)
            return
        if isinstance(mutation, SnapshotMutation):
            self._apply_snapshot(mutation)
            return
        log = self._logs[mutation.stream_id]
        evolve(log.state, mutation)
        if isinstance(mutation, Appended):
            log.appends.append(mutation)
            log.ids.update(mutation.ids)
        elif isinstance(mutation, Deleted):
            del self._logs[mutation.stream_id]
            self._groups.delete_of(mutation.stream_id)
            if self._ids.get(log.state.config.path) == mutation.stream_id:
                del self._ids[log.state.config.path]

    def _apply_live(self, mutation: LiveMutation) -> None:
        log = self._logs.get(mutation.stream_id)
        if log is None:
            # Its stream was deleted in the same transaction.
            return
        match mutation:
            case TemplatesSaved(_, templates):
                log.templates.update({record.spec.id: record for record in templates})
            case TemplatesRetired(_, specs):
                for spec in specs:
                    log.templates.pop(spec.id, None)

    def _apply_snapshot(self, mutation: SnapshotMutation) -> None:
        log = self._logs.get(mutation.stream_id)
        if log is None:
            # Its stream was deleted in the same transaction.
            return
        log.snapshots.pop(mutation.position, None)
        if isinstance(mutation, SnapshotTaken):
            log.snapshots[mutation.position] = mutation
            for position in sorted(log.snapshots)[: -mutation.keep]:
                del log.snapshots[position]

    def snapshots(self, stream_id: int) -> list[SnapshotInfo]:
        with self._lock:
            log = self._logs.get(stream_id)
            found = sorted(log.snapshots, reverse=True) if log else []
            return [log.snapshots[position].info for position in found] if log else []

    def snapshot(self, stream_id: int, position: int) -> SnapshotTaken | None:
        with self._lock:
            log = self._logs.get(stream_id)
            return log.snapshots.get(position) if log else None

    def templates(self, stream_id: int) -> list[TemplateRecord]:
        with self._lock:
            log = self._logs.get(stream_id)
            return [log.templates[number] for number in sorted(log.templates)] if log else []

    def next_stream_id(self) -> int:
        return self._next_id

    def next_group_id(self) -> int:
        return self._groups.next_id

    def groups(self, stream_id: int) -> list[GroupState]:
        with self._lock:
            return self._groups.load(stream_id)

    def next_subscription_id(self) -> int:
        return self._subscriptions.next_id

    def subscriptions(self, subscription_id: int | None = None) -> list[StoredSubscription]:
        with self._lock:
            return self._subscriptions.load(subscription_id)

    def secrets(self) -> list[SecretStored]:
        with self._lock:
            return list(self._subscriptions.secrets)

    def tails(self, prefix: str, after: str, limit: int) -> list[StreamTail]:
        with self._lock:
            paths = sorted(p for p in self._ids if p.startswith(prefix) and p > after)
            states = (self._logs[self._ids[path]].state for path in paths)
            return [
                StreamTail(state.config.path, state.config.lineage, state.tail)
                for state in states
                if not state.soft_deleted
            ][:limit]

    def load(self, path: str) -> LoadedStream | None:
        with self._lock:
            stream_id = self._ids.get(path)
            return None if stream_id is None else self.load_id(stream_id)

    def load_id(self, stream_id: int) -> LoadedStream | None:
        with self._lock:
            log = self._logs.get(stream_id)
            if log is None:
                return None
            state = copy(log.state)
            state.producers = dict(state.producers)
            state.forks = sum(
                other.state.config.source_id == stream_id for other in self._logs.values()
            )
            lag_ms = touch_interval_ms(state.config.lifetime)
            state.touched_at_ms = state.stored_touch_ms + lag_ms
            return LoadedStream(state, producers_complete=True)

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None:
        with self._lock:
            log = self._logs.get(stream_id)
            return log.state.producers.get(producer_id) if log else None

    def known_ids(self, spans: Sequence[Span], ids: Sequence[str]) -> set[str]:
        with self._lock:
            logs = [
                (self._logs[span.run].ids, span.end) for span in spans if span.run in self._logs
            ]
            return {i for i in ids if any(known.get(i, end) < end for known, end in logs)}

    def _appends(self, run: int) -> Sequence[Appended]:
        log = self._logs.get(run)
        return log.appends if log else ()

    def read(self, span: Span, max_bytes: int) -> list[bytes]:
        with self._lock:
            appends = self._appends(span.run)
            first = bisect_left(appends, span.start, key=_START)
            if first == len(appends) or appends[first].start != span.start:
                raise UnknownOffset(format_offset(span.run, span.start))
            bodies: list[bytes] = []
            size = 0
            for append in appends[first:]:
                size += len(append.body)
                if append.start >= span.end or (bodies and size > max_bytes):
                    break
                bodies.append(append.body[: span.end - append.start])
            return bodies

    def read_pieces(self, span: Span, max_bytes: int) -> list[Piece]:
        return [*self.read(span, max_bytes)]

    def known_pieces(self, span: Span, max_bytes: int) -> list[Piece] | None:
        return None

    def blocks(self, span: Span, max_bytes: int) -> list[Block]:
        with self._lock:
            bodies = self.read(span, max_bytes)
            appends = self._appends(span.run)
            first = bisect_left(appends, span.start, key=_START)
            return [Block.of(appends[first : first + len(bodies)], span.end)]

    def sealed_parts(self, span: Span) -> list[SealedPart]:
        return []

    def append_at(self, run: int, position: int) -> Appended | None:
        with self._lock:
            appends = self._appends(run)
            index = bisect_right(appends, position, key=_START) - 1
            if index < 0 or appends[index].end <= position:
                return None
            return appends[index]

    def outline_at(self, run: int, position: int) -> Outline | None:
        found = self.append_at(run, position)
        return Outline(found.start, found.end, found.first_message, found.at_ms) if found else None

    def seek(self, span: Span, by: SeekBy, value: int) -> Appended | None:
        with self._lock:
            inside = [a for a in self._appends(span.run) if span.start <= a.start < span.end]
            index = bisect_right(inside, value, key=attrgetter(by)) - 1
            return inside[index] if index >= 0 else None

    def list_streams(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        with self._lock:
            paths = sorted(p for p in self._ids if p.startswith(prefix) and p > after)
            states = (self._logs[self._ids[path]].state for path in paths)
            return [StreamSummary.of(state) for state in states if not state.soft_deleted][:limit]

    def expired(self, now_ms: int, limit: int) -> list[str]:
        due = [path for deadline, path in self._deadlines() if deadline <= now_ms]
        return due[:limit]

    def next_deadline_ms(self) -> int | None:
        return min((deadline for deadline, _ in self._deadlines()), default=None)

    def _deadlines(self) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        with self._lock:
            for log in self._logs.values():
                config = log.state.config
                lag_ms = touch_interval_ms(config.lifetime)
                deadline = config.lifetime.deadline_ms(log.state.stored_touch_ms + lag_ms)
                if deadline is not None and not log.state.soft_deleted:
                    found.append((deadline, config.path))
        return found

    def retaining(self, after_id: int, limit: int) -> list[tuple[int, str]]:
        with self._lock:
            configs = [
                log.state.config for log in self._logs.values() if not log.state.soft_deleted
            ]
        found = [(c.id, c.path) for c in configs if c.retention is not None and c.id > after_id]
        return sorted(found)[:limit]

    def unsettled_from(self, stream_id: int) -> int | None:
        with self._lock:
            groups = self._groups.load(stream_id)
        starts = [group.cursor.start for group in groups]
        starts += [m.ref.start for group in groups for m in group.outstanding.values()]
        return min(starts, default=None)

    def reap(self, max_appends: int) -> bool:
        with self._lock:
            live = [log.state.config for log in self._logs.values() if not log.state.soft_deleted]
            for run, log in self._logs.items():
                needs = needs_of(run, live)
                log.appends = [a for a in log.appends if is_needed(a.start, a.end, needs)]
        return False

    def verify(self) -> Iterator[Problem | str]:
        yield f"{len(self._logs)} streams in memory; nothing is stored"

    def figures(self) -> EngineFigures:
        return EngineFigures(Histogram(SECONDS), {})

    def close(self) -> None:
        pass
