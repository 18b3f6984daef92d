"""Changes to streams in the PostgreSQL database; their appends are written separately, in bulk."""

from __future__ import annotations

from typing import Final

from headwater.core.stream import (
    Appended,
    Closed,
    Created,
    Deleted,
    Mutation,
    ProducersForgotten,
    Purged,
    Reconfigured,
    SoftDeleted,
    StreamConfig,
    Touched,
    Trimmed,
    TrimPlanned,
    Undeleted,
)
from headwater.store import rows
from headwater.store.postgresql.releases import (
    release,
    release_created,
    release_deleted,
    release_soft_deleted,
    release_trimmed,
)
from headwater.store.postgresql.tables import StatementTables
from headwater.store.postgresql.values import bigints
from headwater.store.rows import (
    CREATED_COLUMNS,
    DELETED,
    KEPT,
    LIVE,
    SETTINGS_COLUMNS,
    SOFT_DELETED,
    Row,
)
from headwater.store.sql.streams import Words

WORDS: Final = Words(
    streams="streams s LEFT JOIN LATERAL (SELECT start + octet_length(body) AS last_byte,"
    " first_message + messages AS last_message FROM ops WHERE stream_id = s.id"
    " ORDER BY start DESC LIMIT 1) AS last ON true LEFT JOIN LATERAL (SELECT until AS sealed_byte,"
    " first_message + messages AS sealed_message FROM extents WHERE run = s.id"
    # Without rows, the last append is in history. With rows, this is not evaluated.
    " AND last_byte IS NULL ORDER BY start DESC LIMIT 1) AS sealed ON true",
    last_byte="coalesce(last_byte, sealed_byte)",
    last_message="coalesce(last_message, sealed_message)",
    producers="producers p JOIN streams s ON s.id = p.stream_id",
    shard="s.shard",
)
_STATUS: Final = "status, deleted_at, kept_until"


class StreamChanges:
    """The changes to streams within one transaction, one statement for each kind.

    Removed streams are written first, to make room for new ones at the same path; other changes
    concern only one stream each, so the order between streams does not matter.
    """

    def __init__(self) -> None:
        self._created: dict[int, StreamConfig] = {}
        self._beside: dict[int, int] = {}
        """Streams that are in the shard of another stream."""
        self._status: dict[int, tuple[int, int | None, int | None]] = {}
        """Status, when it was deleted, and until when it is kept."""
        self._undeleted: dict[int, int] = {}
        """Undeleted streams, and the position from which they keep their data."""
        self._closed: dict[int, Row] = {}
        self._settings: dict[int, Row] = {}
        self._kept_from: dict[int, int] = {}
        self._touched: dict[int, int] = {}
        self._stream_seqs: dict[int, str] = {}
        self._trim_dues: dict[int, int | None] = {}
        self._forgotten: list[tuple[int, str]] = []

    def add(self, mutation: Mutation) -> None:
        match mutation:
            case Appended():
                if mutation.stream_seq is not None:
                    self._stream_seqs[mutation.stream_id] = mutation.stream_seq
                if mutation.trim_due_ms is not None:
                    self._trim_dues[mutation.stream_id] = mutation.trim_due_ms
            case Created(config, beside):
                self._created[config.id] = config
                source_id = config.source_id or beside
                if source_id is not None:
                    self._beside[config.id] = source_id
            case Closed(stream_id, at_ms, producer):
                self._closed[stream_id] = (at_ms, *(producer or (None, None, None)))
            case Reconfigured(stream_id, at_ms, config):
                self._settings[stream_id] = rows.settings_row(config, at_ms)
                self._touched.pop(stream_id, None)
                self._trim_dues.pop(stream_id, None)
            case Trimmed(stream_id, _, config):
                self._kept_from[stream_id] = config.kept_from
            case TrimPlanned(stream_id, due_ms):
                self._trim_dues[stream_id] = due_ms
            case Touched(stream_id, at_ms):
                self._touched[stream_id] = at_ms
            case ProducersForgotten(stream_id, ids):
                self._forgotten += [(stream_id, producer_id) for producer_id in ids]
            case SoftDeleted(stream_id, at_ms):
                self._status[stream_id] = (SOFT_DELETED, at_ms, None)
            case Deleted(stream_id, at_ms, kept_until_ms):
                status = DELETED if kept_until_ms is None else KEPT
                self._status[stream_id] = (status, at_ms, kept_until_ms)
            case Undeleted(stream_id, at_ms, state):
                self._status[stream_id] = (LIVE, None, None)
                self._touched[stream_id] = at_ms
                self._undeleted[stream_id] = state.config.kept_from
            case Purged(stream_id):
                self._status[stream_id] = (DELETED, None, None)
            case _:
                pass

    def write(self, tables: StatementTables) -> None:
        self._release(tables)
        gone = [(i, *status) for i, status in self._status.items() if i not in self._created]
        tables.update("streams", "id", _STATUS, gone)
        if self._created:
            tables.use_ids("streams", max(self._created))
        created = [self._created_row(config) for config in self._created.values()]
        tables.insert("streams", f"{CREATED_COLUMNS}, {_STATUS}", created)
        if self._beside:
            tables.execute(
                "UPDATE streams t SET shard = s.shard FROM unnest(?, ?) AS v (id, beside)"
                " JOIN streams s ON s.id = v.beside WHERE t.id = v.id",
                (bigints(list(self._beside)), bigints(list(self._beside.values()))),
            )
        settings = [(i, *row) for i, row in self._settings.items()]
        tables.update("streams", "id", SETTINGS_COLUMNS, settings)
        closed = [(i, *row) for i, row in self._closed.items()]
        closing = "closed_at, closed_by_id, closed_by_epoch, closed_by_seq"
        tables.update("streams", "id", closing, closed)
        tables.update("streams", "id", "kept_from", [*self._kept_from.items()])
        moved = ", deadline = deadline + (v.touched_at - t.touched_at)"
        tables.update("streams", "id", "touched_at", [*self._touched.items()], moved)
        tables.update("streams", "id", "last_stream_seq", [*self._stream_seqs.items()])
        tables.update("streams", "id", "trim_due", [*self._trim_dues.items()])
        tables.delete("producers", "stream_id, producer_id", self._forgotten)

    def _created_row(self, config: StreamConfig) -> Row:
        return (*rows.created_row(config), *self._status.get(config.id, (LIVE, None, None)))

    def _release(self, tables: StatementTables) -> None:
        """Release what is no longer needed; see `headwater.store.garbage`."""
        trimmed = {i: at for i, at in self._kept_from.items() if i not in self._created}
        if trimmed:
            release_trimmed(tables, trimmed)
        stored = [(i, status) for i, (status, *_) in self._status.items() if i not in self._created]
        if soft_deleted := [i for i, status in stored if status == SOFT_DELETED]:
            release_soft_deleted(tables, soft_deleted)
        if deleted := [i for i, status in stored if status in (DELETED, KEPT)]:
            release_deleted(tables, deleted)
        # Release again: its earlier releases may be gone.
        release(tables, [(i, 0, at) for i, at in self._undeleted.items() if at])
        shrunk = {*self._status, *self._kept_from}
        release_created(tables, [c for i, c in self._created.items() if i in shrunk])
