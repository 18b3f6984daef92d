"""The inbox of a connection: what its peer has sent and nobody has answered yet.

Bytes are parsed slice by slice, and not while a request waits for its turn: a request takes many
times the room of its bytes. While there is something to wait for, nothing more is read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from headwater.http.messages import Request
from headwater.http.parsing import SLICE_BYTES, RequestReader

# After so many requests and pieces of bodies from one peer, everyone else on the loop gets a turn.
_TURN_STEPS: Final = 256


class Inbox:
    __slots__ = ("_input", "_paused", "_transport", "_waiting", "reader")

    def __init__(self, transport: asyncio.Transport, reader: RequestReader) -> None:
        self.reader = reader
        self._transport = transport
        self._input: memoryview | None = None
        """What has arrived and is not parsed yet."""
        self._waiting: deque[Request] | None = None
        """Pipelined after the one that is being answered."""
        self._paused = False

    def close(self) -> None:
        self.reader.close()
        for request in self._waiting or ():
            request.release()
        self._waiting = self._input = None

    def take(self, data: bytes) -> bool:
        """Parse what has arrived. False when there is more to parse after everyone had a turn."""
        if self._input is not None:
            # It was on its way when reading was paused.
            self._input = memoryview(bytes(self._input) + data)
            return True
        if len(data) <= SLICE_BYTES:
            self.reader.feed(data)
            return True
        self._input = memoryview(data)
        return self.read_on()

    def read_on(self) -> bool:
        """Go on parsing, until a request has to wait for its turn. False as above."""
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

    # ── Requests in line ─────────────────────────────────────────────────────────────────────

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def last(self) -> Request | None:
        return self._waiting[-1] if self._waiting else None

    def line_up(self, request: Request) -> None:
        """Pipelined requests are answered one by one; more may come when these are done."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(request)
        self._pause()

    def pop(self) -> Request:
        assert self._waiting
        request = self._waiting.popleft()
        if not self._waiting:
            self._waiting = None
        return request

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again, if nothing is left of what was read."""
        if self._paused and self._input is None and not self._waiting:
            self._paused = False
            self._transport.resume_reading()
