"""The decisions: given the state of a stream and a command, what happens?

Each function is pure. It returns the mutations to commit and the reply to give once they are
committed, or raises the `StreamError` that says why not. Nothing is decided anywhere else.

**Create.** A new path makes a stream. An existing one answers the same again if its configuration
is the one asked for, and is a conflict otherwise. A path whose stream was deleted but still has
forks cannot be created. A body is the first append; a stream may be created closed.

**Append and close.** The checks, in this order, and the first that fails decides: the stream
exists; its producer's epoch is not stale; it is not closed; there is a body of the right content
type; the body is valid; the producer's sequence is the next one; `Stream-Seq` sorts after the last.
So a client that meets a closed stream always learns that it is closed, and a fenced producer that
it is fenced. Closing needs no body, ignores the content type and may be repeated; the very request
that closed a stream, sent again by its producer, is a duplicate and not a conflict.

**Delete.** A stream with forks is soft-deleted: its path stays taken and its data stays for the
forks. Without forks it is deleted, and with it every soft-deleted ancestor that has no other fork.
A stream whose time is over is treated as if it had been deleted at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from headwater.core import content_types, json_mode, producers
from headwater.core.errors import (
    ConfigConflict,
    ContentTypeMismatch,
    EmptyBody,
    InvalidHeader,
    MissingContentType,
    PathReserved,
    SourceDeleted,
    StreamClosed,
    StreamGone,
    StreamNotFound,
    StreamSeqConflict,
)
from headwater.core.expiry import FOREVER, Lifetime, touch_interval_ms
from headwater.core.limits import STREAM_SEQ_CHARS_MAX
from headwater.core.lineage import ForkRequest, Lineage
from headwater.core.producers import ProducerStamp
from headwater.core.stream import (
    Appended,
    Closed,
    Created,
    Deleted,
    ForkCounted,
    Mutation,
    SoftDeleted,
    StreamConfig,
    StreamState,
    Touched,
)

R = TypeVar("R")

# ── Commands ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    content_type: str | None = None
    body: bytes = b""
    lifetime: Lifetime = FOREVER
    closed: bool = False
    fork: ForkRequest | None = None


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a new fork parts from its source, measured by whoever can read the source's data."""

    source: StreamState
    position: int
    messages: int


class Append(msgspec.Struct, frozen=True):
    body: bytes = b""
    content_type: str | None = None
    close: bool = False
    producer: ProducerStamp | None = None
    stream_seq: str | None = None


# ── Replies ──────────────────────────────────────────────────────────────────────────────────


class CreateReply(msgspec.Struct, frozen=True):
    new: bool
    content_type: str
    next_offset: str
    closed: bool


class AppendReply(msgspec.Struct, frozen=True):
    next_offset: str
    closed: bool
    producer: ProducerStamp | None = None
    """The producer's epoch and the highest sequence accepted from it."""
    duplicate: bool = False
    close_only: bool = False


class Decision(msgspec.Struct, Generic[R], frozen=True):
    reply: R
    mutations: tuple[Mutation, ...] = ()


# ── Access ───────────────────────────────────────────────────────────────────────────────────


def require(state: StreamState | None, path: str, now_ms: int) -> StreamState:
    """The stream, if it is there for everyone."""
    if state is None or state.deleted:
        raise StreamNotFound(path)
    if state.soft_deleted:
        raise StreamGone(path)
    if state.is_expired(now_ms):
        raise StreamGone(path) if state.forks else StreamNotFound(path)
    return state


def decide_touch(state: StreamState, now_ms: int) -> Touched | None:
    """Whether the stored moment of the last access has become too stale to leave as it is."""
    interval_ms = touch_interval_ms(state.config.lifetime)
    if interval_ms == 0 or now_ms - state.stored_touch_ms < interval_ms:
        return None
    return Touched(state.config.id, now_ms)


def is_taken(state: StreamState | None, now_ms: int) -> bool:
    """Whether a path has a stream, be it one that only its forks keep."""
    if state is None or state.deleted:
        return False
    return state.soft_deleted or state.forks > 0 or not state.is_expired(now_ms)


