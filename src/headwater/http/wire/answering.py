"""Answers, from a handler to the wire.

A request is answered without a task if its handler can answer at once, and with a callback on a
future if it has to wait for a commit. Some requests have a shortcut and need not even a future: the
connection itself waits for their commit. Idle event streams need no task either.

Any failure while a request is answered is logged and signalled to the peer: with a 500 if none of
the answer has been sent, otherwise by closing the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from headwater.core.access import Caller
from headwater.core.errors import StreamError
from headwater.http.dialects import spelled
from headwater.http.errors import error_response
from headwater.http.messages import Answer, Deferred, EventStream, FileBody, Request, Response
from headwater.http.paths import PROBE_TARGETS
from headwater.http.wire.event_sink import EventSink
from headwater.http.wire.file_sending import FileSending, send_file
from headwater.http.wire.flow_control import FlowControl, or_abort
from headwater.http.wire.inbox import Inbox
from headwater.http.wire.outcomes import as_future, as_is, failure, outcome, report
from headwater.service.replies import Reply

if TYPE_CHECKING:
    from headwater.http.wire.server import Server

FOREVER: Final = float("inf")
_BODILESS: Final = frozenset({204, 304})
# Larger bodies are passed on without a copy, so that all recipients of the same body share it.
_SHARED_BYTES: Final = 64 * 1024


class Answering(FlowControl):
    """The answering half of a connection; what it needs of the other half comes last."""

    __slots__ = ("_caller", "_file", "_inbox", "_sink")

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._inbox: Inbox | None = None
        """None once nothing more is read: the connection ends, or is an event stream."""
        self._sink: EventSink | None = None
        self._file: FileSending | None = None
        self._caller: Caller | None = None

    def handle(self, request: Request) -> None:
        """Answer a request, now or when its answer is ready."""
        self.current = request
        request.began_s = perf_counter()
        try:
            head, handler = request.head, None
            if head is not None and head.admits(request):
                handler, shortcut = head.handler, head.shortcut
                if shortcut is not None:
                    self.deadline = FOREVER
                    if shortcut.take(request, self):
                        return
            if request.method == "GET" and request.path not in PROBE_TARGETS:
                self._server.readers.check(self.peer.address)
            reply = (handler or self._server.handler)(request)
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
        with a shortcut have no large body.
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
        close = not request.keep_alive or server.stopping
        self.write(server.heads.whole(status, lines, body, request, close=close))
        server.traffic.answered(request, status, "")
        self.current = None
        if close:
            self._close()
        elif self.paused:
            self.restart_clock()
        else:
            self.deadline = server.now + server.timeouts.idle_s

    def _answer_later(self, request: Request, later: Deferred) -> None:
        self.deadline, render = FOREVER, later.render
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

    # ── The other half ───────────────────────────────────────────────────────────────────────

    def proceed(self) -> None:
        """Answer the waiting requests, then read on."""

    def restart_clock(self) -> None:
        """Give the peer the time that the current phase allows."""

    def _stop_reading(self) -> None:
        """Take in nothing more."""

    def _close(self) -> None:
        """Hang up once everything is sent."""
