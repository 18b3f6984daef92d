"""The transport from the client to the server's handlers without a socket.

A client request becomes a server request, and the server's answer a client response. So everything
that the client can do over the network works here, by the same rules.

A cancelled caller counts as a closed connection: waits end, and a commit continues.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from headwater.client.aio.transport import OpenResponse
from headwater.client.errors import ConnectionFailed
from headwater.client.protocol.streams import Request, Response
from headwater.core.errors import BodyTooLarge
from headwater.core.limits import Limits
from headwater.http import messages
from headwater.http.app import App
from headwater.http.dialects import spelled
from headwater.http.errors import error_response
from headwater.http.messages import Answer, Deferred, EventStream, FileBody, Payload, Peer
from headwater.http.wire.flow_control import UNSENT_BYTES_HIGH
from headwater.http.wire.outcomes import abandon, as_future, as_is, failure, outcome

URL = "http://headwater.embedded"
"""The base of the addresses of its streams; nothing listens there."""
_HERE = Peer("127.0.0.1")


class EmbeddedTransport:
    """Implements `client.aio.transport.Transport`."""

    def __init__(self, app: App, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._under_way: set[asyncio.Future[Answer]] = set()
        self._events: set[_Events] = set()

    # ── For the client ───────────────────────────────────────────────────────────────────────

    async def send(self, request: Request) -> Response:
        answer = await self._ask(request)
        if isinstance(answer, EventStream):
            answer.stopped()
            raise ConnectionFailed(f"{request.method} {request.url}: the answer has no end")
        return Response(answer.status, _headers(answer), await _body(request, answer))

    async def open(self, request: Request) -> OpenResponse:
        answer = await self._ask(request)
        if isinstance(answer, EventStream):
            return _Events(answer, self._events, self._limits.reader_buffer_bytes_max)
        return _Whole(answer.status, _headers(answer), await _body(request, answer))

    async def distrust(self) -> None:
        """There is no connection whose state could be unknown."""

    async def aclose(self) -> None:
        """The client is done with it; `stop` ends the log."""

    # ── Answers ──────────────────────────────────────────────────────────────────────────────

    async def _ask(self, request: Request) -> Answer:
        self.check()
        asked = _asked(request)
        waiting: asyncio.Future[Answer] = self._loop.create_future()
        self._under_way.add(waiting)

        def settle(answer: Answer) -> None:
            if not waiting.done():
                waiting.set_result(answer)
            elif isinstance(answer, EventStream):
                answer.stopped()

        try:
            self._handle(asked, settle)
            answer = await waiting
        except asyncio.CancelledError:
            abandon(asked)
            raise
        finally:
            self._under_way.discard(waiting)
        if isinstance(answer, messages.Response) and answer.status >= 400:
            return spelled(answer, asked)
        return answer

    def _handle(self, asked: messages.Request, settle: Callable[[Answer], None]) -> None:
        """Handle it like a connection: now, or when its answer is there."""
        try:
            refusal = self._screened(asked)
            answer = self._app(asked) if refusal is None else refusal
            if isinstance(answer, Answer):
                settle(answer)
                return
            if isinstance(answer, Deferred):
                future, render = answer.future, answer.render
            else:
                future, render = as_future(answer), as_is
        except Exception as error:
            settle(failure(error, asked))
            return

        def finish(done: Any) -> None:
            settle(outcome(done, render, asked))

        future.add_done_callback(finish)

    def _screened(self, asked: messages.Request) -> messages.Response | None:
        """Refuse a body that is too large, like a connection."""
        if not asked.body:
            return None
        most = self._app.screen(asked, self._limits.body_bytes_max)
        if isinstance(most, messages.Response):
            return most
        if not most:
            asked.body = b""
        elif len(asked.body) > most:
            return error_response(BodyTooLarge(most))
        return None

    # ── Lifecycle ────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Refuse use after the end, or from a loop where nothing would be answered."""
        if self._is_closed:
            raise RuntimeError("the log is closed; open it again with headwater.open")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                "the log belongs to the event loop that it was opened on; from other threads, use "
                "asyncio.run_coroutine_threadsafe, or open it with `with` instead of `async with`"
            )

    def close(self) -> None:
        """Accept no more requests, and end those that never end by themselves."""
        self._is_closed = True
        for events in [*self._events]:
            events.end()

    async def settled(self, patience_s: float) -> None:
        """Wait for outstanding answers; disconnect those that take too long."""
        if self._under_way:
            await asyncio.wait([*self._under_way], timeout=patience_s)
        for waiting in [*self._under_way]:
            waiting.cancel()


