"""One HTTP/1.1 connection: the boundary between sockets and handlers.

uvloop moves the bytes, `inbox` turns them into requests, and `answering` answers one after the
other. `flow_control` watches for slow peers; `event_sink` and `file_sending` send what does not fit
into one write. No other module knows about any of it.

Any failure while a request is read is logged and signalled to the peer, as one while it is answered
is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from headwater.core.access import Caller
from headwater.core.errors import Unauthorized
from headwater.http.errors import error_response
from headwater.http.messages import Peer, Response
from headwater.http.wire.answering import FOREVER, Answering
from headwater.http.wire.flow_control import UNSENT_BYTES_HIGH, or_abort
from headwater.http.wire.inbox import Inbox
from headwater.http.wire.outcomes import abandon
from headwater.http.wire.parsing import SLICE_BYTES

if TYPE_CHECKING:
    from headwater.http.wire.server import Server

_EXPELLED: Final = "the key or token is not valid any more; get a new one"
# How long a peer may keep sending a refused body, so that it gets to read the refusal.
_LINGER_S: Final = 2.0
# How long a peer that is turned away has to send a probe.
_PROBE_S: Final = 1.0


class Connection(Answering):
    __slots__ = ("_looping",)

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._looping = False
        """Whether requests are being read or answered further up the stack."""

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
            self.deadline = FOREVER
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
