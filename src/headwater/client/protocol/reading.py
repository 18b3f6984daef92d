"""One read of a stream as a state machine without IO.

A session knows how far it has received (`offset`) and says what to ask for next:

* it first catches up with plain reads, which caches and compression can help with, and only then
  goes live. `offset=now` is turned into a real offset by such a read too, so that a connection
  which breaks before its first event cannot make it skip what was appended meanwhile;
* live, it asks for a long-poll or an event stream from where it is. Falling behind (an answer that
  does not reach the end) sends it back to catching up;
* it is finished when the stream is closed and read to its end or, without `live`, at the end.

It moves only on a complete answer or on a control event, and only forward. Data events that were
not yet followed by their control event are dropped with the connection: the server will send them
again. An answer that brings data but does not move forward, or whose entity tag names another
start than the one asked for, answers some other request and is refused (a proxy that repeats an
answer makes every later one on that connection arrive one request too late). Together that is
why nothing is yielded twice and nothing is skipped.

A read from the start begins at the earliest message that retention has kept. The server names that
place (`Stream-Earliest-Offset`), so such an answer can be told from one to another request.
"""

from __future__ import annotations

import binascii
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from headwater.client.errors import BadRequest, StreamNotFound
from headwater.client.protocol.batch import Batch, Position, has_messages, is_json_array
from headwater.client.protocol.sse import SseParser
from headwater.client.protocol.streams import (
    ANSWER_BYTES_MAX,
    NOW,
    START,
    Live,
    Request,
    Response,
    read_request,
    unexpected,
)
from headwater.client.protocol.values import UNREADABLE
from headwater.core.content_types import is_json, media_type
from headwater.core.numbers import whole_number

_READ_TAG: Final = re.compile(
    r'(?:W/)?"[^":]*:(?P<start>-1|\d+_\d+):\d+_\d+(?::c)?(?:[;-]\w+)?"', re.ASCII
)


@dataclass(frozen=True, slots=True)
class Step:
    """What one answer or one control event says."""

    payloads: tuple[bytes, ...]
    next_offset: str
    cursor: str | None
    up_to_date: bool
    closed: bool
    close_reason: str | None = None


