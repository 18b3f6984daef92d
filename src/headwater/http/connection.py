"""One HTTP/1.1 connection: the seam between sockets and handlers.

uvloop moves the bytes, `parsing` makes requests of them, and this module does the rest: one request
after the other, keep-alive, time-outs, chunked event streams, and back-pressure in both directions.
No other module knows about any of it.

A request is answered without a task when its handler can answer at once, and with a callback on a
future when it has to wait for a commit. Idle event streams cost no task either.
"""

from __future__ import annotations

import asyncio
import http
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from headwater.core.errors import StreamError
from headwater.http.errors import error_response, plain_error
from headwater.http.headers import REQUEST_ID
from headwater.http.messages import (
    Answer,
    Deferred,
    EventStream,
    Headers,
    Payload,
    Request,
    Response,
)
from headwater.http.parsing import RequestReader

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
        "_busy",
        "_closing",
        "_current",
        "_drain_waiter",
        "_events",
        "_http_1_0",
        "_looping",
        "_owes_continue",
        "_queue",
        "_reader",
        "_reading_paused",
        "_refusal",
        "_server",
        "_transport",
        "_writing_paused",
        "deadline",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._reader: RequestReader | None = None
        self._queue: deque[Request] = deque()
        self._current: Request | None = None
        self._busy = False
        self._looping = False
        self._closing = False
        self._refusal: Response | None = None
        self._owes_continue = False
        self._events: EventStream | None = None
        self._http_1_0 = False
        self._drain_waiter: asyncio.Future[None] | None = None
        self._writing_paused = False
        self._reading_paused = False
        self.deadline = server.now + server.timeouts.head_s

    # ── Life of the connection ───────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._reader = RequestReader(self._server.limits, self)
        self._transport.set_write_buffer_limits(high=256 * 1024)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self)
        self._transport = None
        self._reader = None
        self._queue.clear()
        self._release_drain()
        if self._events is not None:
            events, self._events = self._events, None
            events.stopped()
        elif self._current is not None and self._current.on_disconnect is not None:
            self._current.on_disconnect()
        self._current = None

    def eof_received(self) -> bool:
        """The peer sends no more. It may still be waiting for the answers to what it sent.

        One who waits for news has most likely hung up, and there is no way to tell.
        """
        current = self._current
        if current is not None and current.on_disconnect is not None:
            return False
        if self._queue:
            self._queue[-1].keep_alive = False
        elif current is not None:
            current.keep_alive = False
        return self._busy and self._events is None

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._restart_clock()

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
        now, timeouts = self._server.now, self._server.timeouts
        if self._writing_paused:
            self.deadline = now + timeouts.write_s
        elif self._busy or self._events is not None:
            self.deadline = float("inf")
        elif self._reader is not None and self._reader.started:
            self.deadline = now + (timeouts.body_s if self._reader.in_body else timeouts.head_s)
        else:
            self.deadline = now + timeouts.idle_s

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def turn_away(self, response: Response) -> None:
        """There is no room for this connection: say so and hang up."""
        self.refused(response)

    def wind_down(self) -> None:
        """The server is stopping: end event streams and idle connections, let requests finish."""
        if self._events is not None:
            self.end()
        elif self._busy and self._current is not None:
            self._current.keep_alive = False
        elif self._transport is not None:
            self._transport.close()

    # ── Reading: this is the Receiver ────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None or self._refusal is not None:
            return
        was_started, was_in_body = reader.started, reader.in_body
        reader.feed(data)
        if self._busy or not reader.started:
            return
        # A head has to be complete in time however it trickles; a body has to make progress.
        if reader.in_body or not was_started or was_in_body:
            self._restart_clock()

    def received(self, request: Request) -> None:
        self._owes_continue = False
        self._queue.append(request)
        self._next()
        if self._queue and not self._reading_paused and self._transport is not None:
            # Pipelined requests are answered one by one; more may come when these are done.
            self._reading_paused = True
            self._transport.pause_reading()

    def expects_continue(self) -> None:
        if self._busy or self._queue:
            self._owes_continue = True
        else:
            self._write(_CONTINUE)

    def refused(self, response: Response) -> None:
        """Answered behind everything that came before it; then the connection ends."""
        if self._refusal is None:
            self._refusal = response
            self._next()

    # ── Answering ────────────────────────────────────────────────────────────────────────────

    def _next(self) -> None:
        """Go on with the next request, if there is one and the peer reads its answers."""
        if self._looping:
            # An answer came at once: the loop further up the stack goes on.
            return
        self._looping = True
        while self._queue and not (self._busy or self._writing_paused or self._closing):
            if self._transport is None:
                break
            self._busy = True
            self._current = self._queue.popleft()
            self.deadline = float("inf")
            self._current.began_s = perf_counter()
            self._handle(self._current)
        self._looping = False
        if not (self._transport is None or self._busy or self._queue or self._closing):
            self._all_answered(self._transport)

    def _all_answered(self, transport: asyncio.Transport) -> None:
        if self._refusal is not None:
            self._server.traffic.refused(self._refusal)
            self._respond(self._refusal, head_only=False, close=True)
            return
        if self._owes_continue:
            self._owes_continue = False
            self._write(_CONTINUE)
        if self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()

    def _handle(self, request: Request) -> None:
        try:
            answer = self._server.handler(request)
        except Exception as error:
            self._answer(request, _failure(error, request))
            return
        if isinstance(answer, Response | EventStream):
            self._answer(request, answer)
            return
        if isinstance(answer, Deferred):
            future, render = answer.future, answer.render
        else:
            future, render = _as_future(answer), _as_is
        future.add_done_callback(
            lambda done: self._answer(request, _outcome(done, render, request))
        )

    def _answer(self, request: Request, answer: Answer) -> None:
        if self._transport is None:
            if isinstance(answer, EventStream):
                answer.stopped()
            return
        if isinstance(answer, EventStream):
            self._server.traffic.begun(request)
            self._begin_events(request, answer)
            return
        self._server.traffic.answered(request, answer.status, answer.code)
        # The response may be shared with other connections, so it is not changed here.
        close = answer.close or not request.keep_alive or self._server.stopping
        self._busy = False
        self._current = None
        named = _name_of(request, answer.status)
        self._respond(answer, head_only=request.method == "HEAD", close=close, named=named)
        if self._transport is not None:
            self._restart_clock()
            self._next()

    def _respond(
        self, response: Response, *, head_only: bool, close: bool, named: bytes = b""
    ) -> None:
        head = self._head(response.status, response.headers)
        if head_only or response.status in _BODILESS:
            # What a GET would have sent is not known here, and nothing else may be said.
            length = b""
        else:
            length = b"Content-Length: %d\r\n" % len(response.body)
        connection = b"Connection: close\r\n" if close else b""
        body = b"" if head_only or response.status in _BODILESS else response.body
        self._write(b"".join((head, named, length, connection, b"\r\n", body)))
        if close and self._transport is not None:
            self._closing = True
            self._queue.clear()
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

    def _begin_events(self, request: Request, events: EventStream) -> None:
        self._http_1_0 = self._reader is not None and self._reader.http_1_0
        framing = b"Connection: close\r\n" if self._http_1_0 else b"Transfer-Encoding: chunked\r\n"
        head = self._head(200, events.headers)
        self._write(b"".join((head, _name_of(request, 200), framing, b"\r\n")))
        self._events = events
        self._current = None
        # Nothing more is read from this connection; thousands of them are idle at a time.
        self._reader = None
        self._queue.clear()
        events.start(self)
        if self._server.stopping:
            self.end()

    def send(self, payload: Payload) -> bool:
        transport = self._transport
        if transport is None or self._events is None:
            return False
        if transport.get_write_buffer_size() > self._server.limits.reader_buffer_bytes_max:
            self._server.traffic.cut_off += 1
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


def _name_of(request: Request, status: int) -> bytes:
    """The header with the request's name: for those who gave it one, and to ask about failures."""
    if REQUEST_ID in request.headers or status >= 500:
        return b"X-Request-Id: %b\r\n" % request.id.encode()
    return b""


def _as_future(answer: Awaitable[Answer]) -> asyncio.Future[Answer]:
    if inspect.iscoroutine(answer):
        return asyncio.get_running_loop().create_task(answer)
    return cast("asyncio.Future[Answer]", answer)


def _as_is(answer: Answer) -> Answer:
    return answer


def _outcome(
    done: asyncio.Future[Any], render: Callable[[Any], Answer], request: Request
) -> Answer:
    try:
        return render(done.result())
    except (Exception, asyncio.CancelledError) as error:
        return _failure(error, request)


def _failure(error: BaseException, request: Request) -> Response:
    if isinstance(error, StreamError):
        return error_response(error)
    log.error(
        "unexpected_error",
        request_id=request.id,
        method=request.method,
        route=request.route,
        error=repr(error),
        exc_info=error,
    )
    return plain_error(
        500, "internal_error", "the server hit an unexpected error; its log has the details"
    )
