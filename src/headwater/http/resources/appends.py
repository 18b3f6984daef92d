"""Appends over HTTP: from the headers of a request to a command, and from its reply to a response.

Most appends have no headers of their own, or those of a producer. Once the head of such a request
is known, the next ones with that head take a shortcut.
"""

from __future__ import annotations

from headwater.core.decisions import Append, AppendReply
from headwater.core.durability import RELAXED
from headwater.core.errors import InvalidHeader
from headwater.core.producers import ProducerStamp, parse_seq, parse_stamp
from headwater.core.stream import Appended
from headwater.http import headers as names
from headwater.http.messages import Headers, Request, Response, Shortcut
from headwater.service.log import Log
from headwater.service.replies import Waiter

Fields = tuple[str | None, bool, ProducerStamp | None, str | None, str | None]
"""What headers say about an append: the fields of a command after its body."""


def append_command(request: Request) -> Append:
    head = request.head
    if head is None:
        return Append(request.body, *_fields(request))
    fields: Fields | None = head.append
    if fields is None:
        fields = head.append = _fields(request)
    elif fields[2] is not None:
        fields = (*fields[:2], _producer(request), *fields[3:])
    return Append(request.body, *fields)


def _fields(request: Request) -> Fields:
    header = request.header
    return (
        header(names.CONTENT_TYPE),
        request.flag(names.STREAM_CLOSED),
        None if names.PRODUCER_HEADERS.isdisjoint(request.headers) else _producer(request),
        header(names.STREAM_SEQ),
        header(names.MESSAGE_ID),
    )


def _producer(request: Request) -> ProducerStamp | None:
    header = request.header
    return parse_stamp(
        header(names.PRODUCER_ID), header(names.PRODUCER_EPOCH), header(names.PRODUCER_SEQ)
    )


def append_response(reply: AppendReply) -> Response:
    lines = _offset_lines(reply.next_offset)
    if reply.is_plain:
        return Response(204, lines=lines)
    headers: Headers = []
    status = 204
    if reply.producer is not None:
        lines += _producer_lines(reply.producer)
        status = 204 if reply.duplicate or reply.close_only else 200
    if reply.closed:
        headers.append(("Stream-Closed", "true"))
    if reply.relaxed:
        headers.append(("Stream-Durability", RELAXED))
    if reply.duplicate_ids:
        headers.append(("Stream-Duplicate-Ids", str(reply.duplicate_ids)))
    return Response(status, headers, lines=lines)


def _offset_lines(offset: str) -> bytes:
    return b"Stream-Next-Offset: %b\r\nCache-Control: no-store\r\n" % offset.encode()


def _producer_lines(producer: ProducerStamp) -> bytes:
    return b"Producer-Epoch: %d\r\nProducer-Seq: %d\r\n" % producer[1:]


# ── Shortcuts ────────────────────────────────────────────────────────────────────────────────


def shortcut_of(log: Log, path: str, fields: Fields) -> Shortcut | None:
    """The shortcut of appends with such headers, if there is one."""
    content_type, close, producer, stream_seq, message_id = fields
    if close or stream_seq is not None or message_id is not None:
        return None
    if producer is None:
        return PlainAppends(log, path, content_type)
    return ProducerAppends(log, path, content_type, producer)


class PlainAppends:
    """The `Shortcut` of appends without headers of their own."""

    __slots__ = ("_append", "_content_type", "_path")
    status = 204

    def __init__(self, log: Log, path: str, content_type: str | None) -> None:
        self._append = log.append_plain
        self._path = path
        self._content_type = content_type

    def take(self, request: Request, waiter: Waiter) -> bool:
        return self._append(self._path, self._content_type, request.body, waiter)

    def render(self, outcome: Appended) -> tuple[bytes, bytes]:
        return _offset_lines(outcome.next_offset), b""


class ProducerAppends(PlainAppends):
    """The `Shortcut` of a producer's appends, which differ by their sequence number."""

    __slots__ = ("_epoch", "_id")
    status = 200

    def __init__(self, log: Log, path: str, content_type: str | None, one: ProducerStamp) -> None:
        super().__init__(log, path, content_type)
        self._id = one.id
        self._epoch = one.epoch

    def take(self, request: Request, waiter: Waiter) -> bool:
        try:
            seq = parse_seq(request.headers[names.PRODUCER_SEQ].decode("latin-1"))
        except InvalidHeader:
            # The handler says what comes first.
            return False
        stamp = ProducerStamp(self._id, self._epoch, seq)
        return self._append(self._path, self._content_type, request.body, waiter, stamp)

    def render(self, outcome: Appended) -> tuple[bytes, bytes]:
        assert outcome.producer is not None
        return _offset_lines(outcome.next_offset) + _producer_lines(outcome.producer), b""
