"""The protocol again, as naively as it can be written, to compare the real thing with.

Nothing is shared and nothing is clever here. A fork copies the lists of its source, a producer
keeps every accepted request, and forks are counted by looking at every stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.core import errors
from headwater.core.errors import StreamError

Refusal = type[StreamError]


class ProducerHistory:
    """One producer's accepted requests, all of them, and what follows from them."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, int]] = []

    def answer(self, epoch: int, seq: int) -> tuple[str, int | None]:
        newest = max((e for e, _ in self.accepted), default=None)
        if newest is not None and epoch < newest:
            return "stale", newest
        if newest is not None and epoch > newest and seq != 0:
            return "must start at zero", None
        seen = [s for e, s in self.accepted if e == epoch]
        if seq in seen:
            return "duplicate", None
        if seq != len(seen):
            return "gap", len(seen)
        return "accepted", None


@dataclass
class PlainBody:
    """A request body with a known outcome."""

    sent: bytes
    messages: list[bytes] | None
    """Its messages in JSON mode; None if it is not JSON."""


@dataclass
class PlainRequest:
    body: PlainBody
    content_type: str | None
    close: bool = False
    producer: tuple[str, int, int] | None = None
    stream_seq: str | None = None


@dataclass
class PlainStream:
    path: str
    json: bool
    ttl_ms: int | None
    expires_at_ms: int | None
    touched_ms: int
    closed: bool = False
    closed_by: tuple[str, int, int] | None = None
    gone: bool = False
    source: PlainStream | None = None
    asked_for: object = None
    lifetime_asked_for: bool = True
    appends: list[bytes] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    """The offset given out for the end of each append."""
    messages: int = 0
    stream_seq: str | None = None
    producers: dict[str, ProducerHistory] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return b"".join(self.appends)

    def is_expired(self, now_ms: int) -> bool:
        if self.ttl_ms is not None:
            return now_ms >= self.touched_ms + self.ttl_ms
        return self.expires_at_ms is not None and now_ms >= self.expires_at_ms


class PlainStreams:
    """All streams: a dict of lists."""

    def __init__(self) -> None:
        self.streams: dict[str, PlainStream] = {}

    def forks_of(self, stream: PlainStream) -> int:
        return sum(other.source is stream for other in self.streams.values())

    def find(self, path: str, now_ms: int) -> PlainStream | Refusal:
        stream = self.streams.get(path)
        if stream is None:
            return errors.StreamNotFound
        if stream.gone:
            return errors.StreamGone
        if stream.is_expired(now_ms):
            return errors.StreamGone if self.forks_of(stream) else errors.StreamNotFound
        return stream

    # ── Create ───────────────────────────────────────────────────────────────────────────────

    def create(self, wanted: PlainStream, body: PlainBody, now_ms: int) -> PlainStream | Refusal:
        """Create the stream as wanted, or confirm that it exists, or say why not."""
        there = self.streams.get(wanted.path)
        if there is not None:
            expired = there.is_expired(now_ms)
            if there.gone or (expired and self.forks_of(there)):
                return errors.PathReserved
            if not expired:
                return there if _same(there, wanted) else errors.ConfigConflict
        if body.sent and wanted.json and body.messages is None:
            return errors.InvalidJson
        if there is not None:
            self.remove(there)
        self.streams[wanted.path] = wanted
        if body.sent:
            _add(wanted, body)
        return wanted

    def fork_point(
        self, source_path: str, index: int | None, sub_offset: int, now_ms: int
    ) -> tuple[PlainStream, list[bytes], int] | Refusal:
        """The appends that a fork begins with and the messages in them, or why it cannot be
        created.

        `index` is the number of whole appends to inherit, None for all of them.
        """
        source = self.find(source_path, now_ms)
        if source is errors.StreamGone:
            return errors.SourceDeleted
        if not isinstance(source, PlainStream):
            return source
        taken = source.appends[:index]
        if sub_offset:
            following = source.appends[len(taken) : len(taken) + 1]
            piece = _first(following, sub_offset, json=source.json)
            if piece is None:
                return errors.InvalidFork
            taken = [*taken, piece]
        count = sum(_messages_in(append) for append in taken) if source.json else len(taken)
        return source, taken, count

    # ── Append, close ────────────────────────────────────────────────────────────────────────

    def append(self, path: str, request: PlainRequest, now_ms: int) -> str | Refusal:
        """`accepted`, `duplicate` or `closed already`; or why not."""
        stream = self.find(path, now_ms)
        if not isinstance(stream, PlainStream):
            return stream
        verdict = "accepted"
        if request.producer is not None:
            name, epoch, seq = request.producer
            history = stream.producers.setdefault(name, ProducerHistory())
            verdict, _ = history.answer(epoch, seq)
        if verdict == "stale":
            return errors.StaleEpoch
        if stream.closed:
            return _on_closed(stream, request)
        fault = _content_fault(stream, request)
        if fault is not None:
            return fault
        if verdict == "must start at zero":
            return errors.EpochMustStartAtZero
        if verdict == "gap":
            return errors.SequenceGap
        if verdict == "duplicate":
            return "duplicate"
        if not _sorts_after(request.stream_seq, stream.stream_seq):
            return errors.StreamSeqConflict
        _accept(stream, request, now_ms)
        return "accepted"

    # ── Delete ───────────────────────────────────────────────────────────────────────────────

    def delete(self, path: str, now_ms: int) -> Refusal | None:
        stream = self.find(path, now_ms)
        if not isinstance(stream, PlainStream):
            return stream
        self.remove(stream)
        return None

    def remove(self, stream: PlainStream) -> None:
        if self.forks_of(stream):
            stream.gone = True
            return
        del self.streams[stream.path]
        source = stream.source
        if source is not None and source.gone and not self.forks_of(source):
            self.remove(source)


