"""What passes between the connection and the handlers.

Handlers know nothing of sockets. They take a `Request` and give back a `Response`, an awaitable of
one, or an `EventStream` that is fed over time through a `Sink`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from headwater.core.errors import InvalidHeader
from headwater.http.headers import REQUEST_ID
from headwater.http.request_ids import request_id

Headers = list[tuple[str, str]]


class Request:
    __slots__ = (
        "_id",
        "began_s",
        "body",
        "headers",
        "keep_alive",
        "method",
        "on_disconnect",
        "path",
        "query",
        "route",
    )

    def __init__(self, method: str, path: bytes, query: bytes, headers: dict[bytes, bytes]) -> None:
        self.method = method
        self.path = path
        """As sent, still percent-encoded."""
        self.query = query
        self.headers = headers
        """Names in lower case; of a repeated header, the first value."""
        self.body = b""
        self.keep_alive = True
        self.on_disconnect: Callable[[], None] | None = None
        """Set by a handler that waits for news, to be told when nobody waits any more."""
        self.route = "other"
        """Which resource this is for, as a template: for figures, logs and traces."""
        self.began_s = 0.0
        """When it was its turn, by the clock of `time.perf_counter`."""
        self._id: str | None = None

    @property
    def id(self) -> str:
        """A name for this request in logs: what the client calls it, or one that is made here."""
        if self._id is None:
            self._id = request_id(self.headers.get(REQUEST_ID))
        return self._id

    def header(self, name: bytes) -> str | None:
        """A header that the protocol reads. Those are plain ASCII."""
        value = self.headers.get(name)
        if value is None:
            return None
        try:
            return value.decode("ascii")
        except UnicodeDecodeError:
            raise InvalidHeader(name.decode(), "must be plain ASCII") from None

    def flag(self, name: bytes) -> bool:
        """Whether a header says `true`. Anything else is as if it were absent."""
        value = self.headers.get(name)
        return value is not None and value.strip().lower() == b"true"


class Response(msgspec.Struct):
    status: int
    headers: Headers = []
    body: bytes = b""
    close: bool = False
    """End the connection behind this response."""
    code: str = ""
    """Of an error, for figures and logs."""


class Payload:
    """Bytes for many readers, framed for the wire once."""

    __slots__ = ("framed", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.framed = b"%x\r\n%b\r\n" % (len(raw), raw)


class Sink(Protocol):
    """The writing end of an event stream."""

    def send(self, payload: Payload) -> bool:
        """Hand over an event without waiting. False when the reader is gone or too slow: a reader
        that has too much unread is cut off, and comes back by its offset."""

    async def drained(self) -> bool:
        """Wait until the reader has taken most of what was sent. False when it is gone."""

    def end(self) -> None:
        """The stream is over; the response ends in an orderly way."""


class EventStream(msgspec.Struct):
    headers: Headers
    start: Callable[[Sink], None]
    """Called once the response has begun."""
    stopped: Callable[[], None]
    """Called when the reader is gone, for whatever reason."""


Answer = Response | EventStream


class Deferred(msgspec.Struct, frozen=True):
    """An answer that is rendered when a commit is through, without a task to wait for it."""

    future: asyncio.Future[Any]
    render: Callable[[Any], Answer]

    async def resolve(self) -> Answer:
        return self.render(await self.future)


Handler = Callable[[Request], Answer | Deferred | Awaitable[Answer]]
