"""The httpx transport against a server that answers with bytes of the test's choosing."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from headwater.client.aio.transport import HttpxTransport, Timeouts
from headwater.client.errors import ConnectionFailed, RequestTimedOut, UnexpectedAnswer
from headwater.client.protocol.streams import Request, append_request, read_request

Script = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\nStream-Next-Offset: 0_1\r\nContent-Length: 2\r\n\r\n[]"


class RawServer:
    """Hands each request to a script, which writes what it likes."""

    def __init__(self, script: Script) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.url = ""
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()

    def on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                request = await reader.readuntil(b"\r\n\r\n")
                self.requests.append(request)
                await self._script(request, writer)
        except EOFError:
            pass
        finally:
            writer.close()

    async def end(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serving(
    script: Script, timeouts: Timeouts | None = None
) -> AsyncIterator[tuple[RawServer, HttpxTransport]]:
    server = RawServer(script)
    listener = await asyncio.start_server(server.on_connection, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/s"
    transport = HttpxTransport(timeouts=timeouts)
    try:
        yield server, transport
    finally:
        await transport.aclose()
        await server.end()
        listener.close()


async def answer_ok(request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)


async def test_connections_are_reused() -> None:
    async with serving(answer_ok) as (server, transport):
        for _ in range(3):
            response = await transport.send(read_request(server.url, offset="0_0"))
            assert (response.status, response.body) == (200, b"[]")
            assert response.next_offset == "0_1"
        assert server.connections == 1
        assert server.requests[0].startswith(b"GET /s?offset=0_0 HTTP/1.1\r\n")


async def test_a_distrusted_connection_is_not_used_again() -> None:
    async with serving(answer_ok) as (server, transport):
        for _ in range(3):
            await transport.send(read_request(server.url, offset="0_0"))
            await transport.distrust()
        assert server.connections == 3


async def test_distrust_does_not_disturb_what_is_under_way() -> None:
    arrived, release = asyncio.Event(), asyncio.Event()

    async def slow(request: bytes, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await release.wait()
        writer.write(OK)

    async with serving(slow) as (server, transport):
        request = asyncio.ensure_future(transport.send(read_request(server.url, offset="0_0")))
        await arrived.wait()
        await transport.distrust()
        release.set()
        assert (await request).status == 200


ENDLESS_BYTES_MAX = 1_000_000


async def endless(writer: asyncio.StreamWriter, head: bytes) -> None:
    writer.write(b"HTTP/1.1 " + head + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    with suppress(ConnectionError):
        while True:
            writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
            await writer.drain()


async def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.client.aio.transport.ANSWER_BYTES_MAX", ENDLESS_BYTES_MAX)

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        await endless(writer, b"200 OK")

    async with serving(script) as (server, transport), asyncio.timeout(60):
        with pytest.raises(UnexpectedAnswer, match="over 1000000 bytes"):
            await transport.send(read_request(server.url, offset="0_0"))


async def test_an_error_without_end_is_cut_off() -> None:
    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        await endless(writer, b"503 Busy")

    async with serving(script) as (server, transport), asyncio.timeout(60):
        response = await transport.send(read_request(server.url, offset="0_0"))
        assert response.status == 503
        assert 1024**2 < len(response.body) < 2 * 1024**2


async def test_what_inflates_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.client.aio.transport.ANSWER_BYTES_MAX", ENDLESS_BYTES_MAX)
    body = gzip.compress(bytes(10 * ENDLESS_BYTES_MAX))
    head = f"Content-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"

    async def script(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head.encode() + body)

    async with serving(script) as (server, transport):
        with pytest.raises(UnexpectedAnswer, match="over"):
            await transport.send(read_request(server.url, offset="0_0"))


async def test_nobody_listens() -> None:
    transport = HttpxTransport()
    with pytest.raises(ConnectionFailed) as caught:
        await transport.send(Request("GET", "http://127.0.0.1:1/s"))
    assert not caught.value.in_doubt
    await transport.aclose()


@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"",
        b"HTTP/1.1 200",
        OK[:-1],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\njunk",
        b"this is not http\r\n\r\n",
    ],
)
async def test_an_answer_that_breaks_off(bytes_sent: bytes) -> None:
    async def cut(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes_sent)
        writer.close()

    async with serving(cut) as (server, transport):
        with pytest.raises(ConnectionFailed) as caught:
            await transport.send(append_request(server.url, b"x", content_type="text/plain"))
        assert caught.value.in_doubt


@pytest.mark.parametrize("live", [None, "long-poll", "sse"])
async def test_each_kind_of_request_has_its_own_patience(live: str | None) -> None:
    async def never(request: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    endless = {"answer_s": 3600.0, "long_poll_s": 3600.0, "sse_silence_s": 3600.0}
    short = {None: "answer_s", "long-poll": "long_poll_s", "sse": "sse_silence_s"}[live]
    timeouts = Timeouts(**{**endless, short: 0.01})
    async with serving(never, timeouts) as (server, transport):
        with pytest.raises(RequestTimedOut) as caught:
            await transport.open(read_request(server.url, offset="0_0", live=live))  # type: ignore[arg-type]
        assert caught.value.in_doubt


async def test_an_open_answer_comes_in_chunks() -> None:
    chunks: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def events(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while (chunk := await chunks.get()) is not None:
            writer.write(chunk)
        writer.close()

    async with serving(events) as (server, transport):
        answer = await transport.open(read_request(server.url, offset="0_0", live="sse"))
        assert answer.headers["content-type"] == "text/event-stream"
        for chunk in (b"data: 1\n\n", b"data: 2\n\n"):
            chunks.put_nowait(chunk)
            assert await answer.next_chunk() == chunk
        chunks.put_nowait(None)
        assert await answer.next_chunk() is None
        await answer.aclose()


async def test_silence_on_an_event_stream() -> None:
    async def events(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        await asyncio.Event().wait()

    async with serving(events, Timeouts(sse_silence_s=0.01)) as (server, transport):
        answer = await transport.open(read_request(server.url, offset="0_0", live="sse"))
        with pytest.raises(RequestTimedOut):
            await answer.next_chunk()
        await answer.aclose()


async def test_a_cancelled_request_leaves_the_transport_usable() -> None:
    arrived = asyncio.Event()

    async def hang_once(request: bytes, writer: asyncio.StreamWriter) -> None:
        if not arrived.is_set():
            arrived.set()
            await asyncio.Event().wait()
        writer.write(OK)

    async with serving(hang_once) as (server, transport):
        request = asyncio.ensure_future(transport.send(read_request(server.url, offset="0_0")))
        await arrived.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert (await transport.send(read_request(server.url, offset="0_0"))).status == 200
