"""Segments in the PostgreSQL database; see `headwater.store.postgresql.history`."""

from __future__ import annotations

from typing import Final

from headwater.store.history.segment import PRESENT
from headwater.store.postgresql.clock import NOW_MS
from headwater.store.postgresql.values import bigints
from headwater.store.rows import Query

_EMPTY: Final = "NOT EXISTS (SELECT 1 FROM extents WHERE segment_id = segments.id)"


def begin_recording(write: Query, segment_id: int, node_id: int) -> bool:
    """Note that a segment is where it belongs; False if another node has taken it for abandoned."""
    return bool(
        write(
            f"UPDATE segments SET remote = {PRESENT} WHERE id = ? AND maker = ? RETURNING 1",
            (segment_id, node_id),
        )
    )


def let_go(write: Query, condition: str, values: tuple[object, ...], which: str = "") -> None:
    """Nothing more comes into some segments, and maybe nothing lies in them by now.

    They are held before anybody looks: whoever takes an extent out of them at the same time has
    done so, or waits and then looks too.
    """
    found = write(f"SELECT id FROM segments WHERE {condition} ORDER BY id FOR UPDATE", values)
    write(
        f"UPDATE segments SET maker = NULL, unused_at = CASE WHEN {_EMPTY} THEN {NOW_MS} END"
        f" WHERE id = ANY(?){which}",
        (bigints([row[0] for row in found]),),
    )
