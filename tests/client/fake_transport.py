"""A transport without a network: a test decides what each request gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from headwater.client.errors import ConnectionFailed
from headwater.client.protocol.streams import Request, Response

Handler = Callable[[Request], Awaitable[Response]]


class FakeTransport:
    """Answers every request with a function, and remembers them all."""

    def __init__(self, handler: Handler) -> None:
        self.requests: list[Request] = []
        self.closed = False
        self.distrusted = 0
        self._handler = handler

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        return await self._handler(request)

    async def open(self, request: Request) -> FakeOpenResponse:
        self.requests.append(request)
        response = await self._handler(request)
        assert isinstance(response, EventStream | Response)
        return FakeOpenResponse(response)

    async def distrust(self) -> None:
        self.distrusted += 1

    async def aclose(self) -> None:
        self.closed = True


class EventStream(Response):
    """An answer whose body comes chunk by chunk, from a queue: None ends it, an error breaks it."""

    __slots__ = ("chunks",)

    def __init__(self, *chunks: bytes | Exception | None) -> None:
        super().__init__(200, {"content-type": "text/event-stream"})
        queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        for chunk in chunks:
            queue.put_nowait(chunk)
        object.__setattr__(self, "chunks", queue)


class FakeOpenResponse:
    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.closed = False
        self._response = response
        self._body_sent = False

    async def next_chunk(self) -> bytes | None:
        if isinstance(self._response, EventStream):
            chunk: Any = await self._response.chunks.get()  # type: ignore[attr-defined]
            if isinstance(chunk, Exception):
                raise chunk
            return chunk if chunk is None else bytes(chunk)
        if self._body_sent:
            return None
        self._body_sent = True
        return self._response.body

    async def aclose(self) -> None:
        self.closed = True


def script(*answers: Response | Exception) -> Handler:
    """Give these answers one after the other, and hang when they have run out."""
    waiting = iter(answers)

    async def handle(_: Request) -> Response:
        answer = next(waiting, None)
        if answer is None:
            await asyncio.Event().wait()
            raise AssertionError("never reached")
        if isinstance(answer, Exception):
            raise answer
        return answer

    return handle


def granted(next_offset: str, body: bytes = b"", status: int = 200, **headers: str) -> Response:
    """A read's answer in a JSON stream: `stream_closed="true"` becomes `stream-closed: true`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    base = {"stream-next-offset": next_offset, "content-type": "application/json"}
    return Response(status, {**base, **named}, body)


def refused(status: int, code: str | None = None, **headers: str) -> Response:
    """An error answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = msgspec.json.encode({"error": {"code": code, "message": "no"}}) if code else b""
    return Response(status, {"content-type": "application/json", **named}, body)


def control(next_offset: str, **fields: bool) -> bytes:
    """A control event."""
    body = msgspec.json.encode({"streamNextOffset": next_offset, **fields})
    return b"event: control\ndata: " + body + b"\n\n"


def data(*messages: Any) -> bytes:
    """A data event."""
    return b"event: data\ndata: " + msgspec.json.encode(list(messages)) + b"\n\n"


def lost() -> ConnectionFailed:
    return ConnectionFailed("lost", in_doubt=True)


def not_connected() -> ConnectionFailed:
    return ConnectionFailed("refused", in_doubt=False)
