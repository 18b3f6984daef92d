"""Snapshots in the memory engine."""

from __future__ import annotations

from headwater.core.snapshots import SnapshotInfo, SnapshotMutation, SnapshotTaken
from headwater.store.memory.tables import Tables


class Snapshots:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def apply(self, mutation: SnapshotMutation) -> None:
        log = self._tables.logs.get(mutation.stream_id)
        if log is None:
            # Its stream was deleted in the same transaction.
            return
        log.snapshots.pop(mutation.position, None)
        if isinstance(mutation, SnapshotTaken):
            log.snapshots[mutation.position] = mutation
            for position in sorted(log.snapshots)[: -mutation.keep]:
                del log.snapshots[position]

    def of_stream(self, stream_id: int) -> list[SnapshotInfo]:
        with self._tables.lock:
            log = self._tables.logs.get(stream_id)
            found = sorted(log.snapshots, reverse=True) if log else []
            return [log.snapshots[position].info for position in found] if log else []

    def find(self, stream_id: int, position: int) -> SnapshotTaken | None:
        with self._tables.lock:
            log = self._tables.logs.get(stream_id)
            return log.snapshots.get(position) if log else None
