"""A TCP proxy for HTTP that does what networks and bad proxies do, by a seeded plan.

Each request gets a fate. The same seed deals the same fates in the same order; which request gets
which of them depends on the order in which the requests arrive.

    pass              nothing special
    delay             the request arrives late, so that others overtake it
    refuse            the connection is closed, the request never arrives
    lose answer       the request arrives, the connection is closed instead of an answer
    arrive late       the connection is closed, and the request arrives some time after that
    silence           the request arrives, and nothing ever comes back
    truncate          the answer breaks off somewhere
    repeat request    the request arrives twice; the second answer comes back
    repeat answer     the answer comes back twice, the second time where the next one belongs
    busy              429 or 503 from the proxy itself; the request never arrives
    bad gateway       the request arrives, 502 comes back
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

FATES: Final = (
    "delay",
    "refuse",
    "lose answer",
    "arrive late",
    "silence",
    "truncate",
    "repeat request",
    "repeat answer",
    "busy",
    "bad gateway",
)
DELAY_S_MAX: Final = 0.03


class FaultyProxy:
    """Listens on a port of its own and passes requests on to one server."""

    def __init__(self, target: str, *, seed: int, fault_rate: float) -> None:
        parts = urlsplit(target)
        self.fates: Counter[str] = Counter()
        self._target = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._random = random.Random(seed)
        self._fault_rate = fault_rate
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._spawn(self._serve(reader, writer))

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Who hangs up first, and how, does not matter here.
            with suppress(OSError, EOFError):
                while True:
                    request = await _read_request(reader)
                    if not await self._handle(request, writer):
                        break
        finally:
            writer.close()

    async def _handle(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """Let a request meet its fate; False when its connection ends with it."""
        fate = self.next_fate()
        self.fates[fate] += 1
        match fate:
            case "refuse":
                return False
            case "arrive late":
                self._spawn(self._deliver_late(request))
                return False
            case "busy":
                writer.write(_own_answer(self._random.choice(["429 Busy", "503 Busy"])))
                return True
            case "lose answer":
                await self._exchange(request)
                return False
            case "silence":
                await self._exchange(request)
                await asyncio.Event().wait()
            case "bad gateway":
                await self._exchange(request)
                writer.write(_own_answer("502 Bad Gateway"))
                return True
            case "delay":
                await asyncio.sleep(self._random.uniform(0.0, DELAY_S_MAX))
            case "repeat request":
                await self._exchange(request)
        return await self._relay(request, writer, fate)

    def next_fate(self) -> str:
        """What the next request has to go through."""
        faulty = self._random.random() < self._fault_rate
        return self._random.choice(FATES) if faulty else "pass"

    async def _deliver_late(self, request: bytes) -> None:
        await asyncio.sleep(self._random.uniform(0.0, DELAY_S_MAX))
        with suppress(OSError):
            await self._exchange(request)

    async def _exchange(self, request: bytes) -> None:
        """Deliver a request and let its answer go nowhere. Event streams have no end: cut them."""
        reader, writer = await self._send(request)
        try:
            await reader.readuntil(b"\r\n\r\n")
        except EOFError:
            pass
        finally:
            writer.close()

    async def _send(self, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self._target)
        head, end, body = request.partition(b"\r\n\r\n")
        # One connection per request: the server's end of connection is the end of its answer.
        head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head) + b"\r\nConnection: close"
        writer.write(head + end + body)
        return reader, writer

    async def _relay(self, request: bytes, writer: asyncio.StreamWriter, fate: str) -> bool:
        """Deliver a request and pass the answer on as it comes, as far as its fate allows."""
        upstream_reader, upstream_writer = await self._send(request)
        allowance = self._random.randrange(1, 2_000) if fate == "truncate" else None
        answer = b""
        try:
            head = await upstream_reader.readuntil(b"\r\n\r\n")
            # The client's connection stays open, whatever the server did with ours.
            chunk = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)
            while chunk:
                if allowance is not None:
                    chunk, allowance = chunk[:allowance], allowance - len(chunk[:allowance])
                writer.write(chunk)
                await writer.drain()
                if allowance == 0:
                    return False
                answer += chunk if fate == "repeat answer" else b""
                chunk = await upstream_reader.read(65_536)
            writer.write(answer)
            return True
        finally:
            upstream_writer.close()


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return head + (await reader.readexactly(int(length[1])) if length else b"")


def _own_answer(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nRetry-After: 0\r\n\r\n".encode()
