"""Appending to a stream, and closing it.

These checks run in order, and the first failure decides: the stream exists; its producer's epoch is
not stale; it is not closed; there is a body of the right content type; the body is valid; the
producer's sequence is the next one; `Stream-Seq` sorts after the last; no id is a duplicate; there
is room for one more producer if this one is unknown. So a client that meets a closed stream always
learns that it is closed, and a fenced producer that it is fenced. Closing needs no body, ignores
the content type and may be repeated. A stored request that its producer repeats after the close is
a duplicate and not a conflict: it has already been done.
"""

from __future__ import annotations

from headwater.core import content_types, producers
from headwater.core.content import NO_CONTENT, Content, IsKnown, nothing_known
from headwater.core.decisions.commands import Append, AppendReply
from headwater.core.errors import (
    ContentTypeMismatch,
    EmptyBody,
    InvalidHeader,
    MissingContentType,
    StreamClosed,
    StreamSeqConflict,
)
from headwater.core.json_mode import MESSAGES_ANY, encode_one
from headwater.core.limits import STREAM_SEQ_CHARS_MAX
from headwater.core.mutations import Decision, StreamDecision
from headwater.core.producers import UNLIMITED, ProducerLimits, ProducerStamp, ProducerState
from headwater.core.stream import (
    Appended,
    Closed,
    Mutation,
    ProducerAdvanced,
    StreamState,
    Trimmed,
)
from headwater.core.unique_ids import Mode


def decide_append(
    state: StreamState,
    command: Append,
    now_ms: int,
    is_known: IsKnown = nothing_known,
    on_duplicate: Mode | None = None,
    messages_max: int = MESSAGES_ANY,
    producer_limits: ProducerLimits = UNLIMITED,
) -> StreamDecision[AppendReply]:
    """Decide on an append to a stream that `require` let through.

    `is_known` says whether the stream holds a message id; only streams that check ids use it. The
    stream's settings say what happens to duplicates, unless `on_duplicate` does.
    """
    stamp = command.producer
    known = None
    if stamp is not None:
        known = producer_limits.remembered(state.producers.get(stamp.id), now_ms)
        producers.check_epoch(known, stamp)
    if state.closed:
        return _after_close(state, command, known)
    if not command.body and command.close:
        content = NO_CONTENT
    else:
        _check_content(state, command)
        content = command.content(state.config, messages_max)
    if stamp is not None and producers.is_duplicate(known, stamp):
        assert known is not None
        return _duplicate(state, stamp.id, known)
    if command.stream_seq is not None:
        _check_stream_seq(state, command.stream_seq)
    if content.ids:
        content = content.without_duplicates(state.config, is_known, on_duplicate)
    if stamp is not None and stamp.id not in state.producers:
        producer_limits.check_room(state.producer_count)
    return _accept(state, command, content, now_ms)


def plain_append(
    state: StreamState,
    content_type: str | None,
    body: bytes,
    now_ms: int,
    stamp: ProducerStamp | None = None,
    producer_limits: ProducerLimits = UNLIMITED,
) -> Appended | None:
    """What `decide_append` makes of a mere body, if nothing about the stream is special.

    Nearly every append is like that, so this is the shortest way to the same mutation. If it has a
    producer, it is that producer's next one. None if it takes a full decision.
    """
    config = state.config
    if (
        not body
        or content_type != config.content_type
        or not config.is_plain
        or state.closed
        or state.soft_deleted
        or state.deleted
    ):
        return None
    if stamp is not None:
        known = producer_limits.remembered(state.producers.get(stamp.id), now_ms)
        if not producers.is_next(known, stamp):
            return None
    stored = encode_one(body) if config.is_json else body
    if stored is None:
        return None
    return Appended(config.id, state.tail, stored, state.messages, 1, now_ms, stamp)


def _after_close(
    state: StreamState, command: Append, known: ProducerState | None
) -> StreamDecision[AppendReply]:
    stamp = command.producer
    if stamp is None:
        if command.close and not command.body:
            return Decision(AppendReply(state.tail_token, True, close_only=True))
    elif known is not None and producers.was_stored(known, stamp):
        return _duplicate(state, stamp.id, known)
    elif stamp == state.closed_by:
        return Decision(AppendReply(state.tail_token, True, stamp, duplicate=True))
    raise StreamClosed(state.tail_token)


def _duplicate(
    state: StreamState, producer_id: str, known: ProducerState
) -> StreamDecision[AppendReply]:
    highest = ProducerStamp(producer_id, known.epoch, known.seq)
    return Decision(AppendReply(state.tail_token, state.closed, highest, duplicate=True))


def _check_content(state: StreamState, command: Append) -> None:
    if not command.body:
        raise EmptyBody("send at least one byte, or Stream-Closed: true to close the stream")
    if command.content_type is None:
        raise MissingContentType
    expected = state.config.content_type
    given = command.content_type
    if given != expected and not content_types.is_same(given, expected):
        raise ContentTypeMismatch(expected, given)


def _check_stream_seq(state: StreamState, stream_seq: str) -> None:
    if len(stream_seq) > STREAM_SEQ_CHARS_MAX:
        raise InvalidHeader("Stream-Seq", f"has at most {STREAM_SEQ_CHARS_MAX} characters")
    last = state.last_stream_seq
    if last is not None and stream_seq.encode() <= last.encode():
        raise StreamSeqConflict(last, stream_seq)


def _accept(
    state: StreamState, command: Append, content: Content, now_ms: int
) -> StreamDecision[AppendReply]:
    stream_id = state.config.id
    mutations: tuple[Mutation, ...] = ()
    end = state.tail
    if content.body:
        append = content.append_to(state, now_ms, command.producer, command.stream_seq)
        end = append.end
        mutations = (append,)
        if 0 < state.config.kept_from == state.tail:
            # The append before it was kept only to show where the stream ends.
            mutations = (append, Trimmed(stream_id, now_ms, state.config))
    elif command.producer is not None and not command.close:
        mutations = (ProducerAdvanced(stream_id, now_ms, command.producer),)
    if command.close:
        mutations = (*mutations, Closed(stream_id, now_ms, command.producer))
    reply = AppendReply(
        state.token(end),
        command.close,
        command.producer,
        close_only=not command.body,
        duplicate_ids=content.duplicates,
        relaxed=state.config.relaxed and not command.close,
    )
    return Decision(reply, mutations)
