"""From a generator to a durable stream in one line, in any ASGI application.

    @app.post("/chat")
    async def chat(question: Question):
        return durable(tokens(question), client.stream(f"chats/{question.id}"))

The generator runs on a task of its own and writes into the stream, whatever becomes of the
request. The answer is 201 with the address to read from, as `Location` and as `{"streamUrl": …}`,
which is what the public AI transports expect. When the generator ends, the stream is closed.

Nothing here needs a framework. Where Starlette is loaded, and so under FastAPI, the answer is one
of its responses, because FastAPI turns whatever is not into JSON.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec

from headwater.client.aio.stream import AsyncStream
from headwater.core.content_types import JSON

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

log = logging.getLogger(__name__)
_writing: Final[set[asyncio.Task[None]]] = set()


class Durable:
    """An ASGI application that begins to write, and says where to read.

    Attributes:
        task: what writes, once the answer was given; await it to know that everything is stored.
    """

    status_code: Final = 201

    def __init__(
        self,
        source: AsyncIterable[Any],
        stream: AsyncStream,
        *,
        content_type: str = JSON,
        read_url: str | None = None,
        ttl_s: int | None = None,
        on_error: Callable[[Exception], Any] | None = None,
    ) -> None:
        self.task: asyncio.Task[None] | None = None
        self._source = source
        self._stream = stream
        self._content_type = content_type
        self._read_url = read_url or stream.url
        self._ttl_s = ttl_s
        self._on_error = on_error

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await self._stream.ensure(content_type=self._content_type, ttl_s=self._ttl_s)
        self.task = asyncio.ensure_future(self._write())
        # The loop itself would not keep it alive.
        _writing.add(self.task)
        self.task.add_done_callback(_writing.discard)
        body = msgspec.json.encode({"streamUrl": self._read_url})
        headers = [
            (b"content-type", JSON.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"location", self._read_url.encode("ascii")),
            (b"cache-control", b"no-store"),
            (b"access-control-expose-headers", b"Location"),
        ]
        status = self.status_code
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _write(self) -> None:
        try:
            async with self._stream.producer() as producer:
                try:
                    async for item in self._source:
                        await producer.append(item)
                except Exception as error:
                    log.exception("the source of %s failed", self._stream.path)
                    if self._on_error is not None:
                        await producer.append(self._on_error(error))
            await self._stream.close()
        except Exception as error:
            log.error("cannot write to %s: %s", self._stream.path, error)


def durable(
    source: AsyncIterable[Any],
    stream: AsyncStream,
    *,
    content_type: str = JSON,
    read_url: str | None = None,
    ttl_s: int | None = None,
    on_error: Callable[[Exception], Any] | None = None,
) -> Any:
    """An answer that writes what a generator yields into a stream, and says where to read it.

    Args:
        source: yields messages of the stream: JSON values, or text for a stream of text.
        stream: where they go. It is created if it is not there, and closed at the end.
        content_type: of the stream, if it is created.
        read_url: where readers find the stream, if not at its own address: a signed one, or the
            path of a proxy.
        ttl_s: how long the stream is kept without use, if it is created.
        on_error: makes a last message of what the generator failed with.
    """
    answer = Durable(
        source,
        stream,
        content_type=content_type,
        read_url=read_url,
        ttl_s=ttl_s,
        on_error=on_error,
    )
    starlette = sys.modules.get("starlette.responses")
    return answer if starlette is None else _as_starlette(answer, starlette.Response)


def _as_starlette(answer: Durable, base: Any) -> Any:
    class DurableResponse(base):  # type: ignore[misc]
        async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
            await answer(scope, receive, send)
            if self.background is not None:
                await self.background()

    return DurableResponse(status_code=Durable.status_code)
