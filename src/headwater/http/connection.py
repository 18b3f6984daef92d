"""One HTTP/1.1 connection: the seam between sockets and handlers.

uvloop moves the bytes, `inbox` makes requests of them, and this module does the rest: one request
after the other, keep-alive, time-outs, and back-pressure in both directions. `event_sink` and
`files` send what does not fit into one write. No other module knows about any of it.

A request is answered without a task when its handler can answer at once, and with a callback on a
future when it has to wait for a commit. Idle event streams cost no task either.

Whatever breaks while a request is read or answered is logged, and the peer hears of it: by a 500
while nothing of the answer is out, and otherwise by the end of the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, cast

from headwater.core.access import Caller
from headwater.core.errors import StreamError, Unauthorized
from headwater.http.errors import error_response
from headwater.http.event_sink import EventSink
from headwater.http.files import UNSENT_BYTES_HIGH, FileSending, send_file
from headwater.http.inbox import Inbox
from headwater.http.intake import Claim
from headwater.http.messages import (
    NOBODY,
    Answer,
    Deferred,
    EventStream,
    FileBody,
    Peer,
    Request,
    Response,
)
from headwater.http.outcomes import as_future, as_is, failure, outcome, report
from headwater.http.parsing import RequestReader
from headwater.http.targets import PROBES
from headwater.service.replies import Reply

if TYPE_CHECKING:
    from headwater.http.server import Server

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_BODILESS: Final = frozenset({204, 304})
_EXPELLED: Final = "the key or token is not valid any more; get a new one"
_PROBES: Final = frozenset(path.encode() for path in PROBES)
# Larger bodies are handed over as they are, so that those who are sent the same one share it.
_SHARED_BYTES: Final = 64 * 1024
# How long a peer may go on sending a body that was refused, to read the refusal in peace.
_LINGER_S: Final = 2.0
# How long one that is turned away has to say that it only wants to know how the server is.
_PROBE_S: Final = 1.0


P = ParamSpec("P")


def _or_abort(
    step: Callable[Concatenate[Connection, P], None],
) -> Callable[Concatenate[Connection, P], None]:
    """For what the loop calls: nobody else would end the connection if it broke."""

    def guarded(self: Connection, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            step(self, *args, **kwargs)
        except Exception as error:
            report(error, self._current)
            self.abort()

    return guarded


class Connection(asyncio.Protocol):
    __slots__ = (
        "_caller",
        "_closing",
        "_current",
        "_drain_waiter",
        "_file",
        "_inbox",
        "_last_word",
        "_looping",
        "_owes_continue",
        "_peer",
        "_refusal",
        "_server",
        "_sink",
        "_transport",
        "_writing_paused",
        "deadline",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._inbox: Inbox | None = None
        self._current: Request | None = None
        """The request that is being answered."""
        self._sink: EventSink | None = None
        self._file: FileSending | None = None
        self._refusal: Response | None = None
        """The answer to what was no request. It comes last."""
        self._last_word: Response | None = None
        """The answer to everything but probes."""
        self._looping = False
        """Whether what can be done now is being done, further up the stack."""
        self._closing = False
        self._owes_continue = False
        self._peer = NOBODY
        self._caller: Caller | None = None
        self._drain_waiter: asyncio.Future[None] | None = None
        self._writing_paused = False
        self.deadline = server.now + server.timeouts.head_s

    # ── Life of the connection ───────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        reader = RequestReader(self._server.limits, self, self._server.known_heads)
        self._inbox = Inbox(self._transport, reader)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        name = self._transport.get_extra_info("peername")
        address = str(name[0]) if name else ""
        self._peer = Peer(address, self._server.scheme, self._server.room)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self)
        self._server.room.measured(self, 0)
        self._transport = None
        self._stop_reading()
        self._release_drain()
        if self._file is not None:
            self._file.cancel()
            self._file = None
        if self._sink is not None:
            self._sink.over()
        elif self._current is not None:
            # Its body is counted until its handler is done with it.
            self._give_up_waiting(self._current)
        self._current = None

    def _stop_reading(self) -> None:
        if self._inbox is not None:
            self._inbox.close()
            self._inbox = None

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
        if current is None or current.on_disconnect is not None:
            return False
        last = None if self._inbox is None else self._inbox.last
        (last or current).keep_alive = False
        # There is no half of a TLS connection.
        return not self._server.is_secure

    @_or_abort
    def pause_writing(self) -> None:
        self._writing_paused = True
        self.measure()
        self._restart_clock()

    @_or_abort
    def resume_writing(self) -> None:
        self._writing_paused = False
        self.measure()
        self._restart_clock()
        self._release_drain()
        if self._file is not None:
            self._start_file(self._file)
        self._next()

    def measure(self) -> None:
        """Tell how much the peer has not taken yet."""
        if self._transport is not None:
            self._server.room.measured(self, self._transport.get_write_buffer_size())

    @property
    def paused(self) -> bool:
        return self._writing_paused

    async def drained(self) -> bool:
        if self._writing_paused and self._transport is not None:
            self._drain_waiter = asyncio.get_running_loop().create_future()
            await self._drain_waiter
        return self._transport is not None

    def _release_drain(self) -> None:
        if self._drain_waiter is not None and not self._drain_waiter.done():
            self._drain_waiter.set_result(None)
        self._drain_waiter = None

    def _restart_clock(self) -> None:
        """Give the peer the time that the current phase allows."""
        now, timeouts = self._server.now, self._server.timeouts
        if self._writing_paused or self._file is not None:
            self.deadline = now + timeouts.write_s
        elif self._current is not None or self._sink is not None:
            self.deadline = float("inf")
        elif self._inbox is not None and self._inbox.reader.started:
            in_body = self._inbox.reader.in_body
            self.deadline = now + (timeouts.body_s if in_body else timeouts.head_s)
        else:
            self.deadline = now + timeouts.idle_s

    # ── What the server asks of it ───────────────────────────────────────────────────────────

    def abort(self) -> None:
        if self._sink is not None:
            self._sink.ended_here = self._sink.cut_off = True
        if self._transport is not None:
            self._transport.abort()

    def time_out(self) -> None:
        """The peer took too long."""
        if self._last_word is not None and self._refusal is None and self._current is None:
            self.refused(self._last_word)
        else:
            self.abort()

    def turn_away(self, response: Response, *, probes: bool) -> None:
        """There is no room for this connection: say so and hang up. A probe may be answered."""
        if probes:
            self._last_word = response
            self.deadline = self._server.now + _PROBE_S
        else:
            self.refused(response)

    def wind_down(self) -> None:
        """The server is stopping: end event streams and idle connections, let requests finish."""
        if self._sink is not None:
            self._sink.end()
        elif self._current is not None:
            self._current.keep_alive = False
        elif self._transport is not None:
            self._transport.close()

    def expel(self) -> None:
        """The caller is not valid any more: end what it reads or waits for, and let writes end."""
        current = self._current
        if self._sink is not None:
            self._sink.end()
        elif current is not None and current.on_disconnect is not None and self._file is None:
            self._give_up_waiting(current)
            current.keep_alive = False
            self._answer(current, error_response(Unauthorized(_EXPELLED, sent=True)))

    def _give_up_waiting(self, request: Request) -> None:
        request.leave_room()
        if request.on_disconnect is not None:
            try:
                request.on_disconnect()
            except Exception as error:
                report(error, request)

    # ── Reading: this is the Receiver ────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        inbox = self._inbox
        if inbox is None or self._refusal is not None:
            return
        reader = inbox.reader
        was_started, was_in_body = reader.started, reader.in_body
        self._looping = True
        try:
            if not inbox.take(data):
                asyncio.get_running_loop().call_soon(self._next)
            # A head has to be complete in time however it trickles; a body has to keep a pace.
            if (
                reader.started
                and self._current is None
                and self._last_word is None
                and (reader.in_body != was_in_body or not was_started or reader.keeps_pace())
            ):
                self._restart_clock()
        except Exception as error:
            self.failed(error)
        self._looping = False
        if self._refusal is not None:
            self._next()

    def received(self, request: Request) -> None:
        self._owes_continue = False
        request.peer = self._peer
        if self._last_word is not None:
            request.keep_alive = False
            if request.path not in _PROBES:
                self.refused(self._last_word)
                return
        if self._is_free and not self._has_waiting:
            self._handle(request)
        elif self._inbox is not None:
            self._inbox.line_up(request)

    def expects_continue(self) -> None:
        if self._current is not None or self._has_waiting:
            self._owes_continue = True
        else:
            self._write(_CONTINUE)

    def announced(self, request: Request) -> Response | int:
        request.peer = self._peer
        if self._last_word is not None:
            return self._last_word
        screen, most = self._server.screen, self._server.limits.body_bytes_max
        return most if screen is None else screen(request, most)

    def claim(self, request: Request) -> Claim:
        request.peer = self._peer
        return self._server.intake.claim(request.holder)

    def refused(self, response: Response) -> None:
        """Answered after everything that came before it; then the connection ends."""
        if self._refusal is None:
            self._refusal = response
            self._next()

    def failed(self, error: BaseException) -> None:
        self.refused(failure(error, self._current))

    # ── Answering ────────────────────────────────────────────────────────────────────────────

    @property
    def _is_free(self) -> bool:
        """Whether the next request can be answered: it is its turn, and the peer reads."""
        return (
            self._current is None
            and self._sink is None
            and not self._writing_paused
            and not self._closing
            and self._transport is not None
        )

    def _handle(self, request: Request) -> None:
        self._current = request
        request.began_s = perf_counter()
        try:
            if request.method == "GET" and request.path not in _PROBES:
                self._server.room.check(self._peer.address)
            answer = self._server.handler(request)
        except Exception as error:
            answer = failure(error, request)
        if isinstance(answer, Response | EventStream):
            self._answer(request, answer)
            return
        try:
            self._answer_later(request, answer)
        except Exception as error:
            self._give_up_answering(request, error)

    def _answer_later(self, request: Request, answer: Deferred | Awaitable[Answer]) -> None:
        self.deadline = float("inf")
        if isinstance(answer, Deferred):
            future, render = answer.future, answer.render
        else:
            future, render = as_future(answer), as_is
        # Called here and now if it is a reply that is there already.
        future.add_done_callback(lambda done: self._finish(request, done, render))

    @_or_abort
    def _finish(
        self,
        request: Request,
        done: asyncio.Future[Any] | Reply[Any],
        render: Callable[[Any], Answer],
    ) -> None:
        if done.cancelled() and self._current is not request:
            # The one who waited is gone, which is why it was cancelled.
            request.leave_room()
            request.release()
        else:
            self._answer(request, outcome(done, render, request))
            self._next()

    @_or_abort
    def _next(self) -> None:
        """Go on with what waits for its turn."""
        if self._looping:
            # An answer was there at once, or came while more was being read.
            return
        self._looping = True
        try:
            self._answer_those_who_wait()
            if self._is_done and self._inbox is not None and not self._inbox.read_on():
                asyncio.get_running_loop().call_soon(self._next)
        finally:
            self._looping = False
        if not self._is_done:
            return
        if self._refusal is not None:
            self._server.traffic.refused(self._refusal)
            self._respond_last(self._refusal)
            return
        if self._owes_continue:
            self._owes_continue = False
            self._write(_CONTINUE)
        if self._inbox is not None:
            self._inbox.resume()

    def _answer_those_who_wait(self) -> None:
        while self._inbox is not None and self._inbox.waiting and self._is_free:
            self._handle(self._inbox.pop())

    @property
    def _has_waiting(self) -> bool:
        return self._inbox is not None and self._inbox.waiting

    @property
    def _is_done(self) -> bool:
        """Whether everything that came as a request has its answer."""
        is_busy = self._current is not None or self._sink is not None
        return not (is_busy or self._closing or self._has_waiting)

    def _answer(self, request: Request, answer: Answer) -> None:
        request.leave_room()
        request.release()
        if self._transport is None or self._current is not request:
            if isinstance(answer, EventStream):
                answer.stopped()
            return
        try:
            if isinstance(answer, Response):
                self._send(request, answer)
            else:
                self._begin_events(self._transport, request, answer)
        except Exception as error:
            self._give_up_answering(request, error)

    def _give_up_answering(self, request: Request, error: Exception) -> None:
        response, self._current = failure(error, request), None
        if self._sink is None and self._file is None:
            self._respond_last(response)
        else:
            self.abort()

    def _send(self, request: Request, response: Response) -> None:
        self._server.traffic.answered(request, response.status, response.code)
        if request.charge is not None:
            request.charge(len(response.body))
        # The response may be shared with other connections, so it is not changed here.
        close = response.close or not request.keep_alive or self._server.stopping
        if isinstance(response.body, FileBody) and request.method != "HEAD":
            self._send_file(request, response, response.body, close=close)
        else:
            self._respond(response, request, close=close)
            self._current = None
            self._restart_clock()

    def _respond(self, response: Response, request: Request | None = None, *, close: bool) -> None:
        body = response.body
        is_head = request is not None and request.method == "HEAD"
        if is_head or response.status in _BODILESS or isinstance(body, FileBody):
            # What a GET would have sent is not known here, and nothing else may be said.
            self._write(self._head(response, request, None, close=close))
        elif len(body) < _SHARED_BYTES:
            self._write(self._head(response, request, len(body), close=close) + body)
        else:
            self._write(self._head(response, request, len(body), close=close))
            self._write(body)
        if close:
            self._close()

    def _respond_last(self, response: Response) -> None:
        """There is nothing else to say if this fails as well."""
        try:
            self._respond(response, close=True)
        except Exception as error:
            report(error)
            self.abort()

    def _head(
        self, response: Response, request: Request | None, length: int | None, *, close: bool
    ) -> bytes:
        origin = name = None
        if request is not None:
            origin, name = request.headers.get(b"origin"), request.name_line(response.status)
        return self._server.heads.of_response(
            response.status,
            response.headers,
            length,
            origin=origin,
            name=name or b"",
            lines=response.lines,
            close=close,
        )

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _close(self) -> None:
        if self._transport is None:
            return
        self._closing = True
        is_sending = self._inbox is not None and self._inbox.reader.in_body
        self._stop_reading()
        if is_sending and not self._server.is_secure:
            # A close with something unread would take the answer from the peer before it is read.
            self._transport.write_eof()
            self.deadline = self._server.now + _LINGER_S
        else:
            self._transport.close()

    # ── Bodies in files: this is the Owner of what is being sent ─────────────────────────────

    def _send_file(
        self, request: Request, response: Response, body: FileBody, *, close: bool
    ) -> None:
        """The request stays the current one until all of it is sent."""
        if self._transport is None:
            return
        head = self._head(response, request, len(body), close=close)
        request.keep_alive = not close
        secure = self._server.is_secure
        self._file = send_file(self, self._transport, head, body, is_secure=secure)
        self._restart_clock()
        self._start_file(self._file)

    def _start_file(self, file: FileSending) -> None:
        """Called again when there is nothing else left to write."""
        try:
            file.start()
        except Exception as error:
            self.file_failed(error)

    def file_progressed(self) -> None:
        self._restart_clock()

    def file_failed(self, error: Exception) -> None:
        if not isinstance(error, ConnectionError):
            report(error, self._current)
        self.abort()

    def file_sent(self) -> None:
        request, self._file, self._current = self._current, None, None
        if self._server.stopping or (request is not None and not request.keep_alive):
            self._close()
        else:
            self._restart_clock()
            self._next()

    # ── Event streams ────────────────────────────────────────────────────────────────────────

    def _begin_events(
        self, transport: asyncio.Transport, request: Request, events: EventStream
    ) -> None:
        server, chunked = self._server, self._inbox is None or not self._inbox.reader.http_1_0
        head = server.heads.of_events(
            events.headers,
            origin=request.headers.get(b"origin"),
            name=request.name_line(200),
            chunked=chunked,
        )
        try:
            server.room.enter(request.holder)
        except StreamError as error:
            events.stopped()
            self._send(request, error_response(error))
            return
        sink = EventSink(self, transport, server.room, request.holder, events, chunked=chunked)
        self._sink, self._caller, self._current = sink, request.caller, None
        # Nothing more is read from this connection; thousands of them are idle at a time.
        self._stop_reading()
        self._restart_clock()
        # Whoever can be paused is, before the reader has so much unread that it is cut off.
        unread_max = min(UNSENT_BYTES_HIGH, server.limits.reader_buffer_bytes_max)
        if unread_max < UNSENT_BYTES_HIGH:
            transport.set_write_buffer_limits(high=unread_max)
        server.traffic.begun(request)
        sink.start(head)
        if server.stopping:
            sink.end()
