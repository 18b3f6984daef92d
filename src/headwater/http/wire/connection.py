"""One HTTP/1.1 connection: the boundary between sockets and handlers.

uvloop moves the bytes, `inbox` turns them into requests, and this module answers one request after
the other. `flow_control` watches for slow peers; `event_sink` and `file_sending` send what does not
fit into one write. No other module knows about any of it.

A request is answered without a task if its handler can answer at once, and with a callback on a
future if it has to wait for a commit. Idle event streams need no task either.

Any failure while a request is read or answered is logged and signalled to the peer: with a 500 if
none of the answer has been sent, otherwise by closing the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from headwater.core.access import Caller
from headwater.core.errors import StreamError, Unauthorized
from headwater.http.dialects import spelled
from headwater.http.errors import error_response
from headwater.http.messages import Answer, Deferred, EventStream, FileBody, Peer, Request, Response
from headwater.http.paths import PROBE_TARGETS
from headwater.http.wire.event_sink import EventSink
from headwater.http.wire.file_sending import FileSending, send_file
from headwater.http.wire.flow_control import UNSENT_BYTES_HIGH, FlowControl, or_abort
from headwater.http.wire.inbox import Inbox
from headwater.http.wire.outcomes import abandon, as_future, as_is, failure, outcome, report
from headwater.http.wire.parsing import SLICE_BYTES
from headwater.service.replies import Reply

if TYPE_CHECKING:
    from headwater.http.wire.server import Server

_BODILESS: Final = frozenset({204, 304})
_EXPELLED: Final = "the key or token is not valid any more; get a new one"
_FOREVER: Final = float("inf")
# Larger bodies are passed on without a copy, so that all recipients of the same body share it.
_SHARED_BYTES: Final = 64 * 1024
# How long a peer may keep sending a refused body, so that it gets to read the refusal.
_LINGER_S: Final = 2.0
# How long a peer that is turned away has to send a probe.
_PROBE_S: Final = 1.0


class Connection(FlowControl):
    __slots__ = ("_caller", "_file", "_inbox", "_looping", "_sink")

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._inbox: Inbox | None = None
        """None once nothing more is read: the connection ends, or is an event stream."""
        self._sink: EventSink | None = None
        self._file: FileSending | None = None
        self._looping = False
        """Whether requests are being read or answered further up the stack."""
        self._caller: Caller | None = None

    # ── Life of the connection ───────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        name = self._transport.get_extra_info("peername")
        self.peer = Peer(str(name[0]) if name else "", self._server.scheme, self._server.readers)
        self._inbox = Inbox(self, self._server, self._transport)
        self._server.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.closed(self)
        self._server.readers.measured(self, 0)
        self._transport = None
        self._stop_reading()
        self._release_drain()
        if self._file is not None:
            self._file.cancel()
            self._file = None
        if self._sink is not None:
            self._sink.over()
        elif self.current is not None:
            # Its body is counted until its handler is done with it.
            abandon(self.current)
        self.current = None

    def eof_received(self) -> bool:
        """The peer sends no more. It may still wait for the answers to what it sent.

        A peer that waits for data has most likely hung up, but there is no way to tell.
        """
        current = self.current
        if current is None or current.on_disconnect is not None:
            return False
        last = None if self._inbox is None else self._inbox.last
        (last or current).keep_alive = False
        # TLS connections cannot be half-closed.
        return not self._server.is_secure

    @or_abort
    def resume_writing(self) -> None:
        super().resume_writing()
        # An asyncio transport that is closed inside this call ends twice.
        asyncio.get_running_loop().call_soon(self._catch_up)

    @or_abort
    def _catch_up(self) -> None:
        """The peer has read what it was sent: continue with what had to wait for that."""
        self.restart_clock()
        if self._file is not None:
            self._file.start()
        self.proceed()

    def restart_clock(self) -> None:
        """Give the peer the time that the current phase allows."""
        now, timeouts = self._server.now, self._server.timeouts
        if self.paused or self._file is not None:
            self.deadline = now + timeouts.write_s
        elif self.current is not None or self._sink is not None:
            self.deadline = _FOREVER
        elif self._inbox is not None and self._inbox.reader.started:
            in_body = self._inbox.reader.in_body
            self.deadline = now + (timeouts.body_s if in_body else timeouts.head_s)
        else:
            self.deadline = now + timeouts.idle_s

    def _stop_reading(self) -> None:
        if self._inbox is not None:
            self._inbox.close()
            self._inbox = None

    def _close(self) -> None:
        if self._transport is None:
            return
        is_sending = self._inbox is not None and self._inbox.reader.in_body
        self._stop_reading()
        if is_sending and not self._server.is_secure:
            # Closing with unread input would discard the answer before the peer reads it.
            self._transport.write_eof()
            self.deadline = self._server.now + _LINGER_S
        else:
            self._transport.close()

    # ── Called by the server ─────────────────────────────────────────────────────────────────

    @property
    def caller(self) -> Caller | None:
        """Who sent the current request or event stream, if callers are known."""
        return self._caller if self.current is None else self.current.caller

    def abort(self) -> None:
        if self._sink is not None:
            self._sink.ended_here = self._sink.cut_off = True
        super().abort()

    def time_out(self) -> None:
        """The peer took too long."""
        inbox = self._inbox
        if inbox is None or inbox.last_word is None or inbox.refusal is not None or self.current:
            self.abort()
        else:
            inbox.refused(inbox.last_word)

    def turn_away(self, response: Response, *, probes: bool) -> None:
        """There is no room for this connection: say so and hang up. A probe may be answered."""
        if self._inbox is None:
            return
        if probes:
            self._inbox.last_word = response
            self.deadline = self._server.now + _PROBE_S
        else:
            self._inbox.refused(response)

    def wind_down(self) -> None:
        """The server is stopping: end event streams and idle connections, let requests finish."""
        if self._sink is not None:
            self._sink.end()
        elif self.current is not None:
            self.current.keep_alive = False
        elif self._transport is not None:
            self._transport.close()

    def expel(self) -> None:
        """The caller is no longer valid: end its reads and waits, and let its writes finish."""
        current = self.current
        if self._sink is not None:
            self._sink.end()
        elif current is not None and current.on_disconnect is not None and self._file is None:
            abandon(current)
            current.keep_alive = False
            self._answer(current, error_response(Unauthorized(_EXPELLED, sent=True)))

    # ── One request after the other ──────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        inbox = self._inbox
        if inbox is None or inbox.refusal is not None:
            return
        reader = inbox.reader
        is_new = self.current is None and inbox.is_between_requests and len(data) <= SLICE_BYTES
        if is_new:
            request = self._server.known_heads.find(data)
            if request is not None:
                reader.http_1_0 = False
                request.peer = self.peer
                self._looping = True
                self.handle(request)
                self._looping = False
                return
        was_started, was_in_body = reader.started, reader.in_body
        self._looping = True
        try:
            if not inbox.take(data, is_new=is_new):
                asyncio.get_running_loop().call_soon(self.proceed)
            # A head has a deadline however slowly it trickles in; a body has to keep a pace.
            if (
                reader.started
                and self.current is None
                and inbox.last_word is None
                and (reader.in_body != was_in_body or not was_started or reader.keeps_pace())
            ):
                self.restart_clock()
        except Exception as error:
            inbox.failed(error)
        self._looping = False
        if inbox.refusal is not None:
            self.proceed()

    @or_abort
    def proceed(self) -> None:
        """Answer the waiting requests, then read on."""
        inbox = self._inbox
        if inbox is None or self._looping:
            # While looping, the answer was immediate, or came while more was being read.
            return
        self._looping = True
        try:
            while inbox.waiting and self.is_free:
                self.handle(inbox.pop())
            if self._is_done(inbox) and not inbox.read_on():
                asyncio.get_running_loop().call_soon(self.proceed)
        finally:
            self._looping = False
        if self._is_done(inbox):
            if inbox.refusal is None:
                inbox.resume()
            else:
                self._server.traffic.refused(inbox.refusal)
                self._respond_last(inbox.refusal)

    @property
    def is_free(self) -> bool:
        """Whether the next request can be answered: its turn has come, and the peer reads."""
        return self.current is None and not self.paused and self._inbox is not None

    def _is_done(self, inbox: Inbox) -> bool:
        """Whether every request received has its answer, and more may follow."""
        return self.current is None and self._inbox is not None and not inbox.waiting

    # ── Answering ────────────────────────────────────────────────────────────────────────────

    def handle(self, request: Request) -> None:
        """Answer a request, now or when its answer is ready."""
        self.current = request
        request.began_s = perf_counter()
        try:
            head = request.head
            if head is not None and head.shortcut is not None:
                self.deadline = _FOREVER
                if head.shortcut.take(request, self):
                    return
            if request.method == "GET" and request.path not in PROBE_TARGETS:
                self._server.readers.check(self.peer.address)
            if head is not None and head.handler is not None:
                reply = head.handler(request)
            else:
                reply = self._server.handler(request)
            # The most frequent case first, which is also quick to recognise.
            if isinstance(reply, Deferred):
                self._answer_later(request, reply)
                return
            if not isinstance(reply, Answer):
                self._answer_later(request, Deferred(as_future(reply), as_is))
                return
            answer: Answer = reply
        except Exception as error:
            answer = failure(error, request)
        self._answer(request, answer)

    def settle(self, outcome: Any) -> None:
        """What the current request waited for, which took a shortcut.

        There is no other request until it is answered, and none if the peer has hung up. Requests
        with a shortcut have neither a large body nor a caller.
        """
        request = self.current
        if request is None or request.head is None or request.head.shortcut is None:
            return
        shortcut = request.head.shortcut
        try:
            if isinstance(outcome, Exception):
                self._answer(request, failure(outcome, request))
            else:
                lines, body = shortcut.render(outcome)
                if len(body) < _SHARED_BYTES:
                    self._answer_briefly(request, shortcut.status, lines, body)
                else:
                    response = Response(shortcut.status, body=body, lines=lines)
                    self._answer(request, self._if_there_is_room(response, request))
            if self._inbox is not None and not self._inbox.is_quiet:
                self.proceed()
        except Exception as error:
            report(error, request)
            self.abort()

    def _answer_briefly(self, request: Request, status: int, lines: bytes, body: bytes) -> None:
        server = self._server
        if request.waits:
            request.leave_room()
        server.traffic.answered(request, status, "")
        close = not request.keep_alive or server.stopping
        self.write(server.heads.whole(status, lines, body, request, close=close))
        self.current = None
        if close:
            self._close()
        elif self.paused:
            self.restart_clock()
        else:
            self.deadline = server.now + server.timeouts.idle_s

    def _answer_later(self, request: Request, later: Deferred) -> None:
        self.deadline, render = _FOREVER, later.render
        # Called immediately if the reply is already settled.
        later.future.add_done_callback(lambda done: self._finish(request, done, render))

    @or_abort
    def _finish(
        self,
        request: Request,
        done: asyncio.Future[Any] | Reply[Any],
        render: Callable[[Any], Answer],
    ) -> None:
        if done.cancelled() and self.current is not request:
            # The client is gone, which is why it was cancelled.
            request.leave_room()
            request.release()
        else:
            answer = outcome(done, render, request)
            if isinstance(answer, Response) and len(answer.body) >= _SHARED_BYTES:
                answer = self._if_there_is_room(answer, request)
            self._answer(request, answer)
            if self._inbox is not None and not self._inbox.is_quiet:
                self.proceed()

    def _if_there_is_room(self, answer: Response, request: Request) -> Response:
        """A large answer. Many may have waited for the same data, each admitted while there was
        room.
        """
        try:
            self._server.readers.check(self.peer.address)
        except StreamError as error:
            return failure(error, request)
        return answer

    def _answer(self, request: Request, answer: Answer) -> None:
        if request.waits:
            request.leave_room()
        if request.claim is not None:
            request.release()
        if self._transport is None or self.current is not request:
            if isinstance(answer, EventStream):
                answer.stopped()
            return
        try:
            if isinstance(answer, Response):
                self._send(self._transport, request, answer)
            else:
                self._begin_events(self._transport, request, answer)
        except Exception as error:
            response, self.current = failure(error, request), None
            if self._sink is None and self._file is None:
                self._respond_last(response)
            else:
                self.abort()

    def _send(self, transport: asyncio.Transport, request: Request, response: Response) -> None:
        if response.status >= 400:
            response = spelled(response, request)
        server, body = self._server, response.body
        server.traffic.answered(request, response.status, response.code)
        if request.charge is not None:
            request.charge(len(body))
        # The response may be shared with other connections, so it is not modified here.
        close = response.close or not request.keep_alive or server.stopping
        if isinstance(body, FileBody) and request.method != "HEAD":
            # The request stays the current one until all of it is sent.
            request.keep_alive = not close
            head = server.heads.of_response(response, request, len(body), close=close)
            self._file = send_file(self, transport, head, body, is_secure=server.is_secure)
            self.restart_clock()
            self._file.start()
        else:
            self._respond(response, request, close=close)
            self.current = None
            self.restart_clock()

    def _respond(self, response: Response, request: Request | None, *, close: bool) -> None:
        body, heads = response.body, self._server.heads
        is_head = request is not None and request.method == "HEAD"
        if is_head or response.status in _BODILESS or isinstance(body, FileBody):
            # The length that a GET would have sent is unknown here, and no other may be given.
            self.write(heads.of_response(response, request, None, close=close))
        elif len(body) < _SHARED_BYTES:
            self.write(heads.of_response(response, request, len(body), close=close) + body)
        else:
            self.write(heads.of_response(response, request, len(body), close=close))
            self.write(body)
        if close:
            self._close()

    def _respond_last(self, response: Response) -> None:
        """Send a last response. If this fails too, there is nothing else to do."""
        try:
            self._respond(response, None, close=True)
        except Exception as error:
            report(error)
            self.abort()

    def file_failed(self, error: Exception) -> None:
        """The response cannot be finished: the peer is gone, or the file has changed."""
        if not isinstance(error, ConnectionError):
            report(error, self.current)
        self.abort()

    def file_sent(self) -> None:
        """The whole file has been sent."""
        request, self._file, self.current = self.current, None, None
        if self._server.stopping or (request is not None and not request.keep_alive):
            self._close()
        else:
            self.restart_clock()
            self.proceed()

    def _begin_events(
        self, transport: asyncio.Transport, request: Request, events: EventStream
    ) -> None:
        server, chunked = self._server, self._inbox is None or not self._inbox.reader.http_1_0
        head = server.heads.of_events(events, request, chunked=chunked)
        try:
            server.readers.enter(request.holder, self.address)
        except StreamError as error:
            events.stopped()
            self._send(transport, request, error_response(error))
            return
        sink = EventSink(self, transport, server.readers, request.holder, events, chunked=chunked)
        self._sink, self._caller, self.current = sink, request.caller, None
        # Nothing more is read from this connection; thousands of them are idle at a time.
        self._stop_reading()
        self.restart_clock()
        server.traffic.begun(request)
        sink.start(head, server.limits.reader_buffer_bytes_max)
        if server.stopping:
            sink.end()
