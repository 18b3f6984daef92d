"""Streams in the memory engine."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from heapq import nsmallest
from itertools import islice

from headwater.core.expiry import touch_interval_ms
from headwater.core.producers import ProducerState
from headwater.core.stream import StreamState
from headwater.core.subscriptions.state import StreamTail
from headwater.store.engine.streams import (
    DeletedStream,
    IdleProducer,
    LoadedStream,
    SoftDeletedStream,
    StreamSummary,
)
from headwater.store.memory.tables import Kept, Log, Tables


class Streams:
    def __init__(self, tables: Tables, producers_preloaded_max: int) -> None:
        self._tables = tables
        self._producers_max = producers_preloaded_max

    def next_id(self) -> int:
        return self._tables.next_id

    def load(self, path: str) -> LoadedStream | None:
        with self._tables.lock:
            stream_id = self._tables.ids.get(path)
            return None if stream_id is None else self.load_id(stream_id)

    def look(self, path: str) -> StreamState | None:
        loaded = self.load(path)
        return None if loaded is None else replace(loaded.state, producers={}, producer_count=0)

    def load_id(self, stream_id: int) -> LoadedStream | None:
        with self._tables.lock:
            log = self._tables.logs.get(stream_id)
            return None if log is None else self._loaded(log)

    def _loaded(self, log: Log) -> LoadedStream:
        state = copy(log.state)
        most = self._producers_max
        complete = len(state.producers) <= most
        state.producers = dict(islice(state.producers.items(), most + 1))
        state.forks = len(self._tables.forks.get(state.config.id, ()))
        lag_ms = touch_interval_ms(state.config.lifetime)
        state.touched_at_ms = state.stored_touch_ms + lag_ms
        state.deleted = False
        return LoadedStream(state, complete)

    def load_deleted(self, path: str) -> LoadedStream | None:
        with self._tables.lock:
            found = self._newest_deleted().get(path)
            return None if found is None else self._loaded(found.log)

    def deleted(self, prefix: str, after: str, limit: int) -> list[DeletedStream]:
        with self._tables.lock:
            newest = self._newest_deleted()
            paths = (p for p in newest if p.startswith(prefix) and p > after)
            free = sorted(path for path in paths if path not in self._tables.ids)
            return [
                DeletedStream(StreamSummary.of(kept.log.state), kept.deleted_at_ms, kept.until_ms)
                for kept in map(newest.__getitem__, free[:limit])
            ]

    def _newest_deleted(self) -> dict[str, Kept]:
        return {kept.log.state.config.path: kept for kept in self._tables.kept.values()}

    def purgeable(self, now_ms: int, limit: int) -> list[tuple[int, str]]:
        with self._tables.lock:
            return self._kept_paths(self._tables.kept_ends.due(now_ms, limit))

    def kept_beyond(self, most: int, limit: int) -> list[tuple[int, str]]:
        with self._tables.lock:
            excess = max(0, len(self._tables.kept) - most)
            return self._kept_paths(list(islice(self._tables.kept, min(excess, limit))))

    def _kept_paths(self, stream_ids: list[int]) -> list[tuple[int, str]]:
        kept = self._tables.kept
        return [(one, kept[one].log.state.config.path) for one in stream_ids]

    def path_of(self, stream_id: int) -> str | None:
        with self._tables.lock:
            log = self._tables.logs.get(stream_id)
            return log.state.config.path if log else None

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None:
        with self._tables.lock:
            log = self._tables.logs.get(stream_id)
            return log.state.producers.get(producer_id) if log else None

    def idle_producers(self, before_ms: int, limit: int) -> list[IdleProducer]:
        with self._tables.lock:
            found = self._tables.producers.due(before_ms - 1, limit)
            paths = self._paths([stream_id for stream_id, _ in found])
            return [IdleProducer(path, *key) for path, key in zip(paths, found, strict=True)]

    def idle_producers_of(self, stream_id: int, before_ms: int, limit: int) -> list[str]:
        with self._tables.lock:
            log = self._tables.logs.get(stream_id)
            known = log.state.producers.items() if log is not None else ()
            idle = [(one.used_at_ms, name) for name, one in known if one.used_at_ms < before_ms]
            return [name for _, name in nsmallest(limit, idle)]

    def summaries(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        with self._tables.lock:
            states = self._tables.listed(prefix, after)
            return [StreamSummary.of(state) for state in islice(states, limit)]

    def tails(self, prefix: str, after: str, limit: int) -> list[StreamTail]:
        with self._tables.lock:
            return [
                StreamTail(state.config.path, state.config.lineage, state.tail)
                for state in islice(self._tables.listed(prefix, after), limit)
            ]

    def soft_deleted(self, after_id: int, limit: int) -> list[SoftDeletedStream]:
        tables = self._tables
        with tables.lock:
            states = (log.state for log in tables.logs.values())
            ids = nsmallest(
                limit, (s.config.id for s in states if s.soft_deleted and s.config.id > after_id)
            )
            paths = self._paths(ids)
            return [
                SoftDeletedStream(i, p, i in tables.forks) for i, p in zip(ids, paths, strict=True)
            ]

    def expired(self, now_ms: int, limit: int) -> list[str]:
        with self._tables.lock:
            return self._paths(self._tables.deadlines.due(now_ms, limit))

    def next_deadline_ms(self) -> int | None:
        with self._tables.lock:
            return self._tables.deadlines.next_ms()

    def trimmable(self, now_ms: int, limit: int) -> list[str]:
        with self._tables.lock:
            return self._paths(self._tables.trims.due(now_ms, limit))

    def _paths(self, stream_ids: list[int]) -> list[str]:
        return [self._tables.logs[stream_id].state.config.path for stream_id in stream_ids]