# ── Create ───────────────────────────────────────────────────────────────────────────────────


def decide_create(
    existing: StreamState | None,
    ancestors: tuple[StreamState, ...],
    command: Create,
    fork_point: ForkPoint | None,
    new_id: int,
    now_ms: int,
) -> Decision[CreateReply]:
    """Decide on a PUT. `ancestors` are the sources of the existing stream, nearest first.

    A fork point is needed only when the path is free; see `is_taken`.
    """
    if existing is not None and is_taken(existing, now_ms):
        if existing.soft_deleted or existing.is_expired(now_ms):
            raise PathReserved(command.path)
        return _confirm(existing, command)
    config = _configure(command, fork_point, new_id, now_ms)
    state = StreamState.created(config)
    mutations: list[Mutation] = [Created(config)]
    if existing is not None and not existing.deleted:
        mutations = [*_remove(existing, now_ms, ancestors), *mutations]
    if fork_point is not None:
        mutations.append(ForkCounted(fork_point.source.config.id, +1))
    next_position = state.tail
    if command.body:
        body, count = _stored(command.body, config, creating=True)
        if body:
            append = Appended(config.id, state.tail, body, state.messages, count, now_ms)
            mutations.append(append)
            next_position = append.end
    if command.closed:
        mutations.append(Closed(config.id, now_ms))
    reply = CreateReply(True, config.content_type, state.token(next_position), command.closed)
    return Decision(reply, tuple(mutations))


def _confirm(existing: StreamState, command: Create) -> Decision[CreateReply]:
    config = existing.config
    inherits = command.fork is not None
    if command.fork != config.fork:
        raise ConfigConflict("fork source or offset")
    wanted = command.content_type or (None if inherits else content_types.DEFAULT)
    if wanted and content_types.media_type(wanted) != content_types.media_type(config.content_type):
        raise ConfigConflict("content type")
    inherited = inherits and command.lifetime.is_forever and config.lifetime_inherited
    if not inherited and not command.lifetime.same_as(config.lifetime):
        raise ConfigConflict("Stream-TTL or Stream-Expires-At")
    if command.closed != existing.closed:
        raise ConfigConflict("open or closed state")
    return Decision(CreateReply(False, config.content_type, existing.tail_token, existing.closed))


def _configure(
    command: Create, fork_point: ForkPoint | None, new_id: int, now_ms: int
) -> StreamConfig:
    if fork_point is None:
        content_type = command.content_type or content_types.DEFAULT
        content_types.check_content_type(content_type)
        lineage = Lineage(new_id)
        return StreamConfig(
            new_id, command.path, content_type, now_ms, command.lifetime, lineage=lineage
        )
    source = fork_point.source.config
    content_type = command.content_type or source.content_type
    if content_types.media_type(content_type) != content_types.media_type(source.content_type):
        raise ContentTypeMismatch(source.content_type, content_type)
    inherits_lifetime = command.lifetime.is_forever
    return StreamConfig(
        id=new_id,
        path=command.path,
        content_type=content_type,
        created_at_ms=now_ms,
        lifetime=source.lifetime if inherits_lifetime else command.lifetime,
        lifetime_inherited=inherits_lifetime,
        lineage=Lineage(new_id, source.lineage.cut_at(fork_point.position)),
        source_id=source.id,
        fork=command.fork,
        base_messages=fork_point.messages,
    )


def require_source(state: StreamState | None, path: str, now_ms: int) -> StreamState:
    """The stream to fork from, if it can be."""
    try:
        return require(state, path, now_ms)
    except StreamGone:
        raise SourceDeleted(path) from None


# ── Append and close ─────────────────────────────────────────────────────────────────────────


def decide_append(state: StreamState, command: Append, now_ms: int) -> Decision[AppendReply]:
    """Decide on an append to a stream that `require` let through."""
    stamp = command.producer
    known = None
    if stamp is not None:
        known = state.producers.get(stamp.id)
        producers.check_epoch(known, stamp)
    if state.closed:
        return _repeat_close(state, command)
    if not command.body and command.close:
        body, count = b"", 0
    else:
        _check_content(state, command)
        body, count = _stored(command.body, state.config, creating=False)
    if stamp is not None and producers.is_duplicate(known, stamp):
        assert known is not None
        highest = ProducerStamp(stamp.id, known.epoch, known.seq)
        return Decision(AppendReply(state.tail_token, False, highest, duplicate=True))
    _check_stream_seq(state, command.stream_seq)
    return _accept(state, command, body, count, now_ms)


