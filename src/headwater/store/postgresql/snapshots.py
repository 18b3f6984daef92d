"""Snapshots in the PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.core.errors import DataCorrupt
from headwater.core.snapshots import (
    SnapshotDropped,
    SnapshotInfo,
    SnapshotMutation,
    SnapshotTaken,
)
from headwater.store.checksums import append_checksum
from headwater.store.postgresql.values import Statement, upsert
from headwater.store.rows import Query

_COLUMNS: Final = "stream_id, position, content_type, created_at, checksum, body"


def snapshot_statements(mutation: SnapshotMutation) -> Iterator[Statement]:
    """One after the other: they are rare, and each may drop an older one."""
    match mutation:
        case SnapshotTaken(stream_id, at_ms, position, content_type, body, keep):
            checksum = append_checksum(stream_id, position, body)
            row = (stream_id, position, content_type, at_ms, checksum, body)
            yield upsert("snapshots", "stream_id, position", _COLUMNS, [row])
            yield (
                "DELETE FROM snapshots WHERE stream_id = %s AND position NOT IN (SELECT position"
                " FROM snapshots WHERE stream_id = %s ORDER BY position DESC LIMIT %s)",
                (stream_id, stream_id, keep),
            )
        case SnapshotDropped(stream_id, position):
            yield (
                "DELETE FROM snapshots WHERE stream_id = %s AND position = %s",
                (stream_id, position),
            )


class Snapshots:
    def __init__(self, query: Query) -> None:
        self._query = query

    def of_stream(self, stream_id: int) -> list[SnapshotInfo]:
        found = self._query(
            "SELECT position, content_type, octet_length(body), created_at FROM snapshots"
            " WHERE stream_id = %s ORDER BY position DESC",
            (stream_id,),
        )
        return [SnapshotInfo(*row) for row in found]

    def find(self, stream_id: int, position: int) -> SnapshotTaken | None:
        found = self._query(
            "SELECT created_at, content_type, checksum, body FROM snapshots"
            " WHERE stream_id = %s AND position = %s",
            (stream_id, position),
        )
        if not found:
            return None
        at_ms, content_type, checksum, body = found[0]
        if checksum != append_checksum(stream_id, position, body):
            raise DataCorrupt(f"the snapshot of stream {stream_id} at {position}")
        return SnapshotTaken(stream_id, at_ms, position, content_type, body)
