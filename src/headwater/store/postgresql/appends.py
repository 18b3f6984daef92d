"""The appends of a run, as rows of the PostgreSQL database."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.errors import DataCorrupt, UnknownOffset
from headwater.core.frames import Frame
from headwater.core.lineage import Span
from headwater.core.offsets import format_offset
from headwater.core.stream import Appended
from headwater.store import rows
from headwater.store.checksums import append_checksum
from headwater.store.engine.appends import Piece, SealedExtent, SeekBy
from headwater.store.postgresql.values import texts
from headwater.store.rows import OP_COLUMNS, Row
from headwater.store.seeking import last_before
from headwater.store.sql.appends import RowAppends
from headwater.store.sql.tables import Tables


def write_appends(tables: Tables, appends: Sequence[Appended], producers: rows.Producers) -> None:
    tables.insert("ops", OP_COLUMNS, [rows.op_row(append) for append in appends])
    ids = [(append.stream_id, *message) for append in appends for message in append.ids]
    tables.insert("message_ids", "stream_id, message_id, position", ids)
    found = [(*key, *state) for key, state in producers.items()]
    tables.upsert("producers", "stream_id, producer_id", rows.PRODUCER_COLUMNS, found)


class Appends(RowAppends):
    # ── Many ─────────────────────────────────────────────────────────────────────────────────

    def read(self, span: Span, max_bytes: int) -> list[bytes]:
        bodies: list[bytes] = []
        position = span.start
        for start, checksum, body in self._rows("start, checksum, body", span, max_bytes):
            if start != position or checksum != append_checksum(span.run, start, body):
                raise DataCorrupt(f"stream {span.run} at {start}")
            position += len(body)
            bodies.append(body)
        if position > span.end:
            bodies[-1] = bodies[-1][: span.end - position]
        return bodies

    def _rows(self, columns: str, span: Span, max_bytes: int) -> list[Row]:
        """Rows from the start of a span on: all that end within the bound, at least one.

        Appends of a run lie one after the other, so where they start says how far they go.
        """
        limit = span.start + max(max_bytes, 1)
        found = self._query(
            f"SELECT {columns}, start FROM ops WHERE stream_id = ? AND start >= ? AND start < ?"
            " AND (start = ? OR start + octet_length(body) <= ?) ORDER BY start",
            (span.run, span.start, min(span.end, limit), span.start, limit),
        )
        if not found or found[0][-1] != span.start:
            raise UnknownOffset(format_offset(span.run, span.start))
        return [row[:-1] for row in found]

    def read_pieces(self, span: Span, max_bytes: int) -> list[Piece]:
        return [*self.read(span, max_bytes)]

    def known_pieces(self, span: Span, max_bytes: int) -> list[Piece] | None:
        return None

    def frames(self, span: Span, max_bytes: int, max_messages: int) -> list[Frame]:
        appends: list[Appended] = []
        position, messages = span.start, 0
        for row in self._rows(OP_COLUMNS, span, max_bytes):
            append = rows.read_op(row)
            if append.start != position or not rows.op_is_intact(row):
                raise DataCorrupt(f"stream {span.run} at {append.start}")
            messages += append.messages
            if appends and messages > max_messages:
                break
            position = append.end
            appends.append(append)
        return [Frame.of(appends, span.end)]

    def sealed_extents(self, span: Span) -> list[SealedExtent]:
        return []

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

    # ── One ──────────────────────────────────────────────────────────────────────────────────

    def seek(self, span: Span, by: SeekBy, value: int) -> Appended | None:
        found = last_before(self.outline_at, span.run, (span.start, span.end), by, value)
        return self.append_at(span.run, found.start) if found else None
