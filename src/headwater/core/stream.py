"""What a stream is, and what can happen to it.

`StreamState` is everything that a decision needs to know about one stream. Only mutations change
it: `evolve` folds a mutation into the state, and the storage engines persist the same mutations, so
memory and disk cannot diverge.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from headwater.core import content_types
from headwater.core.expiry import FOREVER, Lifetime
from headwater.core.lineage import ForkRequest, Lineage
from headwater.core.live.profile import GENERIC, Profile
from headwater.core.offsets import format_offset
from headwater.core.producers import ProducerStamp, ProducerState, state_after
from headwater.core.retention import Retention, trim_due_at_first
from headwater.core.unique_ids import UniqueIds


@dataclass(frozen=True)
class StreamConfig:
    """The configuration from the stream's creation or the last change of its settings."""

    id: int
    path: str
    content_type: str
    created_at_ms: int
    lifetime: Lifetime = FOREVER
    lifetime_inherited: bool = False
    lineage: Lineage = field(default_factory=lambda: Lineage(0))
    source_id: int | None = None
    fork: ForkRequest | None = None
    # Messages inherited by a fork: its own count continues from there.
    base_messages: int = 0
    version: int = 0
    description: str | None = None
    unique_ids: UniqueIds | None = None
    profile: Profile = GENERIC
    retention: Retention | None = None
    # The first position that is still kept; see `headwater.core.retention`.
    kept_from: int = 0
    # Whether appends are acknowledged before they are committed; see `headwater.core.durability`.
    relaxed: bool = False

    @cached_property
    def is_json(self) -> bool:
        return content_types.is_json(self.content_type)

    @cached_property
    def is_plain(self) -> bool:
        """Whether nothing but its content type matters for an append."""
        return (
            self.lifetime == FOREVER
            and self.unique_ids is None
            and self.profile == GENERIC
            and self.retention is None
            and self.kept_from == 0
            and not self.relaxed
        )


@dataclass(slots=True)
class StreamState:
    """One stream as of its last mutation."""

    config: StreamConfig
    tail: int
    messages: int
    touched_at_ms: int
    stored_touch_ms: int
    closed: bool = False
    closed_by: ProducerStamp | None = None
    last_stream_seq: str | None = None
    # Those in memory, and the total count.
    producers: MutableMapping[str, ProducerState] = field(default_factory=dict)
    producer_count: int = 0
    forks: int = 0
    soft_deleted: bool = False
    deleted: bool = False
    # When to check whether it keeps more than it has to; see `headwater.core.retention`.
    trim_due_ms: int | None = None

    @classmethod
    def created(cls, config: StreamConfig) -> StreamState:
        now = config.created_at_ms
        due_ms = trim_due_at_first(config.retention, now)
        return cls(
            config,
            config.lineage.base,
            config.base_messages,
            now,
            now,
            trim_due_ms=due_ms,
        )

    def undeleted(self, now_ms: int) -> StreamState:
        """The state that a kept stream comes back in. Undeleting it counts as use."""
        return replace(
            self,
            producers=dict(self.producers),
            touched_at_ms=now_ms,
            stored_touch_ms=now_ms,
            deleted=False,
        )

    def token(self, position: int) -> str:
        return self.config.lineage.token_at(position)

    @property
    def tail_token(self) -> str:
        return self.token(self.tail)

    def is_expired(self, now_ms: int) -> bool:
        lifetime = self.config.lifetime
        return lifetime is not FOREVER and lifetime.is_over(self.touched_at_ms, now_ms)


# ── Mutations: what a decision changes, what an engine stores ────────────────────────────────


class Created(msgspec.Struct, frozen=True):
    config: StreamConfig
    beside: int | None = None
    """The stream it was made for, which must have the same owner."""
    shard: int | None = None
    """In a cluster, its shard if it was not made for another stream."""


class MessageId(NamedTuple):
    """The id of a message, and the position where that message begins."""

    id: str
    position: int


class Appended(msgspec.Struct, frozen=True, gc=False, tag=True, array_like=True):
    """One append, already in stored form. The hot path: one of these per request.

    The garbage collector need not track them: one cannot contain a reference cycle, and an engine
    in memory keeps millions.
    """

    stream_id: int
    start: int
    body: bytes
    first_message: int
    messages: int
    at_ms: int
    producer: ProducerStamp | None = None
    stream_seq: str | None = None
    ids: tuple[MessageId, ...] = ()
    message_id: str | None = None
    """The id that a header gave to its only message."""
    trim_due_ms: int | None = None
    """When to check what the stream has to keep, if that has changed."""

    @property
    def end(self) -> int:
        return self.start + len(self.body)

    @property
    def next_offset(self) -> str:
        return format_offset(self.stream_id, self.start + len(self.body))

    @property
    def stands_alone(self) -> bool:
        """Whether it changes only the tail of its stream."""
        return (
            self.producer is None
            and self.stream_seq is None
            and self.trim_due_ms is None
            and not self.ids
        )


