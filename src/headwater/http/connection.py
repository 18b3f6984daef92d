"""One HTTP/1.1 connection: the seam between sockets and handlers.

httptools parses, uvloop moves the bytes, and this module does what lies between: bounds on heads
and bodies, one request after the other, keep-alive, chunked event streams, and back-pressure in
both directions. No other module knows about any of it.

A request is answered without a task when its handler can answer at once, and with a callback on a
future when it has to wait for a commit. Idle event streams cost no task either.
"""

from __future__ import annotations

import asyncio
import http
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
import structlog

from headwater.core.errors import BodyTooLarge, StreamError
from headwater.http.errors import error_response, plain_error
from headwater.http.messages import (
    Answer,
    Deferred,
    EventStream,
    Headers,
    Payload,
    Request,
    Response,
)

if TYPE_CHECKING:
    from headwater.http.server import Server

log = structlog.get_logger()

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in http.HTTPStatus
}
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_BODILESS: Final = frozenset({204, 304})


class Connection(asyncio.Protocol):
    __slots__ = (
        "_body",
        "_body_bytes",
        "_busy",
        "_current",
        "_drain_waiter",
        "_events",
        "_head_arrived_bytes",
        "_head_bytes",
        "_headers",
        "_http_1_0",
        "_parser",
        "_queue",
        "_reading_paused",
        "_refused",
        "_request",
        "_server",
        "_transport",
        "_url",
        "_writing_paused",
        "deadline",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpRequestParser | None = None
        self._queue: deque[Request] = deque()
        self._busy = False
        self._current: Request | None = None
        self._events: EventStream | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._writing_paused = False
        self._reading_paused = False
        self._refused = False
        self._http_1_0 = False
        self.deadline = server.now + server.timeouts.head_s
        self._start_head()

    # ── Life of the connection ───────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self._transport.set_write_buffer_limits(high=256 * 1024)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self)
        self._transport = None
        self._parser = None
        self._queue.clear()
        self._release_drain()
        if self._events is not None:
            events, self._events = self._events, None
            events.stopped()
        elif self._current is not None and self._current.on_disconnect is not None:
            self._current.on_disconnect()
        self._current = None

    def eof_received(self) -> bool:
        """The peer sends no more. It may still be waiting for the answers to what it sent."""
        if self._current is not None:
            self._current.keep_alive = False
        return self._busy and self._events is None

    def pause_writing(self) -> None:
        self._writing_paused = True
        self.deadline = self._server.now + self._server.timeouts.write_s

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._restart_clock()
        self._release_drain()
        self._next()

    def _release_drain(self) -> None:
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)
        self._drain_waiter = None

    def _restart_clock(self) -> None:
        """Give the peer the time that the current phase allows."""
        timeouts = self._server.timeouts
        if self._busy or self._events is not None:
            self.deadline = float("inf")
        else:
            self.deadline = self._server.now + timeouts.idle_s

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def turn_away(self, response: Response) -> None:
        """There is no room for this connection: say so and hang up."""
        self._refuse(response)

    def wind_down(self) -> None:
        """The server is stopping: end event streams and idle connections, let requests finish."""
        if self._events is not None:
            self.end()
        elif self._busy and self._current is not None:
            self._current.keep_alive = False
        elif self._transport is not None:
            self._transport.close()

    # ── Parsing ──────────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._refused or self._events is not None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # We speak HTTP/1.1 only. The request itself is answered; what follows is not ours.
            if self._current is not None:
                self._current.keep_alive = False
        except httptools.HttpParserError:
            self._refuse(plain_error(400, "malformed_http", "the request is not valid HTTP/1.1"))
        else:
            if not self._busy and not self._refused:
                self._wait_for_rest(len(data))

    def _start_head(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head_bytes = 0
        self._head_arrived_bytes = 0
        self._request: Request | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0

    def _wait_for_rest(self, received: int) -> None:
        """A request is under way: it has to be complete in time and its head must not grow on."""
        if self._request is not None:
            self.deadline = self._server.now + self._server.timeouts.body_s
            return
        if self._head_arrived_bytes == 0:
            self.deadline = self._server.now + self._server.timeouts.head_s
        # Counted as it arrives: the parser reports a line only when it is complete.
        self._head_arrived_bytes += received
        if self._head_arrived_bytes > self._server.limits.header_bytes_max:
            self._refuse(self._head_too_large())

    def _head_too_large(self) -> Response:
        limit = self._server.limits.header_bytes_max
        return plain_error(431, "headers_too_large", f"the request head is over {limit} bytes")

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is None or self._refused:
            return
        if self._head_bytes + len(self._url) > self._server.limits.header_bytes_max:
            self._refuse(self._head_too_large())
            return
        path, _, query = self._url.partition(b"?")
        method = parser.get_method().decode("ascii")
        request = self._request = Request(method, path, query, self._headers)
        request.keep_alive = parser.should_keep_alive()
        self._http_1_0 = parser.get_http_version() == "1.0"
        length = self._headers.get(b"content-length")
        if length is not None and int(length) > self._server.limits.body_bytes_max:
            self._refuse(error_response(BodyTooLarge(self._server.limits.body_bytes_max)))
        elif self._headers.get(b"expect", b"").lower() == b"100-continue" and not self._busy:
            self._write(_CONTINUE)

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._server.limits.body_bytes_max:
            self._refuse(error_response(BodyTooLarge(self._server.limits.body_bytes_max)))
        elif not self._refused:
            self._body.append(data)

    def on_message_complete(self) -> None:
        request = self._request
        if request is None or self._refused:
            return
        request.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._start_head()
        self._queue.append(request)
        self._next()
        if self._queue and not self._reading_paused and self._transport is not None:
            # Pipelined requests are answered one by one; more may come when these are done.
            self._reading_paused = True
            self._transport.pause_reading()

    def _refuse(self, response: Response) -> None:
        """Answer something that cannot become a request, and hang up."""
        if self._refused:
            return
        self._refused = True
        if self._busy:
            # An earlier request on this connection is still being answered; that goes first.
            assert self._current is not None
            self._current.keep_alive = False
            return
        self._respond(response, head_only=False, close=True)

    # ── Answering ────────────────────────────────────────────────────────────────────────────

    def _next(self) -> None:
        """Begin with the next request, if there is one and the peer reads its answers."""
        while self._queue and not self._busy and not self._writing_paused:
            if self._transport is None:
                return
            self._busy = True
            self._current = self._queue.popleft()
            self.deadline = float("inf")
            self._handle(self._current)
        if self._reading_paused and not self._queue and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()

    def _handle(self, request: Request) -> None:
        try:
            answer = self._server.handler(request)
        except Exception as error:
            self._answer(request, _failure(error))
            return
        if isinstance(answer, Response | EventStream):
            self._answer(request, answer)
            return
        if isinstance(answer, Deferred):
            future, render = answer.future, answer.render
        else:
            future, render = _as_future(answer), _as_is
        future.add_done_callback(lambda done: self._answer(request, _outcome(done, render)))

    def _answer(self, request: Request, answer: Answer) -> None:
        if self._transport is None:
            if isinstance(answer, EventStream):
                answer.stopped()
            return
        if isinstance(answer, EventStream):
            self._begin_events(answer)
            return
        # The response may be shared with other connections, so it is not changed here.
        close = answer.close or not request.keep_alive or self._server.stopping
        self._respond(answer, head_only=request.method == "HEAD", close=close)
        self._busy = False
        self._current = None
        if self._transport is not None:
            self._restart_clock()
            self._next()

    def _respond(self, response: Response, *, head_only: bool, close: bool) -> None:
        head = self._head(response.status, response.headers)
        if head_only or response.status in _BODILESS:
            # What a GET would have sent is not known here, and nothing else may be said.
            length = b""
        else:
            length = b"Content-Length: %d\r\n" % len(response.body)
        connection = b"Connection: close\r\n" if close else b""
        body = b"" if head_only or response.status in _BODILESS else response.body
        self._write(b"".join((head, length, connection, b"\r\n", body)))
        if close and self._transport is not None:
            self._transport.close()

    def _head(self, status: int, headers: Headers) -> bytes:
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        return b"".join(
            (_STATUS_LINES[status], self._server.constant_head(), lines.encode("latin-1"))
        )

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    # ── Event streams: this is the Sink ──────────────────────────────────────────────────────

    def _begin_events(self, events: EventStream) -> None:
        framing = b"Connection: close\r\n" if self._http_1_0 else b"Transfer-Encoding: chunked\r\n"
        self._write(b"".join((self._head(200, events.headers), framing, b"\r\n")))
        self._events = events
        self._current = None
        # Nothing more is read from this connection; thousands of them are idle at a time.
        self._parser = None
        self._headers = {}
        self._queue.clear()
        events.start(self)

    def send(self, payload: Payload) -> bool:
        transport = self._transport
        if transport is None or self._events is None:
            return False
        if transport.get_write_buffer_size() > self._server.limits.reader_buffer_bytes_max:
            transport.abort()
            return False
        transport.write(payload.raw if self._http_1_0 else payload.framed)
        return True

    async def drained(self) -> bool:
        if self._writing_paused and self._transport is not None:
            self._drain_waiter = asyncio.get_running_loop().create_future()
            await self._drain_waiter
        return self._transport is not None

    def end(self) -> None:
        if self._events is None or self._transport is None:
            return
        events, self._events = self._events, None
        if not self._http_1_0:
            self._write(_LAST_CHUNK)
        self._transport.close()
        events.stopped()


def _as_future(answer: Awaitable[Answer]) -> asyncio.Future[Answer]:
    if inspect.iscoroutine(answer):
        return asyncio.get_running_loop().create_task(answer)
    return cast("asyncio.Future[Answer]", answer)


def _as_is(answer: Answer) -> Answer:
    return answer


def _outcome(done: asyncio.Future[Any], render: Callable[[Any], Answer]) -> Answer:
    try:
        return render(done.result())
    except (Exception, asyncio.CancelledError) as error:
        return _failure(error)


def _failure(error: BaseException) -> Response:
    if isinstance(error, StreamError):
        return error_response(error)
    log.error("unexpected_error", error=repr(error), exc_info=error)
    return plain_error(
        500, "internal_error", "the server hit an unexpected error; its log has the details"
    )