def _repeat_close(state: StreamState, command: Append) -> Decision[AppendReply]:
    stamp = command.producer
    if stamp is None and command.close and not command.body:
        return Decision(AppendReply(state.tail_token, True, close_only=True))
    if stamp is not None and stamp == state.closed_by:
        return Decision(AppendReply(state.tail_token, True, stamp, duplicate=True))
    raise StreamClosed(state.tail_token)


def _check_content(state: StreamState, command: Append) -> None:
    if not command.body:
        raise EmptyBody("send at least one byte, or Stream-Closed: true to close the stream")
    if command.content_type is None:
        raise MissingContentType
    expected = state.config.content_type
    if command.content_type != expected and content_types.media_type(
        command.content_type
    ) != content_types.media_type(expected):
        raise ContentTypeMismatch(expected, command.content_type)


def _stored(body: bytes, config: StreamConfig, *, creating: bool) -> tuple[bytes, int]:
    if config.is_json:
        return json_mode.encode(body, allow_empty=creating)
    return body, 1


def _check_stream_seq(state: StreamState, stream_seq: str | None) -> None:
    if stream_seq is None:
        return
    if len(stream_seq) > STREAM_SEQ_CHARS_MAX:
        raise InvalidHeader("Stream-Seq", f"has at most {STREAM_SEQ_CHARS_MAX} characters")
    last = state.last_stream_seq
    if last is not None and stream_seq.encode() <= last.encode():
        raise StreamSeqConflict(last, stream_seq)


def _accept(
    state: StreamState, command: Append, body: bytes, count: int, now_ms: int
) -> Decision[AppendReply]:
    stream_id = state.config.id
    mutations: tuple[Mutation, ...] = ()
    end = state.tail
    if body:
        append = Appended(
            stream_id,
            state.tail,
            body,
            state.messages,
            count,
            now_ms,
            command.producer,
            command.stream_seq,
        )
        end = append.end
        mutations = (append,)
    if command.close:
        mutations = (*mutations, Closed(stream_id, now_ms, command.producer))
    reply = AppendReply(
        state.token(end), command.close, command.producer, close_only=not command.body
    )
    return Decision(reply, mutations)


# ── Delete and expire ────────────────────────────────────────────────────────────────────────


def decide_delete(
    state: StreamState, ancestors: tuple[StreamState, ...], now_ms: int
) -> Decision[None]:
    """Delete a stream. `ancestors` are its sources, nearest first, as far as they are loaded."""
    return Decision(None, _remove(state, now_ms, ancestors))


def decide_expire(
    state: StreamState, ancestors: tuple[StreamState, ...], now_ms: int
) -> Decision[bool]:
    """Delete a stream whose time is over; the reply says whether it was."""
    if state.deleted or state.soft_deleted or not state.is_expired(now_ms):
        return Decision(False)
    return Decision(True, _remove(state, now_ms, ancestors))


def _remove(
    state: StreamState, now_ms: int, ancestors: tuple[StreamState, ...]
) -> tuple[Mutation, ...]:
    if state.forks:
        return (SoftDeleted(state.config.id, now_ms),)
    mutations: list[Mutation] = [Deleted(state.config.id, now_ms)]
    for ancestor in ancestors:
        mutations.append(ForkCounted(ancestor.config.id, -1))
        if not ancestor.soft_deleted or ancestor.forks > 1:
            break
        mutations.append(Deleted(ancestor.config.id, now_ms))
    return tuple(mutations)


__all__ = [
    "Append",
    "AppendReply",
    "Create",
    "CreateReply",
    "Decision",
    "ForkPoint",
    "decide_append",
    "decide_create",
    "decide_delete",
    "decide_expire",
    "decide_touch",
    "is_taken",
    "require",
    "require_source",
]
