"""A small HTTP client for tests: what is sent is exactly what the test says.

Libraries tidy requests up and forgive responses. Here nothing is added to a request that the test
did not ask for, apart from `Host` and the length of the body, and a response that is framed
wrongly is an error.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from tests.support.server import HOST

# Far more than anything takes. It only turns a hang into a failure.
PATIENCE_S: Final = 60.0
_READ_BYTES: Final = 64 * 1024


class BadFramingError(AssertionError):
    """The response is not well-formed HTTP/1.1."""


class EndedError(Exception):
    """The server closed the connection where a response or the rest of one was expected."""


class Headers:
    """Header fields in the order received; names are compared without case."""

    def __init__(self, fields: Iterable[tuple[str, str]]) -> None:
        self.fields = tuple(fields)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        values = self.all(name)
        if len(values) > 1:
            raise BadFramingError(f"{name} is repeated: {values}")
        return values[0] if values else None

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        assert value is not None, f"no {name} in {self!r}"
        return value

    def __contains__(self, name: str) -> bool:
        return bool(self.all(name))

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {value}" for name, value in self.fields)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Headers
    body: bytes = b""

    @property
    def next_offset(self) -> str:
        return self.headers["Stream-Next-Offset"]


def request_bytes(
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    version: str = "1.1",
) -> bytes:
    """A request as it goes over the wire."""
    lines = [f"{method} {target} HTTP/{version}"]
    lines += [f"{name}: {value}" for name, value in ({"Host": HOST} | dict(headers or {})).items()]
    chunked = any(name.lower() == "transfer-encoding" for name in headers or {})
    if body and not chunked:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(*parts: bytes) -> bytes:
    """A body in chunks, ended."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


class Wire:
    """One connection."""

    def __init__(
        self, port: int, *, receive_buffer: int | None = None, timeout_s: float = PATIENCE_S
    ) -> None:
        self._socket = socket.socket()
        if receive_buffer is not None:
            # Before connecting: afterwards the window has been announced already.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.settimeout(timeout_s)
        self._socket.connect((HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    # ── Sending ──────────────────────────────────────────────────────────────────────────────

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_if_open(self, data: bytes) -> None:
        """Send to a server that may have heard enough and hung up."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def send_some(self, data: bytes) -> int:
        """Hand over as much as fits without waiting; 0 when the way is blocked."""
        _, writable, _ = select.select([], [self._socket], [], 0)
        return self._socket.send(data) if writable else 0

    def request(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        self.send(request_bytes(method, target, headers, body))
        return self.reply(head_only=method == "HEAD")

    def finish_sending(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    # ── Receiving ────────────────────────────────────────────────────────────────────────────

    def receive(self) -> bytes:
        """What arrives next; empty at the end."""
        if self._buffer:
            data, self._buffer = self._buffer, b""
            return data
        try:
            return self._socket.recv(_READ_BYTES)
        except ConnectionResetError:
            return b""

    def receive_all(self) -> bytes:
        """Everything up to the end of the connection."""
        parts = []
        while data := self.receive():
            parts.append(data)
        return b"".join(parts)

    def is_at_end(self) -> bool:
        """Wait for the server to close. Anything that it still sends is not an end."""
        return not self.receive()

    def take(self, size: int) -> bytes:
        """Exactly `count` bytes."""
        parts = [self._buffer]
        missing = size - len(self._buffer)
        self._buffer = b""
        while missing > 0:
            data = self.receive()
            if not data:
                raise EndedError(f"{missing} of {size} bytes are missing")
            parts.append(data)
            missing -= len(data)
        whole = b"".join(parts)
        self._buffer = whole[size:]
        return whole[:size]

    def take_through(self, mark: bytes) -> bytes:
        """Everything up to and including the mark."""
        held = self._buffer
        self._buffer = b""
        while mark not in held:
            data = self.receive()
            if not data:
                raise EndedError(f"no {mark!r} in {held[:200]!r}")
            held += data
        end = held.index(mark) + len(mark)
        self._buffer = held[end:]
        return held[:end]

    def head(self) -> Reply:
        """The status line and headers of a response; the body is left where it is."""
        first, *lines = self.take_through(b"\r\n\r\n").decode("latin-1").split("\r\n")[:-2]
        version, _, status = first.partition(" ")
        if version != "HTTP/1.1" or not status[:3].isdigit() or status[3:4] != " ":
            raise BadFramingError(f"not a status line: {first!r}")
        fields = []
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise BadFramingError(f"not a header: {line!r}")
            fields.append((name, value.strip()))
        return Reply(int(status[:3]), Headers(fields))

    def reply(self, *, head_only: bool = False) -> Reply:
        """A whole response."""
        head = self.head()
        length = head.headers.get("Content-Length")
        is_chunked = head.headers.get("Transfer-Encoding") == "chunked"
        if head.status in (204, 304):
            if length is not None or is_chunked:
                raise BadFramingError(f"a {head.status} announces a body")
            return head
        if head_only:
            return head
        if is_chunked:
            if length is not None:
                raise BadFramingError("a length and chunks at once")
            parts = []
            while part := self.chunk():
                parts.append(part)
            return Reply(head.status, head.headers, b"".join(parts))
        if length is None:
            raise BadFramingError(f"no length and no chunks:\n{head.headers!r}")
        return Reply(head.status, head.headers, self.take(int(length)))

    def chunk(self) -> bytes:
        """One chunk of a body; empty at its orderly end."""
        size = int(self.take_through(b"\r\n"), 16)
        data = self.take(size + 2)
        if data[size:] != b"\r\n":
            raise BadFramingError("a chunk is longer than it says")
        return data[:size]
