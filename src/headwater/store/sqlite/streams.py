"""Changes to streams as rows of the SQLite database; appends are written elsewhere, together."""

from __future__ import annotations

import apsw

from headwater.core.stream import (
    Appended,
    Closed,
    Created,
    Deleted,
    ForkCounted,
    Mutation,
    ProducerAdvanced,
    Reconfigured,
    SoftDeleted,
    Touched,
    Trimmed,
)
from headwater.store.sqlite.engine import rows
from headwater.store.sqlite.inserts import insert_rows
from headwater.store.sqlite.rows import CONFIG_COLUMNS
from headwater.store.sqlite.schema import DELETED, SOFT_DELETED


def write_change(write: apsw.Connection, mutation: Mutation) -> None:
    match mutation:
        case Created(config):
            touched = config.created_at_ms
            deadline = rows.stored_deadline(config.lifetime, touched)
            columns = f"{CONFIG_COLUMNS}, touched_at, deadline"
            row = (*rows.stream_row(config), touched, deadline)
            insert_rows(write, "streams", columns, [row])
        case Closed(stream_id, at_ms, producer):
            write.execute(
                "UPDATE streams SET closed_at = ?, closed_by_id = ?, closed_by_epoch = ?,"
                " closed_by_seq = ? WHERE id = ?",
                (at_ms, *(producer or (None, None, None)), stream_id),
            )
        case Reconfigured(stream_id, at_ms, config):
            lifetime, retention = config.lifetime, config.retention
            write.execute(
                "UPDATE streams SET version = ?, description = ?, ttl_s = ?, expires_at = ?,"
                " expires_text = ?, lifetime_inherited = ?, retention_s = ?,"
                " retention_bytes = ?, touched_at = ?, deadline = ?, profile = ? WHERE id = ?",
                (
                    config.version,
                    config.description,
                    lifetime.ttl_s,
                    lifetime.expires_at_ms,
                    lifetime.expires_at_text,
                    int(config.lifetime_inherited),
                    *((retention.age_s, retention.size_bytes) if retention else (None, None)),
                    at_ms,
                    rows.stored_deadline(lifetime, at_ms),
                    rows.stored_profile(config),
                    stream_id,
                ),
            )
        case Trimmed(stream_id, _, config):
            write.execute(
                "UPDATE streams SET kept_from = ? WHERE id = ?", (config.kept_from, stream_id)
            )
        case Touched(stream_id, at_ms):
            write.execute(
                "UPDATE streams SET deadline = deadline + (?1 - touched_at), touched_at = ?1"
                " WHERE id = ?2",
                (at_ms, stream_id),
            )
        case SoftDeleted(stream_id, at_ms) | Deleted(stream_id, at_ms):
            status = DELETED if isinstance(mutation, Deleted) else SOFT_DELETED
            write.execute(
                "UPDATE streams SET status = ?, deleted_at = ? WHERE id = ?",
                (status, at_ms, stream_id),
            )
        case ForkCounted() | Appended() | ProducerAdvanced():
            pass
