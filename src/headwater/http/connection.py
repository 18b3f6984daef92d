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
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from headwater.core.access import Caller
from headwater.core.errors import BuffersFull, StreamError, Unauthorized
from headwater.http.errors import error_response
from headwater.http.files import CopySending, FileSending
from headwater.http.messages import (
    NOBODY,
    Answer,
    Deferred,
    EventStream,
    FileBody,
    Headers,
    Payload,
    Peer,
    Request,
    Response,
)
from headwater.http.outcomes import as_future, as_is, failure, outcome
from headwater.http.parsing import RequestReader

if TYPE_CHECKING:
    from headwater.http.server import Server

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    for status in http.HTTPStatus
}
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_BODILESS: Final = frozenset({204, 304})
_EXPELLED: Final = "the key or token is not valid any more; get a new one"
_UNSENT_BYTES_HIGH: Final = 256 * 1024


class Connection(asyncio.Protocol):
    __slots__ = (
        "_busy",
        "_caller",
        "_closing",
        "_current",
        "_drain_waiter",
        "_events",
        "_file",
        "_holder",
        "_http_1_0",
        "_looping",
        "_origin",
        "_owes_continue",
        "_peer",
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
        self._holder = ""
        self._origin: bytes | None = None
        self._peer = NOBODY
        self._caller: Caller | None = None
        self._http_1_0 = False
        self._file: FileSending | CopySending | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._writing_paused = False
        self._reading_paused = False
        self.deadline = server.now + server.timeouts.head_s

    # ── Life of the connection ───────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._reader = RequestReader(self._server.limits, self)
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES_HIGH)
        name = self._transport.get_extra_info("peername")
        address = str(name[0]) if name else ""
        self._peer = Peer(address, self._server.scheme, self._server.room)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self)
        self._server.room.measured(self, 0)
        self._transport = None
        self._reader = None
        self._queue.clear()
        self._release_drain()
        if self._file is not None:
            self._file.cancel()
            self._file = None
        if self._events is not None:
            self._events_over(self._events)
        elif self._current is not None:
            self._give_up_waiting(self._current)
        self._current = None

    @property
    def address(self) -> str:
        return self._peer.address

    @property
    def caller(self) -> Caller | None:
        """Who the current request or event stream is for, where that is asked."""
        return self._caller if self._current is None else self._current.caller

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
        # There is no half of a TLS connection.
        return self._busy and self._events is None and not self._server.is_secure

    def pause_writing(self) -> None:
        self._writing_paused = True
        self.measure()
        self._restart_clock()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self.measure()
        self._restart_clock()
        self._release_drain()
        if self._file is not None:
            self._start_file()
        self._next()

    def measure(self) -> None:
        """Tell how much the peer has not taken yet."""
        if self._transport is not None:
            self._server.room.measured(self, self._transport.get_write_buffer_size())

    def _release_drain(self) -> None:
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)
        self._drain_waiter = None

    def _restart_clock(self) -> None:
        """Give the peer the time that the current phase allows."""
        now, timeouts = self._server.now, self._server.timeouts
        if self._writing_paused or self._file is not None:
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

    def expel(self) -> None:
        """The caller is not valid any more: end what it reads or waits for, and let writes end."""
        current = self._current
        if self._events is not None:
            self.end()
        elif current is not None and current.on_disconnect is not None and self._file is None:
            self._give_up_waiting(current)
            current.keep_alive = False
            self._answer(current, error_response(Unauthorized(_EXPELLED, sent=True)))

    def _give_up_waiting(self, request: Request) -> None:
        request.leave_room()
        if request.on_disconnect is not None:
            request.on_disconnect()

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
        request.peer = self._peer
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

    def announced(self, request: Request) -> Response | None:
        screen = self._server.screen
        if screen is None:
            return None
        request.peer = self._peer
        return screen(request)

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
        self._origin = request.headers.get(b"origin")
        if self._server.room.is_full and request.method == "GET":
            self._answer(request, error_response(BuffersFull()))
            return
        try:
            answer = self._server.handler(request)
        except Exception as error:
            self._answer(request, failure(error, request))
            return
        if isinstance(answer, Response | EventStream):
            self._answer(request, answer)
            return
        if isinstance(answer, Deferred):
            future, render = answer.future, answer.render
        else:
            future, render = as_future(answer), as_is
        future.add_done_callback(lambda done: self._finish(request, done, render))

    def _finish(
        self, request: Request, done: asyncio.Future[Any], render: Callable[[Any], Answer]
    ) -> None:
        if done.cancelled() and self._current is not request:
            # The one who waited is gone, which is why it was cancelled.
            request.leave_room()
        else:
            self._answer(request, outcome(done, render, request))

    def _answer(self, request: Request, answer: Answer) -> None:
        request.leave_room()
        if self._transport is None or self._current is not request:
            if isinstance(answer, EventStream):
                answer.stopped()
            return
        if isinstance(answer, EventStream):
            refusal = self._begin_events(request, answer)
            if refusal is None:
                return
            answer = refusal
        self._server.traffic.answered(request, answer.status, answer.code)
        if request.charge is not None:
            request.charge(len(answer.body))
        # The response may be shared with other connections, so it is not changed here.
        close = answer.close or not request.keep_alive or self._server.stopping
        if isinstance(answer.body, FileBody) and request.method != "HEAD":
            self._send_file(request, answer, answer.body, close=close)
            return
        self._busy = False
        self._current = None
        name = request.name_line(answer.status)
        self._respond(answer, head_only=request.method == "HEAD", close=close, name=name)
        self._answered()

    def _answered(self) -> None:
        if self._transport is not None:
            self._restart_clock()
            self._next()

    def _respond(
        self, response: Response, *, head_only: bool, close: bool, name: bytes = b""
    ) -> None:
        body = response.body
        if head_only or response.status in _BODILESS or isinstance(body, FileBody):
            # What a GET would have sent is not known here, and nothing else may be said.
            self._write(self._whole_head(response, None, name, close=close))
        else:
            self._write(self._whole_head(response, len(body), name, close=close) + body)
        if close:
            self._close()

    def _close(self) -> None:
        if self._transport is not None:
            self._closing = True
            self._queue.clear()
            self._transport.close()

    def _whole_head(
        self, response: Response, length: int | None, name: bytes, *, close: bool
    ) -> bytes:
        head = self._head(response.status, response.headers)
        framing = b"" if length is None else b"Content-Length: %d\r\n" % length
        connection = b"Connection: close\r\n" if close else b""
        return b"".join((head, name, framing, connection, b"\r\n"))

    def _head(self, status: int, headers: Headers) -> bytes:
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        server = self._server
        constant = server.constant_head()
        if server.origins is not None:
            constant += server.origins.header_for(self._origin)
        if server.is_private:
            # What one caller may read must not be shown to the next by a cache in between.
            lines = lines.replace("Cache-Control: public", "Cache-Control: private")
        return b"".join((_STATUS_LINES[status], constant, lines.encode("latin-1")))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    # ── Bodies in files: this is the Owner of what is being sent ─────────────────────────────

    def _send_file(
        self, request: Request, response: Response, body: FileBody, *, close: bool
    ) -> None:
        """The request stays the current one until all of it is sent."""
        name = request.name_line(response.status)
        head = self._whole_head(response, len(body), name, close=close)
        # The kernel knows nothing of the keys of a TLS connection.
        kind = CopySending if self._server.is_secure else FileSending
        self._file = kind(self, head, body)
        if close:
            request.keep_alive = False
        self._restart_clock()
        self._start_file()

    def _start_file(self) -> None:
        """Begin, if what was written before is out; otherwise wait for that."""
        transport, file = self._transport, self._file
        if transport is None or file is None or file.started:
            return
        if isinstance(file, CopySending):
            file.start()
            return
        if transport.get_write_buffer_size():
            # Writing is paused at once and resumed when nothing is left.
            transport.set_write_buffer_limits(high=0)
            return
        transport.set_write_buffer_limits(high=_UNSENT_BYTES_HIGH)
        file.start(transport.get_extra_info("socket").fileno())

    def write(self, data: bytes) -> None:
        self._write(data)

    def file_progressed(self) -> None:
        self._restart_clock()

    def file_failed(self) -> None:
        self.abort()

    def file_sent(self) -> None:
        request, self._file, self._current = self._current, None, None
        self._busy = False
        if self._server.stopping or (request is not None and not request.keep_alive):
            self._close()
        else:
            self._answered()

    # ── Event streams: this is the Sink ──────────────────────────────────────────────────────

    def _begin_events(self, request: Request, events: EventStream) -> Response | None:
        """Begin the response; or the refusal to send instead."""
        try:
            self._server.room.enter(request.holder)
        except StreamError as error:
            events.stopped()
            return error_response(error)
        self._server.traffic.begun(request)
        self._holder, self._caller = request.holder, request.caller
        self._http_1_0 = self._reader is not None and self._reader.http_1_0
        framing = b"Connection: close\r\n" if self._http_1_0 else b"Transfer-Encoding: chunked\r\n"
        head = self._head(200, events.headers)
        self._write(b"".join((head, request.name_line(200), framing, b"\r\n")))
        self._events = events
        self._current = None
        # Nothing more is read from this connection; thousands of them are idle at a time.
        self._reader = None
        self._queue.clear()
        events.start(self)
        if self._server.stopping:
            self.end()
        return None

    def _events_over(self, events: EventStream) -> None:
        self._events = None
        self._server.room.leave(self._holder)
        events.stopped()

    def send(self, payload: Payload) -> bool:
        transport = self._transport
        if transport is None or self._events is None:
            return False
        unread = transport.get_write_buffer_size()
        if unread:
            room = self._server.room
            room.measured(self, unread)
            if unread > self._server.limits.reader_buffer_bytes_max or room.is_full:
                room.cut_off += 1
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
        events = self._events
        if not self._http_1_0:
            self._write(_LAST_CHUNK)
        self._transport.close()
        self._events_over(events)