def _asked(request: Request) -> messages.Request:
    """The request as a connection would have parsed it."""
    url = urlsplit(request.url)
    if f"{url.scheme}://{url.netloc}" != URL:
        raise ValueError(f"{request.url} is not in this log; use headwater.client for servers")
    query = "&".join(part for part in (url.query, urlencode(request.params)) if part)
    headers = {
        name.lower().encode("ascii"): value.encode("latin-1")
        for name, value in request.headers.items()
    }
    headers.setdefault(b"host", url.netloc.encode("ascii"))
    asked = messages.Request(request.method, url.path.encode("ascii"), query.encode(), headers)
    asked.body = request.body
    asked.peer = _HERE
    return asked


def _headers(answer: Answer) -> Mapping[str, str]:
    """Names in lower case; of a repeated header, all values."""
    found: dict[str, str] = {}
    lines = "" if isinstance(answer, EventStream) else answer.lines.decode("latin-1")
    ready = [line.split(": ", 1) for line in lines.split("\r\n") if line]
    for name, value in [*answer.headers, *((name, value) for name, value in ready)]:
        key = name.lower()
        found[key] = f"{found[key]}, {value}" if key in found else value
    return found


async def _body(request: Request, answer: messages.Response) -> bytes:
    if request.method == "HEAD":
        return b""
    if isinstance(answer.body, FileBody):
        return await asyncio.to_thread(answer.body.read)
    return answer.body


class _Whole:
    """A complete answer, for a client that could also take it in pieces."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body: bytes | None = body or None

    async def next_chunk(self) -> bytes | None:
        body, self._body = self._body, None
        return body

    async def aclose(self) -> None:
        self._body = None


class _Events:
    """Both ends of an event stream: `messages.Sink` to the server, `OpenResponse` to the client.

    As over a connection, a reader that falls too far behind is cut off and reconnects from its
    offset.
    """

    status = 200

    def __init__(self, events: EventStream, opened: set[_Events], unread_max: int) -> None:
        self.headers = _headers(events)
        self.ended_here = False
        self.cut_off = False
        self._events: EventStream | None = events
        self._opened = opened
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._unread_max = unread_max
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        opened.add(self)
        events.start(self)

    # The server's end.

    def send(self, payload: Payload) -> bool:
        if self._events is None:
            return False
        if self._unread_bytes and self._unread_bytes + len(payload.raw) > self._unread_max:
            self.cut_off = True
            self._unread.clear()
            self.end()
            return False
        self._unread.append(payload.raw)
        self._unread_bytes += len(payload.raw)
        if self.paused:
            self._room.clear()
        self._news.set()
        return True

    @property
    def paused(self) -> bool:
        return self._unread_bytes > min(UNSENT_BYTES_HIGH, self._unread_max)

    async def drained(self) -> bool:
        await self._room.wait()
        return self._events is not None

    def end(self) -> None:
        self.ended_here = True
        self._over()

    def _over(self) -> None:
        events, self._events = self._events, None
        self._opened.discard(self)
        self._news.set()
        self._room.set()
        if events is not None:
            events.stopped()

    # The client's end.

    async def next_chunk(self) -> bytes | None:
        while not self._unread:
            if self._events is None:
                if self.cut_off:
                    raise ConnectionFailed("the reader did not keep up", in_doubt=True)
                return None
            self._news.clear()
            await self._news.wait()
        chunk = b"".join(self._unread)
        self._unread.clear()
        self._unread_bytes = 0
        self._room.set()
        return chunk

    async def aclose(self) -> None:
        self._over()
