"""Snapshots in the SQLite database."""

from __future__ import annotations

import apsw

from headwater.core.errors import DataCorrupt
from headwater.core.snapshots import (
    SnapshotDropped,
    SnapshotInfo,
    SnapshotMutation,
    SnapshotTaken,
)
from headwater.store.checksums import append_checksum
from headwater.store.rows import Query


def write_snapshot(write: apsw.Connection, mutation: SnapshotMutation) -> None:
    match mutation:
        case SnapshotTaken(stream_id, at_ms, position, content_type, body, keep):
            checksum = append_checksum(stream_id, position, body)
            write.execute(
                "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)",
                (stream_id, position, content_type, at_ms, checksum, body),
            )
            write.execute(
                "DELETE FROM snapshots WHERE stream_id = ?1 AND position NOT IN (SELECT position"
                " FROM snapshots WHERE stream_id = ?1 ORDER BY position DESC LIMIT ?2)",
                (stream_id, keep),
            )
        case SnapshotDropped(stream_id, position):
            write.execute(
                "DELETE FROM snapshots WHERE stream_id = ? AND position = ?", (stream_id, position)
            )


def damaged_snapshots(connection: apsw.Connection) -> list[str]:
    """Which snapshots are not what was committed."""
    stored = connection.execute("SELECT stream_id, position, checksum, body FROM snapshots")
    return [
        f"stream {row[0]}, snapshot at {row[1]}"
        for row in stored
        if row[2] != append_checksum(row[0], row[1], row[3])
    ]


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
