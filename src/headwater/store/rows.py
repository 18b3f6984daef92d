"""Rows and the values they represent: one codec for each table, for all engines with tables.

The meaning of a column is defined here; the schema of each engine declares it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from headwater.core.expiry import FOREVER, Lifetime, touch_interval_ms
from headwater.core.groups.config import GroupConfig
from headwater.core.groups.state import GroupRecord, GroupState, MessageRef, Outstanding, Phase
from headwater.core.lineage import ForkRequest, Inherited, Lineage
from headwater.core.live.keys import to_hex
from headwater.core.live.profile import GENERIC, pack_profile, unpack_profile
from headwater.core.live.templates import TemplateRecord, TemplateSpec
from headwater.core.mutations import AnyMutation
from headwater.core.producers import ProducerStamp, ProducerState, state_after
from headwater.core.retention import Retention, trim_due_at_first
from headwater.core.stream import (
    STAMPED,
    Appended,
    ProducersForgotten,
    StreamConfig,
    StreamState,
)
from headwater.core.subscriptions.config import SubscriptionConfig
from headwater.core.subscriptions.state import (
    NO_WAKE,
    Mark,
    StoredSubscription,
    SubscriptionRecord,
    Wake,
)
from headwater.core.subscriptions.state import Phase as WakePhase
from headwater.core.unique_ids import UniqueIds
from headwater.store.checksums import append_checksum

LIVE: Final = 0
SOFT_DELETED: Final = 1
DELETED: Final = 2
KEPT: Final = 3
"""Deleted, but kept for a while, so that it can be undeleted."""

Row = tuple[Any, ...]
Query = Callable[[str, tuple[object, ...]], list[Row]]
NextId = Callable[[Query, str], int]
"""The smallest id that a table has never assigned."""

CONFIG_COLUMNS: Final = (
    "id, path, content_type, created_at, ttl_s, expires_at, expires_text, lifetime_inherited,"
    " source_id, fork_source, fork_offset, fork_sub_offset, inherited, base_messages,"
    " version, description, unique_ids, id_pointer, profile, retention_s, retention_bytes,"
    " kept_from, relaxed"
)
CREATED_COLUMNS: Final = f"{CONFIG_COLUMNS}, base, touched_at, deadline, trim_due"
SETTINGS_COLUMNS: Final = (
    "version, description, ttl_s, expires_at, expires_text, lifetime_inherited, retention_s,"
    " retention_bytes, touched_at, deadline, profile, unique_ids, trim_due, relaxed"
)
STATE_COLUMNS: Final = (
    "touched_at, closed_at, closed_by_id, closed_by_epoch, closed_by_seq, last_stream_seq, status,"
    " trim_due"
)
OP_COLUMNS: Final = (
    "stream_id, start, first_message, messages, created_at, checksum,"
    " producer_id, producer_epoch, producer_seq, message_id, body"
)

GROUP_COLUMNS: Final = (
    "id, stream_id, name, created_at, config, paused, cursor_number, cursor_start, cursor_place"
)
DELIVERY_COLUMNS: Final = (
    "group_id, number, start, place, phase, until, deliveries, token, consumer, key"
)
SUBSCRIPTION_COLUMNS: Final = (
    "id, name, created_at, base_url, config, generation, phase, wake_id, until, attempts, holder"
)
LINK_COLUMNS: Final = "subscription_id, path, explicit, stream_id, acked"
_NO_PRODUCER: Final = (None, None, None)
_NO_LIFETIME: Final = (None, None, None)
_runs = msgspec.json.Decoder(list[tuple[int, int]])
_group_config = msgspec.json.Decoder(GroupConfig)
_subscription_config = msgspec.json.Decoder(SubscriptionConfig)
_spec = msgspec.json.Decoder(TemplateSpec)


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
        int(config.relaxed),
    )


def created_row(config: StreamConfig) -> Row:
    """Values for CREATED_COLUMNS."""
    at_ms = config.created_at_ms
    deadline = stored_deadline(config.lifetime, at_ms)
    trim_due = trim_due_at_first(config.retention, at_ms)
    return (*stream_row(config), config.lineage.base, at_ms, deadline, trim_due)


def settings_row(config: StreamConfig, at_ms: int) -> Row:
    """Values for SETTINGS_COLUMNS: what changes with a stream's settings."""
    lifetime, retention = config.lifetime, config.retention
    return (
        config.version,
        config.description,
        lifetime.ttl_s,
        lifetime.expires_at_ms,
        lifetime.expires_at_text,
        int(config.lifetime_inherited),
        *((retention.age_s, retention.size_bytes) if retention else (None, None)),
        at_ms,
        stored_deadline(lifetime, at_ms),
        stored_profile(config),
        config.unique_ids.mode if config.unique_ids else None,
        trim_due_at_first(retention, at_ms),
        int(config.relaxed),
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
        lifetime=FOREVER if row[4:7] == _NO_LIFETIME else Lifetime(*row[4:7]),
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
        relaxed=bool(row[22]),
    )


