"""The appends of a run that are in rows of the SQLite database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

import apsw

from headwater.core.errors import DataCorrupt
from headwater.core.lineage import Span
from headwater.core.stream import Appended
from headwater.store import rows
from headwater.store.checksums import append_checksum
from headwater.store.history.open_segments import OpenSegments
from headwater.store.rows import OP_COLUMNS, Query
from headwater.store.sql.appends import StoredAppends
from headwater.store.sqlite.database import translating

_IDS_PER_QUERY: Final = 500


class Appends(StoredAppends):
    def __init__(
        self, reader: Callable[[], apsw.Connection], query: Query, open_segments: OpenSegments
    ) -> None:
        super().__init__(query, open_segments)
        self._reader = reader

    def _rows(self, span: Span, limit: int, *, at_least_one: bool) -> list[bytes] | None:
        """Bodies from rows, the last one cut at the span's end; None if no row begins there."""
        bodies: list[bytes] = []
        position = span.start
        begins = False
        with translating(), closing(self._reader().cursor()) as cursor:
            for start, checksum, body in cursor.execute(
                "SELECT start, checksum, body FROM ops"
                " WHERE stream_id = ?1 AND start >= ?2 AND start < ?3"
                " AND EXISTS (SELECT 1 FROM ops WHERE stream_id = ?1 AND start = ?2)"
                " ORDER BY start",
                span,
            ):
                begins = True
                if (bodies or not at_least_one) and start + len(body) > limit:
                    break
                if start != position or checksum != append_checksum(span.run, start, body):
                    raise DataCorrupt(f"stream {span.run} at {start}")
                position += len(body)
                bodies.append(body)
        if bodies and position > span.end:
            bodies[-1] = bodies[-1][: span.end - position]
        return bodies if begins else None

    def _whole_rows(self, span: Span, max_bytes: int, max_messages: int) -> list[Appended]:
        """Appends in rows; none if no row begins there."""
        appends: list[Appended] = []
        position, messages = span.start, 0
        with translating(), closing(self._reader().cursor()) as cursor:
            for row in cursor.execute(
                f"SELECT {OP_COLUMNS} FROM ops"
                " WHERE stream_id = ?1 AND start >= ?2 AND start < ?3"
                " AND EXISTS (SELECT 1 FROM ops WHERE stream_id = ?1 AND start = ?2)"
                " ORDER BY start",
                span,
            ):
                append = rows.read_op(row)
                messages += append.messages
                too_large = append.end - span.start > max_bytes or messages > max_messages
                if appends and too_large:
                    break
                if append.start != position or not rows.op_is_intact(row):
                    raise DataCorrupt(f"stream {span.run} at {append.start}")
                position = append.end
                appends.append(append)
        return appends

    def known_ids(self, spans: Sequence[Span], ids: Sequence[str]) -> set[str]:
        found: set[str] = set()
        for first in range(0, len(ids), _IDS_PER_QUERY):
            few = ids[first : first + _IDS_PER_QUERY]
            marks = ",".join("?" * len(few))
            for span in spans:
                rows_found = self._query(
                    "SELECT message_id FROM message_ids"
                    f" WHERE stream_id = ? AND position < ? AND message_id IN ({marks})",
                    (span.run, span.end, *few),
                )
                found.update(row[0] for row in rows_found)
        return found
