"""Streams in the memory engine."""

from __future__ import annotations

from copy import copy

from headwater.core.expiry import touch_interval_ms
from headwater.core.producers import ProducerState
from headwater.core.subscriptions.state import StreamTail
from headwater.store.engine import LoadedStream, StreamSummary
from headwater.store.memory.tables import Tables


class Streams:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def next_id(self) -> int:
        return self._tables.next_id

    def load(self, path: str) -> LoadedStream | None:
        with self._tables.lock:
            stream_id = self._tables.ids.get(path)
            return None if stream_id is None else self.load_id(stream_id)

    def load_id(self, stream_id: int) -> LoadedStream | None:
        with self._tables.lock:
            log = self._tables.logs.get(stream_id)
            if log is None:
                return None
            state = copy(log.state)
            state.producers = dict(state.producers)
            state.forks = sum(
                other.state.config.source_id == stream_id for other in self._tables.logs.values()
            )
            lag_ms = touch_interval_ms(state.config.lifetime)
            state.touched_at_ms = state.stored_touch_ms + lag_ms
            return LoadedStream(state, producers_complete=True)

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None:
        with self._tables.lock:
            log = self._tables.logs.get(stream_id)
            return log.state.producers.get(producer_id) if log else None

    def summaries(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        with self._tables.lock:
            paths = sorted(p for p in self._tables.ids if p.startswith(prefix) and p > after)
            states = (self._tables.logs[self._tables.ids[path]].state for path in paths)
            return [StreamSummary.of(state) for state in states if not state.soft_deleted][:limit]

    def tails(self, prefix: str, after: str, limit: int) -> list[StreamTail]:
        with self._tables.lock:
            paths = sorted(p for p in self._tables.ids if p.startswith(prefix) and p > after)
            states = (self._tables.logs[self._tables.ids[path]].state for path in paths)
            return [
                StreamTail(state.config.path, state.config.lineage, state.tail)
                for state in states
                if not state.soft_deleted
            ][:limit]

    def expired(self, now_ms: int, limit: int) -> list[str]:
        due = [path for deadline, path in self._deadlines() if deadline <= now_ms]
        return due[:limit]

    def next_deadline_ms(self) -> int | None:
        return min((deadline for deadline, _ in self._deadlines()), default=None)

    def _deadlines(self) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        with self._tables.lock:
            for log in self._tables.logs.values():
                config = log.state.config
                lag_ms = touch_interval_ms(config.lifetime)
                deadline = config.lifetime.deadline_ms(log.state.stored_touch_ms + lag_ms)
                if deadline is not None and not log.state.soft_deleted:
                    found.append((deadline, config.path))
        return found

    def retaining(self, after_id: int, limit: int) -> list[tuple[int, str]]:
        with self._tables.lock:
            configs = [
                log.state.config for log in self._tables.logs.values() if not log.state.soft_deleted
            ]
        found = [(c.id, c.path) for c in configs if c.retention is not None and c.id > after_id]
        return sorted(found)[:limit]