class ReadSession:
    """Where one reader is, what it has to ask for, and what it has received (`ready`)."""

    def __init__(self, url: str, *, start: Position, live: Live | None) -> None:
        self.ready: deque[Batch] = deque()
        self.offset = start.offset
        self.live = live
        self.content_type: str | None = None
        self.up_to_date = False
        self.closed = False
        self.close_reason: str | None = None
        self.url = url
        self._skip = start.skip
        self._cursor: str | None = None

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to ask for."""
        return self.closed or (self.up_to_date and self.live is None)

    def next_request(self) -> Request:
        """What to ask for now. An answer to it goes to `answered` or, for SSE, to `events`."""
        if self.live is not None and self.up_to_date:
            return read_request(self.url, offset=self.offset, live=self.live, cursor=self._cursor)
        return read_request(self.url, offset=self.offset)

    def answered(self, response: Response) -> None:
        """Take a granted catch-up or long-poll answer."""
        if response.next_offset is None:
            raise unexpected(response, "the answer has no Stream-Next-Offset", in_doubt=False)
        if response.status == 200:
            self.content_type = response.headers.get("content-type", self.content_type)
        earliest = response.headers.get("stream-earliest-offset")
        if not starts_at(response.headers.get("etag", ""), self.offset, earliest):
            raise unexpected(response, f"asked from {self.offset} on, got another part")
        # An answer that does not move is the end, whether or not the server says so.
        stands_still = response.status == 204 or response.next_offset == self.offset
        step = Step(
            (response.body,) if response.body else (),
            response.next_offset,
            response.headers.get("stream-cursor"),
            up_to_date=response.up_to_date or response.closed or stands_still,
            closed=response.closed,
            close_reason=response.headers.get("stream-close-reason"),
        )
        self.advance(step, response)

    def events(self, headers: Mapping[str, str]) -> EventSession:
        """Begin to take a granted event stream."""
        if media_type(headers.get("content-type")) != "text/event-stream":
            raise unexpected(Response(200, headers), "asked for events, got something else")
        return EventSession(self, headers)

    def advance(self, step: Step, response: Response) -> None:
        """Move forward, and queue a batch if the step has data or news."""
        self._check(step, response)
        batch = Batch(
            Position(self.offset),
            step.next_offset,
            self.content_type,
            step.up_to_date,
            step.closed,
            step.payloads,
        )
        if self._skip and batch:
            batch, self._skip = batch.without_first(self._skip)
        if self._skip and step.up_to_date:
            raise BadRequest(
                f"the saved position lies {self._skip} items past the end of the stream",
                status=response.status,
            )
        news = (step.up_to_date and not self.up_to_date) or step.closed
        self.offset = step.next_offset
        self.up_to_date, self.closed = step.up_to_date, step.closed
        self.close_reason = step.close_reason
        self._cursor = step.cursor or self._cursor
        if batch or news:
            self.ready.append(batch)

    def _check(self, step: Step, response: Response) -> None:
        if is_json(self.content_type):
            if not all(map(is_json_array, step.payloads)):
                raise unexpected(response, "the answer is not a complete JSON array")
            brings_data = any(map(has_messages, step.payloads))
        else:
            brings_data = any(step.payloads)
        if self.offset in (START, NOW):
            return
        # Offsets sort as text.
        if step.next_offset < self.offset or (brings_data and step.next_offset == self.offset):
            raise unexpected(
                response, f"asked from {self.offset} on, got an answer up to {step.next_offset}"
            )


def starts_at(etag: str, offset: str, earliest: str | None = None) -> bool:
    """Whether an answer with this entity tag can be one to a read from this offset.

    `earliest` is where the stream begins now if retention has dropped its beginning.

    Servers of this protocol build the tag of a read from where it starts and ends. A tag of any
    other form tells nothing. Only the second number of an offset counts: in a fork, the first one
    may name the stream that was forked from, or the fork.
    """
    tag = _READ_TAG.fullmatch(etag)
    if tag is None or offset == NOW:
        return True
    asked = earliest if offset == START and earliest is not None else offset
    return _byte_offset(tag["start"]) == _byte_offset(asked)


def _byte_offset(offset: str) -> int | str:
    number = offset.rpartition("_")[2]
    if offset == START:
        return 0
    position = whole_number(number)
    return offset if position is None else position


class EventSession:
    """One event stream connection of a session."""

    def __init__(self, session: ReadSession, headers: Mapping[str, str]) -> None:
        self.control_events = 0
        self._session = session
        self._response = Response(200, headers)
        self._base64 = headers.get("stream-sse-data-encoding", "").lower() == "base64"
        self._parser = SseParser()
        self._payloads: list[bytes] = []
        self._unfinished_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the event stream; the batches that they complete go to the session."""
        self._unfinished_bytes += len(chunk)
        if self._unfinished_bytes > ANSWER_BYTES_MAX:
            raise unexpected(self._response, f"an event is over {ANSWER_BYTES_MAX} bytes")
        for event in self._parser.feed(chunk):
            if event.name == "data":
                self._payloads.append(self._decoded(event.data))
            elif event.name == "control":
                self._session.advance(self._step(event.data), self._response)
                self.control_events += 1
                self._unfinished_bytes = 0
            elif event.name == "deleted":
                raise StreamNotFound("the stream was deleted while it was followed", status=404)

    def _decoded(self, data: bytes) -> bytes:
        if not self._base64:
            return data
        try:
            return binascii.a2b_base64(data.replace(b"\n", b""), strict_mode=True)
        except binascii.Error as error:
            raise unexpected(self._response, f"a data event is not base64: {error}") from error

    def _step(self, data: bytes) -> Step:
        try:
            control = msgspec.json.decode(data, type=_Control)
        except UNREADABLE as error:
            raise unexpected(self._response, f"a control event is unreadable: {error}") from error
        payloads, self._payloads = tuple(self._payloads), []
        return Step(
            payloads,
            control.streamNextOffset,
            control.streamCursor,
            up_to_date=control.upToDate or control.streamClosed,
            closed=control.streamClosed,
            close_reason=control.streamCloseReason,
        )


class _Control(msgspec.Struct):
    """The body of a control event, named as on the wire."""

    streamNextOffset: str
    streamCursor: str | None = None
    upToDate: bool = False
    streamClosed: bool = False
    streamCloseReason: str | None = None