def _same(there: PlainStream, wanted: PlainStream) -> bool:
    same_lifetime = (there.ttl_ms, there.expires_at_ms) == (wanted.ttl_ms, wanted.expires_at_ms)
    if wanted.asked_for is not None and not wanted.lifetime_asked_for:
        same_lifetime = not there.lifetime_asked_for
    return (
        there.asked_for == wanted.asked_for
        and there.json == wanted.json
        and there.closed == wanted.closed
        and same_lifetime
    )


def _on_closed(stream: PlainStream, request: PlainRequest) -> str | Refusal:
    if request.producer is not None:
        name, *numbers = request.producer
        accepted = stream.producers[name].accepted if name in stream.producers else []
        return "duplicate" if tuple(numbers) in accepted else errors.StreamClosed
    if request.close and not request.body.sent:
        return "closed already"
    return errors.StreamClosed


def _content_fault(stream: PlainStream, request: PlainRequest) -> Refusal | None:
    if not request.body.sent:
        return None if request.close else errors.EmptyBody
    if request.content_type is None:
        return errors.MissingContentType
    if (request.content_type.lower() == "application/json") != stream.json:
        return errors.ContentTypeMismatch
    if stream.json and request.body.messages is None:
        return errors.InvalidJson
    if stream.json and request.body.messages == []:
        return errors.EmptyBody
    return None


def _sorts_after(received: str | None, last: str | None) -> bool:
    return received is None or last is None or received.encode() > last.encode()


def _accept(stream: PlainStream, request: PlainRequest, now_ms: int) -> None:
    if request.body.sent:
        _add(stream, request.body)
        if request.stream_seq is not None:
            stream.stream_seq = request.stream_seq
    if request.producer is not None:
        name, epoch, seq = request.producer
        stream.producers[name].accepted.append((epoch, seq))
    if request.close:
        stream.closed, stream.closed_by = True, request.producer
    stream.touched_ms = max(stream.touched_ms, now_ms)


def _add(stream: PlainStream, body: PlainBody) -> None:
    if not stream.json:
        stream.appends.append(body.sent)
        stream.messages += 1
    elif body.messages:
        stream.appends.append(b"".join(message + b"," for message in body.messages))
        stream.messages += len(body.messages)


def _messages_in(append: bytes) -> int:
    """Messages of the model contain no commas."""
    return append.count(b",")


def _first(following: list[bytes], count: int, *, json: bool) -> bytes | None:
    """The first `count` bytes or messages of the next append, if it has that many."""
    if not following:
        return None
    append = following[0]
    if not json:
        return append[:count] if count <= len(append) else None
    pieces = [piece + b"," for piece in append.split(b",")[:-1]]
    return b"".join(pieces[:count]) if count <= len(pieces) else None
