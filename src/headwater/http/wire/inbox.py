"""The inbox of a connection: what its peer has sent and has not been answered yet.

Bytes are parsed slice by slice, and not while a request waits for its turn: a parsed request takes
many times the room of its bytes. While anything waits, nothing more is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from headwater.http.messages import Request, Response
from headwater.http.paths import PROBE_TARGETS
from headwater.http.wire.body_budget import Claim
from headwater.http.wire.outcomes import failure
from headwater.http.wire.parsing import SLICE_BYTES, RequestReader

if TYPE_CHECKING:
    from headwater.http.wire.connection import Connection
    from headwater.http.wire.server import Server

# After this many requests and pieces of bodies from one peer, everyone else gets a turn.
_TURN_STEPS: Final = 32
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Inbox:
    """Implements `parsing.Receiver`."""

    __slots__ = (
        "_connection",
        "_input",
        "_owes_continue",
        "_paused",
        "_server",
        "_transport",
        "_waiting",
        "last_word",
        "reader",
        "refusal",
    )

    def __init__(
        self, connection: Connection, server: Server, transport: asyncio.Transport
    ) -> None:
        self.reader = RequestReader(server.limits, self, server.known_heads)
        self.refusal: Response | None = None
        """The answer to malformed input. It is sent last."""
        self.last_word: Response | None = None
        """The answer to everything except probes."""
        self._connection = connection
        self._server = server
        self._transport = transport
        self._input: memoryview | None = None
        """Received but not yet parsed."""
        self._waiting: deque[Request] | None = None
        """Pipelined after the request that is being answered."""
        self._paused = False
        self._owes_continue = False

    def close(self) -> None:
        self.reader.close()
        for request in self._waiting or ():
            request.release()
        self._waiting = self._input = None

    # ── Bytes ────────────────────────────────────────────────────────────────────────────────

    def take(self, data: bytes, *, is_new: bool = False) -> bool:
        """Parse what has arrived. False if more is left to parse after everyone else's turn.

        `is_new` says that its head was looked up among the known ones.
        """
        if self._input is not None:
            # It was already on its way when reading was paused.
            self._input = memoryview(bytes(self._input) + data)
            return True
        if len(data) <= SLICE_BYTES:
            self.reader.feed(data, is_new=is_new)
            return True
        self._input = memoryview(data)
        return self.read_on()

    def read_on(self) -> bool:
        """Continue parsing, until a request has to wait for its turn. False as above."""
        reader = self.reader
        last = reader.steps + _TURN_STEPS
        while self._input is not None and not self._waiting and reader.steps <= last:
            size = reader.slice_bytes
            data, rest = self._input[:size], self._input[size:]
            self._input = rest if rest else None
            reader.feed(data, more=bool(rest))
        if self._input is None:
            return True
        self._pause()
        return bool(self._waiting)

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Everything that was read is answered: let the peer send more."""
        if self._owes_continue:
            self._owes_continue = False
            self._connection.write(_CONTINUE)
        if self._paused and self._input is None and not self._waiting:
            self._paused = False
            self._transport.resume_reading()

    # ── Requests ─────────────────────────────────────────────────────────────────────────────

    @property
    def is_between_requests(self) -> bool:
        """Whether the next bytes begin a request, whose turn it is at once."""
        return (
            not self.reader.started
            and self._waiting is None
            and self._input is None
            and self.last_word is None
            and not self._connection.paused
        )

    @property
    def is_quiet(self) -> bool:
        """Whether all input was parsed and handed on, and more may come."""
        return (
            self._waiting is None
            and self._input is None
            and self.refusal is None
            and not self._paused
            and not self._owes_continue
        )

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def last(self) -> Request | None:
        return self._waiting[-1] if self._waiting else None

    def pop(self) -> Request:
        assert self._waiting
        request = self._waiting.popleft()
        if not self._waiting:
            self._waiting = None
        return request

    def received(self, request: Request) -> None:
        self._owes_continue = False
        connection = self._connection
        request.peer = connection.peer
        if self.last_word is not None:
            request.keep_alive = False
            if request.path not in PROBE_TARGETS:
                self.refused(self.last_word)
                return
        if connection.is_free and not self._waiting:
            connection.handle(request)
        else:
            self._line_up(request)

    def _line_up(self, request: Request) -> None:
        """Pipelined requests are answered one by one; more may come when these are done."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(request)
        self._pause()

    def expects_continue(self) -> None:
        if self._connection.current is not None or self._waiting:
            self._owes_continue = True
        else:
            self._connection.write(_CONTINUE)

    def announced(self, request: Request) -> Response | int:
        request.peer = self._connection.peer
        if self.last_word is not None:
            return self.last_word
        screen, most = self._server.screen, self._server.limits.body_bytes_max
        return most if screen is None else screen(request, most)

    def claim(self, request: Request) -> Claim:
        server, request.peer = self._server, self._connection.peer
        if server.recognise is not None:
            server.recognise(request)
        return server.bodies.claim(request.holder)

    def refused(self, response: Response) -> None:
        """Answered after everything that came before; then the connection ends."""
        if self.refusal is None:
            self.refusal = response
            self._connection.proceed()

    def failed(self, error: BaseException) -> None:
        self.refused(failure(error, self._connection.current))
