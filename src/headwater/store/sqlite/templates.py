"""Live templates in the SQLite database."""

from __future__ import annotations

import apsw

from headwater.core.live.keys import to_hex
from headwater.core.live.templates import (
    LiveMutation,
    TemplateRecord,
    TemplatesRetired,
    TemplatesSaved,
)
from headwater.store.rows import Query, read_template, template_row


def write_templates(write: apsw.Connection, mutation: LiveMutation) -> None:
    match mutation:
        case TemplatesSaved(stream_id, templates):
            write.executemany(
                "INSERT OR REPLACE INTO live_templates VALUES (?, ?, ?, ?, ?)",
                [template_row(stream_id, record) for record in templates],
            )
        case TemplatesRetired(stream_id, specs):
            write.executemany(
                "DELETE FROM live_templates WHERE stream_id = ? AND template_id = ?",
                [(stream_id, to_hex(spec.id)) for spec in specs],
            )


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
