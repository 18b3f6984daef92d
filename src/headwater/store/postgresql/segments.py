"""Segments in the PostgreSQL database; see `headwater.store.postgresql.history`."""

from __future__ import annotations

from typing import Final

from headwater.store.history.segment import PRESENT
from headwater.store.postgresql.clock import NOW_MS
from headwater.store.postgresql.values import bigints
from headwater.store.rows import Query

_EMPTY: Final = "NOT EXISTS (SELECT 1 FROM extents WHERE segment_id = segments.id)"


def begin_recording(write: Query, segment_id: int, node_id: int) -> bool:
    """Record that a segment is in its place; False if another node considers it abandoned."""
    return bool(
        write(
            f"UPDATE segments SET remote = {PRESENT} WHERE id = ? AND maker = ? RETURNING 1",
            (segment_id, node_id),
        )
    )


def let_go(write: Query, condition: str, values: tuple[object, ...], which: str = "") -> None:
    """Nothing more is added to some segments, and by now they may have no extents.

    They are locked before anything is read: a node that removes extents from them at the same time
    has finished, or waits and then checks too.
    """
    found = write(f"SELECT id FROM segments WHERE {condition} ORDER BY id FOR UPDATE", values)
    write(
        f"UPDATE segments SET maker = NULL, unused_at = CASE WHEN {_EMPTY} THEN {NOW_MS} END"
        f" WHERE id = ANY(?){which}",
        (bigints([row[0] for row in found]),),
    )
