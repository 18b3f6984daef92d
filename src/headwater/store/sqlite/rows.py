"""Rows of the SQLite database and the values they stand for, one codec for each table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from headwater.core.expiry import Lifetime, touch_interval_ms
from headwater.core.lineage import ForkRequest, Inherited, Lineage
from headwater.core.live.profile import GENERIC, pack_profile, unpack_profile
from headwater.core.producers import ProducerStamp
from headwater.core.retention import Retention
from headwater.core.stream import Appended, StreamConfig, StreamState
from headwater.core.unique_ids import UniqueIds
from headwater.store.checksums import append_checksum
from headwater.store.sqlite.schema import SOFT_DELETED

Row = tuple[Any, ...]
Query = Callable[[str, tuple[object, ...]], list[Row]]

CONFIG_COLUMNS: Final = (
    "id, path, content_type, created_at, ttl_s, expires_at, expires_text, lifetime_inherited,"
    " source_id, fork_source, fork_offset, fork_sub_offset, inherited, base_messages,"
    " version, description, unique_ids, id_pointer, profile, retention_s, retention_bytes,"
    " kept_from"
)
STATE_COLUMNS: Final = (
    "touched_at, closed_at, closed_by_id, closed_by_epoch, closed_by_seq, last_stream_seq, status"
)
OP_COLUMNS: Final = (
    "stream_id, start, first_message, messages, created_at, checksum,"
    " producer_id, producer_epoch, producer_seq, body"
)

_NO_PRODUCER: Final = (None, None, None)
_runs = msgspec.json.Decoder(list[tuple[int, int]])


def stream_row(config: StreamConfig) -> Row:
    """Values for CONFIG_COLUMNS."""
    fork = config.fork
    inherited = config.lineage.inherited
    return (
        config.id,
        config.path,
        config.content_type,
        config.created_at_ms,
        config.lifetime.ttl_s,
        config.lifetime.expires_at_ms,
        config.lifetime.expires_at_text,
        int(config.lifetime_inherited),
        config.source_id,
        fork.source if fork else None,
        fork.offset if fork else None,
        fork.sub_offset if fork else None,
        msgspec.json.encode(inherited).decode() if inherited else None,
        config.base_messages,
        config.version,
        config.description,
        config.unique_ids.mode if config.unique_ids else None,
        config.unique_ids.pointer if config.unique_ids else None,
        stored_profile(config),
        config.retention.age_s if config.retention else None,
        config.retention.size_bytes if config.retention else None,
        config.kept_from,
    )


def stored_profile(config: StreamConfig) -> str | None:
    return None if config.profile == GENERIC else pack_profile(config.profile)


def read_inherited(stored: str | None) -> tuple[Inherited, ...]:
    return tuple(Inherited(*run) for run in _runs.decode(stored)) if stored else ()


def read_config(row: Row) -> StreamConfig:
    """The inverse of `stream_row`."""
    return StreamConfig(
        id=row[0],
        path=row[1],
        content_type=row[2],
        created_at_ms=row[3],
        lifetime=Lifetime(row[4], row[5], row[6]),
        lifetime_inherited=bool(row[7]),
        lineage=Lineage(row[0], read_inherited(row[12])),
        source_id=row[8],
        fork=ForkRequest(row[9], row[10], row[11]) if row[9] is not None else None,
        base_messages=row[13],
        version=row[14],
        description=row[15],
        unique_ids=UniqueIds(row[16], row[17]) if row[16] is not None else None,
        profile=GENERIC if row[18] is None else unpack_profile(row[18]),
        retention=Retention(row[19], row[20]) if (row[19], row[20]) != (None, None) else None,
        kept_from=row[21],
    )


def read_state(
    config: StreamConfig, row: Row, end: tuple[int, int] | None, forks: int
) -> StreamState:
    """A state from STATE_COLUMNS and where the stream's own appends end (position, messages)."""
    touched_at, closed_at, closed_by_id, closed_by_epoch, closed_by_seq, stream_seq, status = row
    closed_by = None
    if closed_by_id is not None:
        closed_by = ProducerStamp(closed_by_id, closed_by_epoch, closed_by_seq)
    return StreamState(
        config,
        tail=end[0] if end else config.lineage.base,
        messages=end[1] if end else config.base_messages,
        touched_at_ms=touched_at + touch_interval_ms(config.lifetime),
        stored_touch_ms=touched_at,
        closed=closed_at is not None,
        closed_by=closed_by,
        last_stream_seq=stream_seq,
        forks=forks,
        soft_deleted=status == SOFT_DELETED,
    )


def stored_deadline(lifetime: Lifetime, touched_at_ms: int) -> int | None:
    """When to look whether the stream is over, given that the stored moment may lag."""
    return lifetime.deadline_ms(touched_at_ms + touch_interval_ms(lifetime))


def op_row(append: Appended) -> Row:
    """Values for OP_COLUMNS."""
    stream_id, start, body = append.stream_id, append.start, append.body
    return (
        stream_id,
        start,
        append.first_message,
        append.messages,
        append.at_ms,
        append_checksum(stream_id, start, body),
        *(append.producer or _NO_PRODUCER),
        body,
    )


def read_op(row: Row) -> Appended:
    """The inverse of `op_row`. Whether the checksum holds is a question of its own."""
    producer = ProducerStamp(row[6], row[7], row[8]) if row[6] is not None else None
    return Appended(row[0], row[1], row[9], row[2], row[3], row[4], producer)


def op_is_intact(row: Row) -> bool:
    return bool(row[5] == append_checksum(row[0], row[1], row[9]))


def next_id(query: Query, table: str) -> int:
    """The smallest id that a table has never given out."""
    found = query("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,))
    return int(found[0][0]) + 1 if found else 1
