"""Live templates in the memory engine."""

from __future__ import annotations

from headwater.core.live.templates import (
    LiveMutation,
    TemplateRecord,
    TemplatesRetired,
    TemplatesSaved,
)
from headwater.store.memory.tables import Tables


class Templates:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def apply(self, mutation: LiveMutation) -> None:
        log = self._tables.logs.get(mutation.stream_id)
        if log is None:
            # Its stream was deleted in the same transaction.
            return
        match mutation:
            case TemplatesSaved(_, templates):
                log.templates.update({record.spec.id: record for record in templates})
            case TemplatesRetired(_, specs):
                for spec in specs:
                    log.templates.pop(spec.id, None)

    def of_stream(self, stream_id: int) -> list[TemplateRecord]:
        with self._tables.lock:
            log = self._tables.logs.get(stream_id)
            return [log.templates[number] for number in sorted(log.templates)] if log else []
