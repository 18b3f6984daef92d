"""SSE readers that only look for marks.

Every message of the live scenarios carries a mark: when it was written, on the monotonic clock that
all processes of a machine share, and by whom. A reader scans what arrives for marks and takes the
time; it builds no events. Such a message is small and servers write it to the socket in one piece,
so the framing of a chunked response does not split a mark; a server that did so would show up as
missing deliveries.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from benchmarks.load.http import HOST, request

Deliver = Callable[[bytes, int, int, bytes], None]
"""Called with what arrived, where its first mark is, the time in ns, and the reader's id.

The callee finds the marks itself, with ``MARK_START`` and the places below: building a list of
marks for every delivery would cost more than all the rest.
"""

MARK_START = b'"at":"'
AT_FROM, AT_UNTIL = 6, 25
BY_FROM, BY_UNTIL = 33, 39
MARK_BYTES = 40


class Mark(NamedTuple):
    """What marks look like on the wire, and where their text is."""

    start: bytes
    size: int
    decode: Callable[[bytes], bytes]


PLAIN_MARK = Mark(MARK_START, MARK_BYTES, bytes)

_NEXT_OFFSET = re.compile(rb'"streamNextOffset":\s*"([^"]+)"')

_CONNECTING_AT_ONCE = 64
_READY_SECONDS_MAX = 60.0


def marked_message(author: bytes, size: int) -> tuple[bytes, bytes]:
    """What goes before and after the 19 digits of the time in a message of ``size`` bytes."""
    before = b"{" + MARK_START
    after = b'","by":"%s","text":"' % author
    filling = size - len(before) - 19 - len(after) - 2
    return before, after + b"x" * filling + b'"}'


class SseReader(asyncio.Protocol):
    """One live reader. It resumes at its last offset if the server ends the connection."""

    __slots__ = (
        "_carry",
        "_deliver",
        "_last_control",
        "_last_marked",
        "_mark",
        "_name",
        "_path",
        "_port",
        "_reconnecting",
        "_transport",
        "closing",
        "ready",
        "reconnects",
    )

    def __init__(
        self, port: int, path: str, name: bytes, deliver: Deliver, mark: Mark = PLAIN_MARK
    ) -> None:
        self._mark = mark
        self._port = port
        self._path = path
        self._name = name
        self._deliver = deliver
        self._carry = b""
        self._last_control = b""
        self._last_marked = b""
        self._transport: asyncio.Transport | None = None
        self.closing = False
        self.reconnects = 0
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, HOST, self._port)
        try:
            await asyncio.wait_for(asyncio.shield(self.ready), _READY_SECONDS_MAX)
        except TimeoutError:
            late = f"a reader was not served within {_READY_SECONDS_MAX:.0f} s"
            raise RuntimeError(late) from None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Offsets sort as text, so the greatest is the latest, whichever piece it came in.
        known = _NEXT_OFFSET.findall(self._last_control + self._last_marked)
        offset = max(known).decode() if known else "now"
        self._transport.write(request("GET", f"{self._path}?offset={offset}&live=sse"))

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if self._carry:
            data = self._carry + data
            self._carry = b""
        mark = data.find(self._mark.start)
        if mark >= 0:
            self._last_marked = data
            self._deliver(data, mark, now, self._name)
        else:
            self._control_received(data)
        if not data.endswith((b"\n\n", b"\n\n\r\n")):
            self._carry = _unfinished_mark(data, self._mark)

    def _control_received(self, data: bytes) -> None:
        refused = data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 200")
        if b"streamNextOffset" in data:
            self._last_control = data
            if not self.ready.done():
                self.ready.set_result(None)
        elif refused and not self.ready.done():
            self.ready.set_exception(RuntimeError(f"SSE was answered {data[:40]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.closing and self.ready.done():
            self.reconnects += 1
            self._reconnecting = asyncio.get_running_loop().create_task(self.connect())

    def close(self) -> None:
        self.closing = True
        if self._transport is not None:
            self._transport.close()


async def connect_all(readers: Sequence[SseReader]) -> None:
    """Connect the readers, a few at a time: a burst would overflow the listen queue."""
    turn = iter(readers)

    async def connect_some() -> None:
        for reader in turn:
            await reader.connect()

    await asyncio.gather(*(connect_some() for _ in range(_CONNECTING_AT_ONCE)))


def _unfinished_mark(data: bytes, mark: Mark) -> bytes:
    """The end of ``data`` that may be the start of a mark, without any complete mark."""
    last = data.rfind(mark.start)
    if last >= 0 and last + mark.size > len(data):
        return data[last:]
    after_last = last + mark.size if last >= 0 else 0
    return data[max(after_last, len(data) - len(mark.start) + 1) :]