class Closed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    stream_id: int
    at_ms: int
    producer: ProducerStamp | None = None


class ProducerAdvanced(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A producer's request was accepted but stored nothing: all its messages were duplicates."""

    stream_id: int
    at_ms: int
    producer: ProducerStamp


class ProducersForgotten(msgspec.Struct, frozen=True):
    """Producers that were idle for too long; see `headwater.core.producers`."""

    stream_id: int
    ids: tuple[str, ...]


class Reconfigured(msgspec.Struct, frozen=True):
    """A newer version of the stream's settings took effect."""

    stream_id: int
    at_ms: int
    config: StreamConfig


class Trimmed(msgspec.Struct, frozen=True):
    """The stream keeps less of its past: `config.kept_from` has moved on.

    If nothing is kept, the last append stays to show where the stream ends. The next append drops
    it, with a mutation of this kind that leaves `kept_from` where it is.
    """

    stream_id: int
    at_ms: int
    config: StreamConfig


class TrimPlanned(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """When to check again whether the stream keeps more than it has to; None: after an append."""

    stream_id: int
    due_ms: int | None


class Touched(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The time of the last access, stored now and then for streams with a TTL."""

    stream_id: int
    at_ms: int


class SoftDeleted(msgspec.Struct, frozen=True):
    """Deleted for everyone but its forks, which still read the data."""

    stream_id: int
    at_ms: int


class Deleted(msgspec.Struct, frozen=True):
    """Deleted: the path is free at once. The data is removed in the background, or kept a while."""

    stream_id: int
    at_ms: int
    kept_until_ms: int | None = None
    """Until when the stream can be undeleted; see `headwater.core.decisions.undelete`."""


class Undeleted(msgspec.Struct, frozen=True):
    """A deleted stream that was kept is back, in the state in which it was deleted."""

    stream_id: int
    at_ms: int
    state: StreamState


class Purged(msgspec.Struct, frozen=True):
    """A deleted stream that was kept is gone for good."""

    stream_id: int


class ForkCounted(msgspec.Struct, frozen=True):
    """A fork of this stream was added (+1) or removed (−1). Not stored: engines count the forks."""

    stream_id: int
    change: int


Mutation = (
    Created
    | Appended
    | ProducerAdvanced
    | ProducersForgotten
    | Closed
    | Reconfigured
    | Trimmed
    | TrimPlanned
    | Touched
    | SoftDeleted
    | Deleted
    | Undeleted
    | Purged
    | ForkCounted
)


STAMPED: Final = (Appended, ProducerAdvanced, Closed)
"""What a producer's request becomes."""


def evolve(state: StreamState, mutation: Mutation) -> None:
    """Fold one mutation into the state it belongs to."""
    match mutation:
        case Appended():
            state.tail = mutation.start + len(mutation.body)
            state.messages = mutation.first_message + mutation.messages
            if mutation.producer is not None:
                _advance(state, mutation.producer, mutation.at_ms)
            if mutation.stream_seq is not None:
                state.last_stream_seq = mutation.stream_seq
            if mutation.trim_due_ms is not None:
                state.trim_due_ms = mutation.trim_due_ms
            if mutation.at_ms > state.touched_at_ms:
                state.touched_at_ms = mutation.at_ms
        case Closed():
            state.closed = True
            state.closed_by = mutation.producer
            if mutation.producer is not None:
                _advance(state, mutation.producer, mutation.at_ms)
            _touch(state, mutation.at_ms)
        case ProducerAdvanced():
            _advance(state, mutation.producer, mutation.at_ms)
            _touch(state, mutation.at_ms)
        case ProducersForgotten():
            for producer_id in mutation.ids:
                state.producers.pop(producer_id, None)
            state.producer_count -= len(mutation.ids)
        case Reconfigured():
            state.config = mutation.config
            _touch(state, mutation.at_ms)
            state.stored_touch_ms = mutation.at_ms
            state.trim_due_ms = trim_due_at_first(mutation.config.retention, mutation.at_ms)
        case Trimmed():
            state.config = mutation.config
        case TrimPlanned():
            state.trim_due_ms = mutation.due_ms
        case Touched():
            _touch(state, mutation.at_ms)
            state.stored_touch_ms = mutation.at_ms
        case SoftDeleted():
            state.soft_deleted = True
        case Deleted():
            state.deleted = True
        case ForkCounted():
            state.forks += mutation.change
        case Purged():
            # It concerns not this stream but one that was deleted at the same path.
            pass
        case Created() | Undeleted():
            raise ValueError("a stream that is created starts from its own state")


def _advance(state: StreamState, stamp: ProducerStamp, at_ms: int) -> None:
    if stamp.id not in state.producers:
        state.producer_count += 1
    state.producers[stamp.id] = state_after(stamp, at_ms)


def _touch(state: StreamState, at_ms: int) -> None:
    state.touched_at_ms = max(state.touched_at_ms, at_ms)
