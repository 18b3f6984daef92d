"""Snapshots of streams, each at a position."""

from __future__ import annotations

from typing import Final

from headwater.core.errors import DataCorrupt
from headwater.core.snapshots import (
    SnapshotDropped,
    SnapshotInfo,
    SnapshotMutation,
    SnapshotTaken,
)
from headwater.store.checksums import append_checksum
from headwater.store.rows import Query
from headwater.store.sql.tables import Tables

_KEYS: Final = "stream_id, position"
_COLUMNS: Final = f"{_KEYS}, content_type, created_at, checksum, body"


def write_snapshot(tables: Tables, mutation: SnapshotMutation) -> None:
    """One at a time: they are rare, and each may drop an older one."""
    match mutation:
        case SnapshotTaken(stream_id, at_ms, position, content_type, body, keep):
            checksum = append_checksum(stream_id, position, body)
            row = (stream_id, position, content_type, at_ms, checksum, body)
            tables.upsert("snapshots", _KEYS, _COLUMNS, [row])
            tables.execute(
                "DELETE FROM snapshots WHERE stream_id = ? AND position NOT IN (SELECT position"
                " FROM snapshots WHERE stream_id = ? ORDER BY position DESC LIMIT ?)",
                (stream_id, stream_id, keep),
            )
        case SnapshotDropped(stream_id, position):
            tables.delete("snapshots", _KEYS, [(stream_id, position)])


class Snapshots:
    def __init__(self, query: Query) -> None:
        self._query = query

    def of_stream(self, stream_id: int) -> list[SnapshotInfo]:
        found = self._query(
            "SELECT position, content_type, length(body), created_at FROM snapshots"
            " WHERE stream_id = ? ORDER BY position DESC",
            (stream_id,),
        )
        return [SnapshotInfo(*row) for row in found]

    def find(self, stream_id: int, position: int) -> SnapshotTaken | None:
        found = self._query(
            "SELECT created_at, content_type, checksum, body FROM snapshots"
            " WHERE stream_id = ? AND position = ?",
            (stream_id, position),
        )
        if not found:
            return None
        at_ms, content_type, checksum, body = found[0]
        if checksum != append_checksum(stream_id, position, body):
            raise DataCorrupt(f"the snapshot of stream {stream_id} at {position}")
        return SnapshotTaken(stream_id, at_ms, position, content_type, body)


def damaged_snapshots(query: Query) -> list[str]:
    """The snapshots that are not as committed."""
    damaged: list[str] = []
    for stream_id, position in query(f"SELECT {_KEYS} FROM snapshots ORDER BY {_KEYS}", ()):
        found = query(
            "SELECT checksum, body FROM snapshots WHERE stream_id = ? AND position = ?",
            (stream_id, position),
        )
        if any(checksum != append_checksum(stream_id, position, body) for checksum, body in found):
            damaged.append(f"stream {stream_id}, snapshot at {position}")
    return damaged
