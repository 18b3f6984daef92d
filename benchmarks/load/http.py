"""Just enough HTTP/1.1 for a load generator: requests as bytes, responses as sizes."""

import asyncio
from collections.abc import Callable
from typing import cast

HOST = "127.0.0.1"
JSON = "application/json"

_NO_BODY = frozenset({204, 304})


def request(method: str, path: str, body: bytes = b"", content_type: str = JSON) -> bytes:
    """A complete request, built once and sent many times."""
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n"
    if method in {"POST", "PUT"}:
        head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def stream_path(name: str) -> str:
    return f"/v1/stream/{name}"


def json_message(size: int) -> bytes:
    """A JSON object of exactly ``size`` bytes."""
    frame = b'{"text":"%s"}'
    return frame % (b"x" * (size - len(frame) + 2))


def json_record(size: int) -> bytes:
    """A JSON object of exactly ``size`` bytes with fields of several types, like a record."""
    frame = (
        b'{"id":123456,"kind":"order.updated","at":1763200000.125,"user":"u-48213",'
        b'"tags":["new","gift"],"total":129.95,"paid":true,"note":"%s"}'
    )
    return frame % (b"x" * (size - len(frame) + 2))


class ResponseParser:
    """Parses one response at a time and counts its body instead of keeping it."""

    __slots__ = (
        "_chunk_left",
        "_chunked",
        "_head",
        "_last_chunk",
        "_left",
        "_line",
        "body_bytes",
        "head",
        "status",
    )

    def __init__(self) -> None:
        self.status = 0
        self.head = b""
        self.body_bytes = 0
        self._head = b""
        self._left = 0
        self._chunked = False
        self._chunk_left = 0
        self._last_chunk = False
        self._line = b""

    def feed(self, data: bytes) -> bool:
        """Parse what arrived; true when the response is complete."""
        if not self.head:
            if not self._feed_head(data):
                return False
            data, self._head = self._head, b""
        if self._chunked:
            return self._feed_chunks(data)
        self._left -= len(data)
        self.body_bytes += len(data)
        return self._left <= 0

    def skip(self, size: int) -> bool:
        """Count ``size`` bytes without looking at them, if they are inside the body."""
        if not self.head:
            return False
        if self._chunked and size <= self._chunk_left:
            self._chunk_left -= size
        elif not self._chunked and size < self._left:
            self._left -= size
        else:
            return False
        self.body_bytes += size
        return True

    @property
    def skippable(self) -> int:
        """How many of the next bytes are certainly inside the body, and can be skipped."""
        if not self.head:
            return 0
        return self._chunk_left if self._chunked else self._left - 1

    def next_response(self) -> None:
        """Reset for the next response."""
        self.head = b""
        self.body_bytes = 0

    def header(self, name: bytes) -> bytes | None:
        """The value of a header of the current response; ``name`` in lower case."""
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.lower() == name:
                return value.strip()
        return None

    def _feed_head(self, data: bytes) -> bool:
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            return False
        self.head, self._head = self._head[:end], self._head[end + 4 :]
        self.status = int(self.head[9:12])
        self._chunked = False
        self._left = 0
        if self.status not in _NO_BODY:
            self._chunked = (self.header(b"transfer-encoding") or b"").lower() == b"chunked"
            self._left = int(self.header(b"content-length") or 0)
        self._last_chunk = False
        return True

    def _feed_chunks(self, data: bytes) -> bool:
        at = 0
        while at < len(data):
            if self._chunk_left:
                taken = min(self._chunk_left, len(data) - at)
                self._chunk_left -= taken
                self.body_bytes += taken
                at += taken
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._line += data[at:]
                return False
            line, self._line = (self._line + data[at:end]).strip(), b""
            at = end + 1
            if not line and self._last_chunk:
                return True
            if line and not self._last_chunk:
                self._chunk_left = int(line.split(b";")[0], 16)
                self._last_chunk = self._chunk_left == 0
        return False


class Connection(asyncio.Protocol):
    """A kept-alive connection with one request in flight and a callback for its answer."""

    def __init__(self) -> None:
        self.parser = ResponseParser()
        self.usable = True
        self._on_answer: Callable[[int], None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, data: bytes, on_answer: Callable[[int], None]) -> None:
        """Send a request; ``on_answer`` gets its status, or 0 if the connection was lost."""
        self._on_answer = on_answer
        if self._transport is None or self._transport.is_closing():
            asyncio.get_running_loop().call_soon(self._finish, 0)
        else:
            self._transport.write(data)

    async def ask(self, data: bytes) -> int:
        """Send a request and wait for its status."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.send(data, lambda status: None if answer.done() else answer.set_result(status))
        return await answer

    def data_received(self, data: bytes) -> None:
        parser = self.parser
        if parser.feed(data):
            status = parser.status
            self.usable = b"\r\nconnection: close" not in parser.head.lower()
            parser.next_response()
            self._finish(status)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.usable = False
        self._finish(0)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _finish(self, status: int) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(status)


async def connect(port: int) -> Connection:
    _, connection = await asyncio.get_running_loop().create_connection(Connection, HOST, port)
    return connection


async def create_stream(connection: Connection, path: str, content_type: str = JSON) -> None:
    status = await connection.ask(request("PUT", path, content_type=content_type))
    if status not in {200, 201}:
        raise RuntimeError(f"PUT {path} was answered {status}")