def read_state(
    config: StreamConfig, row: Row, end: tuple[int, int] | None, forks: int
) -> StreamState:
    """A state from STATE_COLUMNS and the end of the stream's own appends (position, messages)."""
    touched_at, closed_at, closed_by_id, closed_by_epoch, closed_by_seq, *rest = row
    stream_seq, status, trim_due = rest
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
        trim_due_ms=trim_due,
    )


def stored_deadline(lifetime: Lifetime, touched_at_ms: int) -> int | None:
    """When to check whether the stream has expired, given that the stored access time may lag."""
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
        append.message_id,
        body,
    )


def read_op(row: Row) -> Appended:
    """The inverse of `op_row`. The checksum is not verified here."""
    producer = ProducerStamp(row[6], row[7], row[8]) if row[6] is not None else None
    return Appended(row[0], row[1], row[10], row[2], row[3], row[4], producer, message_id=row[9])


def op_is_intact(row: Row) -> bool:
    return bool(row[5] == append_checksum(row[0], row[1], row[10]))


Producers = dict[tuple[int, str], ProducerState]
"""The producer states after a batch, by stream and producer."""


PRODUCER_COLUMNS: Final = "stream_id, producer_id, epoch, seq, used_at"


def note_producer(producers: Producers, mutation: AnyMutation) -> None:
    if isinstance(mutation, STAMPED):
        if mutation.producer is not None:
            stamp = mutation.producer
            producers[mutation.stream_id, stamp.id] = state_after(stamp, mutation.at_ms)
    elif isinstance(mutation, ProducersForgotten):
        for producer_id in mutation.ids:
            producers.pop((mutation.stream_id, producer_id), None)


# ── Groups ───────────────────────────────────────────────────────────────────────────────────


def group_row(record: GroupRecord, config: GroupConfig, cursor: MessageRef) -> Row:
    """Values for GROUP_COLUMNS."""
    return (*record, msgspec.json.encode(config).decode(), 0, *cursor)


def read_group(row: Row) -> GroupState:
    """The inverse of `group_row`, without the messages."""
    return GroupState(
        GroupRecord(*row[:4]), _group_config.decode(row[4]), MessageRef(*row[6:9]), bool(row[5])
    )


def delivery_row(group_id: int, message: Outstanding) -> Row:
    """Values for DELIVERY_COLUMNS."""
    return (
        group_id,
        *message.ref,
        int(message.phase),
        message.until_ms,
        message.deliveries,
        message.token,
        message.consumer,
        message.key,
    )


def read_delivery(row: Row) -> Outstanding:
    """The inverse of `delivery_row`."""
    return Outstanding(
        MessageRef(row[1], row[2], row[3]), Phase(row[4]), row[5], row[6], row[7], row[8], row[9]
    )


# ── Subscriptions ────────────────────────────────────────────────────────────────────────────


def subscription_row(record: SubscriptionRecord, config: SubscriptionConfig) -> Row:
    """Values for SUBSCRIPTION_COLUMNS, before the first wake."""
    return (*record, msgspec.json.encode(config).decode(), *wake_row(NO_WAKE))


def wake_row(wake: Wake) -> Row:
    return (
        wake.generation,
        int(wake.phase),
        wake.wake_id,
        wake.until_ms,
        wake.attempts,
        wake.holder,
    )


def link_row(subscription_id: int, mark: Mark) -> Row:
    """Values for LINK_COLUMNS."""
    return subscription_id, mark.path, int(mark.explicit), mark.stream_id, mark.acked


def read_subscription(row: Row, links: list[Row]) -> StoredSubscription:
    """The inverse of `subscription_row`; links without the subscription's id."""
    generation, phase, *rest = row[5:]
    return StoredSubscription(
        SubscriptionRecord(*row[:4]),
        _subscription_config.decode(row[4]),
        Wake(generation, WakePhase(phase), *rest),
        [Mark(path, bool(explicit), *place) for path, explicit, *place in links],
    )


# ── Live templates ───────────────────────────────────────────────────────────────────────────


def template_row(stream_id: int, record: TemplateRecord) -> Row:
    spec = msgspec.json.encode(record.spec).decode()
    return stream_id, to_hex(record.spec.id), spec, record.last_seen_ms, record.ttl_ms


def read_template(row: Row) -> TemplateRecord:
    """The inverse of `template_row`, from the columns after the keys."""
    return TemplateRecord(_spec.decode(row[0]), row[1], row[2])
