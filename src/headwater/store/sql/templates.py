"""The live templates of streams."""

from __future__ import annotations

from typing import Final

from headwater.core.live.keys import to_hex
from headwater.core.live.templates import (
    LiveMutation,
    TemplateRecord,
    TemplatesRetired,
    TemplatesSaved,
)
from headwater.store.rows import Query, Row, read_template, template_row
from headwater.store.sql.tables import Tables

_KEYS: Final = "stream_id, template_id"


class TemplateChanges:
    """The changes to live templates within one transaction: the last one of each wins."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, str], Row | None] = {}

    def add(self, mutation: LiveMutation) -> None:
        match mutation:
            case TemplatesSaved(stream_id, templates):
                for record in templates:
                    self._rows[stream_id, to_hex(record.spec.id)] = template_row(stream_id, record)
            case TemplatesRetired(stream_id, specs):
                for spec in specs:
                    self._rows[stream_id, to_hex(spec.id)] = None

    def write(self, tables: Tables) -> None:
        retired = [key for key, row in self._rows.items() if row is None]
        tables.delete("live_templates", _KEYS, retired)
        saved = [row for row in self._rows.values() if row is not None]
        tables.upsert("live_templates", _KEYS, f"{_KEYS}, spec, last_seen, ttl_ms", saved)


class Templates:
    def __init__(self, query: Query) -> None:
        self._query = query

    def of_stream(self, stream_id: int) -> list[TemplateRecord]:
        found = self._query(
            "SELECT spec, last_seen, ttl_ms FROM live_templates WHERE stream_id = ?"
            " ORDER BY template_id",
            (stream_id,),
        )
        return [read_template(row) for row in found]
