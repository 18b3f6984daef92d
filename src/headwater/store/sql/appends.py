"""Single appends, as far as they are in rows."""

from __future__ import annotations

from headwater.core.errors import DataCorrupt
from headwater.core.stream import Appended
from headwater.store import rows
from headwater.store.engine.appends import Outline
from headwater.store.rows import OP_COLUMNS, Query


class RowAppends:
    def __init__(self, query: Query) -> None:
        self._query = query

    def append_at(self, run: int, position: int) -> Appended | None:
        found = self._query(
            f"SELECT {OP_COLUMNS} FROM ops WHERE stream_id = ? AND start <= ?"
            " ORDER BY start DESC LIMIT 1",
            (run, position),
        )
        if not found:
            return None
        if not rows.op_is_intact(found[0]):
            raise DataCorrupt(f"stream {run} at {found[0][1]}")
        append = rows.read_op(found[0])
        return append if position < append.end else None

    def outline_at(self, run: int, position: int) -> Outline | None:
        found = self._query(
            "SELECT start, start + length(body), first_message, created_at FROM ops"
            " WHERE stream_id = ? AND start <= ? ORDER BY start DESC LIMIT 1",
            (run, position),
        )
        return Outline(*found[0]) if found and position < found[0][1] else None
