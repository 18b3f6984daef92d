"""Streams as rows of the SQLite database; their appends are written elsewhere, together."""

from __future__ import annotations

from typing import Final

import apsw

from headwater.core.lineage import Lineage
from headwater.core.producers import ProducerState
from headwater.core.stream import (
    Appended,
    Closed,
    Created,
    Deleted,
    ForkCounted,
    Mutation,
    ProducerAdvanced,
    ProducersForgotten,
    Purged,
    Reconfigured,
    SoftDeleted,
    StreamState,
    Touched,
    Trimmed,
    TrimPlanned,
    Undeleted,
)
from headwater.core.subscriptions.state import StreamTail
from headwater.store import rows
from headwater.store.engine import (
    DeletedStream,
    IdleProducer,
    LoadedStream,
    SoftDeletedStream,
    StreamSummary,
)
from headwater.store.rows import (
    CONFIG_COLUMNS,
    CREATED_COLUMNS,
    DELETED,
    KEPT,
    LIVE,
    SETTINGS_COLUMNS,
    SOFT_DELETED,
    STATE_COLUMNS,
    Query,
    Row,
)
from headwater.store.sqlite.appends import Appends
from headwater.store.sqlite.ids import next_id
from headwater.store.sqlite.inserts import insert_rows

# Of several that were deleted at a path, the last one; none if there is a stream again.
_UNDELETABLE: Final = (
    f"WHERE status = {KEPT} AND path >= ?1 AND path > ?2 AND path < ?1 || char(1114111)"
    f" AND id = (SELECT id FROM streams k WHERE status = {KEPT} AND k.path = streams.path"
    " ORDER BY deleted_at DESC, id DESC LIMIT 1)"
    " AND NOT EXISTS (SELECT 1 FROM streams t WHERE t.status < 2 AND t.path = streams.path)"
    " ORDER BY path LIMIT ?3"
)
_CONFIG_WIDTH: Final = len(CONFIG_COLUMNS.split(","))
# In the rows, or in history if there are none.
_LAST_BYTE: Final = (
    "coalesce((SELECT start + length(body) FROM ops WHERE stream_id = streams.id"
    " ORDER BY start DESC LIMIT 1),"
    " (SELECT until FROM extents WHERE run = streams.id ORDER BY start DESC LIMIT 1))"
)
# The upper bound lets the index on the path stop where the prefix does.
_LISTED: Final = (
    "WHERE status < 2 AND path >= ?1 AND path > ?2 AND path < ?1 || char(1114111)"
    f" AND status = {LIVE} ORDER BY path LIMIT ?3"
)


