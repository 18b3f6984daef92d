"""Changes to streams in the SQLite database; their appends are written elsewhere, in batches."""

from __future__ import annotations

from typing import Final

import apsw

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
    Touched,
    Trimmed,
    TrimPlanned,
    Undeleted,
)
from headwater.store import rows
from headwater.store.rows import (
    CREATED_COLUMNS,
    DELETED,
    KEPT,
    LIVE,
    SETTINGS_COLUMNS,
    SOFT_DELETED,
)
from headwater.store.sql.streams import Words
from headwater.store.sqlite.tables import insert_rows

# The last append is in the rows, or in history if there are none.
_LAST: Final = (
    "coalesce((SELECT {} FROM ops WHERE stream_id = s.id ORDER BY start DESC LIMIT 1),"
    " (SELECT {} FROM extents WHERE run = s.id ORDER BY start DESC LIMIT 1))"
)
WORDS: Final = Words(
    streams="streams s",
    last_byte=_LAST.format("start + length(body)", "until"),
    last_message=_LAST.format("first_message + messages", "first_message + messages"),
    producers="producers p INDEXED BY producers_used CROSS JOIN streams s ON s.id = p.stream_id",
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
