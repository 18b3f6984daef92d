"""The appends of a run that are in rows of the PostgreSQL database."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.errors import DataCorrupt
from headwater.core.lineage import Span
from headwater.core.stream import Appended
from headwater.store import rows
from headwater.store.checksums import append_checksum
from headwater.store.postgresql.values import texts
from headwater.store.rows import OP_COLUMNS, Row
from headwater.store.sql.appends import StoredAppends
from headwater.store.sql.tables import Tables


def write_appends(tables: Tables, appends: Sequence[Appended], producers: rows.Producers) -> None:
    tables.insert("ops", OP_COLUMNS, [rows.op_row(append) for append in appends])
    ids = [(append.stream_id, *message) for append in appends for message in append.ids]
    tables.insert("message_ids", "stream_id, message_id, position", ids)
    found = [(*key, *state) for key, state in producers.items()]
    tables.upsert("producers", "stream_id, producer_id", rows.PRODUCER_COLUMNS, found)


class Appends(StoredAppends):
    def _rows(self, span: Span, limit: int, *, at_least_one: bool) -> list[bytes] | None:
        found = self._rows_from(span, limit, "start, checksum, body")
        if found and not at_least_one and span.start + len(found[0][-1]) > limit:
            return []
        bodies: list[bytes] = []
        position = span.start
        for start, checksum, body in found:
            if start != position or checksum != append_checksum(span.run, start, body):
                raise DataCorrupt(f"stream {span.run} at {start}")
            position += len(body)
            bodies.append(body)
        if position > span.end:
            bodies[-1] = bodies[-1][: span.end - position]
        return bodies or None

    def _rows_from(self, span: Span, limit: int, columns: str) -> list[Row]:
        """Rows that end before a limit, but at least one; none if no row begins at the start.

        Appends of a run are contiguous, so their starts say how far they reach.
        """
        found = self._query(
            f"SELECT {columns}, start FROM ops WHERE stream_id = ? AND start >= ? AND start < ?"
            " AND (start = ? OR start + octet_length(body) <= ?) ORDER BY start",
            (span.run, span.start, min(span.end, max(limit, span.start + 1)), span.start, limit),
        )
        if not found or found[0][-1] != span.start:
            return []
        return [row[:-1] for row in found]

    def _whole_rows(self, span: Span, max_bytes: int, max_messages: int) -> list[Appended]:
        appends: list[Appended] = []
        position, messages = span.start, 0
        for row in self._rows_from(span, span.start + max_bytes, OP_COLUMNS):
            append = rows.read_op(row)
            if append.start != position or not rows.op_is_intact(row):
                raise DataCorrupt(f"stream {span.run} at {append.start}")
            messages += append.messages
            if appends and messages > max_messages:
                break
            position = append.end
            appends.append(append)
        return appends

    def known_ids(self, spans: Sequence[Span], ids: Sequence[str]) -> set[str]:
        found: set[str] = set()
        wanted = texts(ids)
        for span in spans:
            stored = self._query(
                "SELECT message_id FROM message_ids"
                " WHERE stream_id = ? AND position < ? AND message_id = ANY(?)",
                (span.run, span.end, wanted),
            )
            found.update(row[0] for row in stored)
        return found