def write_change(write: apsw.Connection, mutation: Mutation) -> None:
    match mutation:
        case Created(config):
            insert_rows(write, "streams", CREATED_COLUMNS, [rows.created_row(config)])
        case Closed(stream_id, at_ms, producer):
            write.execute(
                "UPDATE streams SET closed_at = ?, closed_by_id = ?, closed_by_epoch = ?,"
                " closed_by_seq = ? WHERE id = ?",
                (at_ms, *(producer or (None, None, None)), stream_id),
            )
        case Reconfigured(stream_id, at_ms, config):
            values = rows.settings_row(config, at_ms)
            marks = ", ".join("?" * len(values))
            write.execute(
                f"UPDATE streams SET ({SETTINGS_COLUMNS}) = ({marks}) WHERE id = ?",
                (*values, stream_id),
            )
        case Trimmed(stream_id, _, config):
            write.execute(
                "UPDATE streams SET kept_from = ? WHERE id = ?", (config.kept_from, stream_id)
            )
        case TrimPlanned(stream_id, due_ms):
            write.execute("UPDATE streams SET trim_due = ? WHERE id = ?", (due_ms, stream_id))
        case Touched(stream_id, at_ms):
            write.execute(
                "UPDATE streams SET deadline = deadline + (?1 - touched_at), touched_at = ?1"
                " WHERE id = ?2",
                (at_ms, stream_id),
            )
        case SoftDeleted(stream_id, at_ms):
            write.execute(
                "UPDATE streams SET status = ?, deleted_at = ? WHERE id = ?",
                (SOFT_DELETED, at_ms, stream_id),
            )
        case Deleted(stream_id, at_ms, kept_until_ms):
            status = DELETED if kept_until_ms is None else KEPT
            write.execute(
                "UPDATE streams SET status = ?, deleted_at = ?, kept_until = ? WHERE id = ?",
                (status, at_ms, kept_until_ms, stream_id),
            )
        case Undeleted(stream_id, at_ms, state):
            deadline = rows.stored_deadline(state.config.lifetime, at_ms)
            write.execute(
                "UPDATE streams SET status = ?, deleted_at = NULL, kept_until = NULL,"
                " touched_at = ?, deadline = ? WHERE id = ?",
                (LIVE, at_ms, deadline, stream_id),
            )
        case Purged(stream_id):
            write.execute(
                "UPDATE streams SET status = ? WHERE id = ? AND status = ?",
                (DELETED, stream_id, KEPT),
            )
        case ProducersForgotten(stream_id, ids):
            write.executemany(
                "DELETE FROM producers WHERE stream_id = ? AND producer_id = ?",
                [(stream_id, producer_id) for producer_id in ids],
            )
        case ForkCounted() | Appended() | ProducerAdvanced():
            pass


class Streams:
    def __init__(self, query: Query, appends: Appends, producers_preloaded_max: int) -> None:
        self._query = query
        self._appends = appends
        self._producers_max = producers_preloaded_max

    def next_id(self) -> int:
        return next_id(self._query, "streams")

    def load(self, path: str) -> LoadedStream | None:
        return self._load("path = ? AND status < 2", path)

    def load_id(self, stream_id: int) -> LoadedStream | None:
        return self._load("id = ? AND status < 2", stream_id)

    def load_deleted(self, path: str) -> LoadedStream | None:
        newest = f"status = {KEPT} AND path = ? ORDER BY deleted_at DESC, id DESC LIMIT 1"
        return self._load(newest, path)

    def deleted(self, prefix: str, after: str, limit: int) -> list[DeletedStream]:
        found = self._query(
            f"SELECT deleted_at, kept_until, {CONFIG_COLUMNS}, {STATE_COLUMNS} FROM streams"
            f" {_UNDELETABLE}",
            (prefix, after, limit),
        )
        return [
            DeletedStream(StreamSummary.of(self._state(tuple(row))), deleted_at, kept_until)
            for deleted_at, kept_until, *row in found
        ]

    def purgeable(self, now_ms: int, limit: int) -> list[tuple[int, str]]:
        found = self._query(
            f"SELECT id, path FROM streams WHERE status = {KEPT} AND kept_until <= ?"
            " ORDER BY kept_until LIMIT ?",
            (now_ms, limit),
        )
        return [(row[0], row[1]) for row in found]

    def kept_beyond(self, most: int, limit: int) -> list[tuple[int, str]]:
        found = self._query(
            f"SELECT id, path FROM streams WHERE status = {KEPT}"
            " ORDER BY kept_until DESC LIMIT ? OFFSET ?",
            (limit, most),
        )
        return [(row[0], row[1]) for row in found]

    def path_of(self, stream_id: int) -> str | None:
        found = self._query("SELECT path FROM streams WHERE id = ? AND status < 2", (stream_id,))
        return found[0][0] if found else None

    def _load(self, condition: str, value: str | int) -> LoadedStream | None:
        found = self._query(
            f"SELECT {CONFIG_COLUMNS}, {STATE_COLUMNS} FROM streams WHERE {condition}", (value,)
        )
        if not found:
            return None
        state = self._state(found[0])
        stream_id = state.config.id
        producers = self._query(
            "SELECT producer_id, epoch, seq, used_at FROM producers WHERE stream_id = ? LIMIT ?",
            (stream_id, self._producers_max + 1),
        )
        state.producers = {row[0]: ProducerState(*row[1:]) for row in producers}
        state.producer_count = len(producers)
        complete = len(producers) <= self._producers_max
        if not complete:
            # As many as a stream may have, at most.
            counted = self._query(
                "SELECT count(*) FROM producers WHERE stream_id = ?", (stream_id,)
            )
            state.producer_count = counted[0][0]
        return LoadedStream(state, complete)

    def _state(self, row: Row) -> StreamState:
        config = rows.read_config(row[:_CONFIG_WIDTH])
        forks = self._query(
            "SELECT count(*) FROM streams WHERE source_id = ? AND status < 2", (config.id,)
        )
        end = self._appends.end(config.id)
        return rows.read_state(config, row[_CONFIG_WIDTH:], end, forks[0][0])

    def producer(self, stream_id: int, producer_id: str) -> ProducerState | None:
        found = self._query(
            "SELECT epoch, seq, used_at FROM producers WHERE stream_id = ? AND producer_id = ?",
            (stream_id, producer_id),
        )
        return ProducerState(*found[0]) if found else None

    def idle_producers(self, before_ms: int, limit: int) -> list[IdleProducer]:
        found = self._query(
            "SELECT s.path, s.id, p.producer_id FROM producers p INDEXED BY producers_used"
            " CROSS JOIN streams s ON s.id = p.stream_id WHERE p.used_at < ? AND s.status < 2"
            " ORDER BY p.used_at LIMIT ?",
            (before_ms, limit),
        )
        return [IdleProducer(*row) for row in found]

    def summaries(self, prefix: str, after: str, limit: int) -> list[StreamSummary]:
        found = self._query(
            f"SELECT {CONFIG_COLUMNS}, {STATE_COLUMNS} FROM streams {_LISTED}",
            (prefix, after, limit),
        )
        return [StreamSummary.of(self._state(row)) for row in found]

    def tails(self, prefix: str, after: str, limit: int) -> list[StreamTail]:
        found = self._query(
            f"SELECT path, id, inherited, {_LAST_BYTE} FROM streams {_LISTED}",
            (prefix, after, limit),
        )
        tails: list[StreamTail] = []
        for path, stream_id, inherited, last_byte in found:
            lineage = Lineage(stream_id, rows.read_inherited(inherited))
            end = lineage.base if last_byte is None else last_byte
            tails.append(StreamTail(path, lineage, end))
        return tails

    def soft_deleted(self, after_id: int, limit: int) -> list[SoftDeletedStream]:
        found = self._query(
            "SELECT id, path, EXISTS (SELECT 1 FROM streams WHERE source_id = s.id AND status < 2)"
            " FROM streams s WHERE status = 1 AND id > ? ORDER BY id LIMIT ?",
            (after_id, limit),
        )
        return [SoftDeletedStream(one, path, bool(forks)) for one, path, forks in found]

    def trimmable(self, now_ms: int, limit: int) -> list[str]:
        found = self._query(
            "SELECT path FROM streams WHERE trim_due <= ? AND trim_due IS NOT NULL AND status = 0"
            " ORDER BY trim_due LIMIT ?",
            (now_ms, limit),
        )
        return [row[0] for row in found]

    def expired(self, now_ms: int, limit: int) -> list[str]:
        found = self._query(
            "SELECT path FROM streams WHERE deadline <= ? AND deadline IS NOT NULL AND status = 0"
            " ORDER BY deadline LIMIT ?",
            (now_ms, limit),
        )
        return [row[0] for row in found]

    def next_deadline_ms(self) -> int | None:
        found = self._query(
            "SELECT min(deadline) FROM streams WHERE deadline IS NOT NULL AND status = 0", ()
        )
        deadline: int | None = found[0][0]
        return deadline
