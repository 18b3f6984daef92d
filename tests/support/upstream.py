"""A server for Headwater to fetch from in tests. It does exactly what a test tells it to.

    with Upstream() as upstream:
        upstream.on("/tokens", lambda peer: peer.answer(b"hello"))

Each request gets a thread and a `Peer`, whose socket the script may use as it likes: well or badly.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

PATIENCE_S: Final = 60.0


@dataclass
class Seen:
    """A request that arrived."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        return [value for header, value in self.headers if header == name.lower()]


@dataclass
class Peer:
    """The other end, as a script sees it."""

    socket: socket.socket
    seen: Seen
    upstream: Upstream

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(self, *lines: str, status: str = "200 OK") -> None:
        self.send("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode())

    def answer(self, body: bytes, *lines: str, status: str = "200 OK") -> None:
        self.head(*lines, f"Content-Length: {len(body)}", status=status)
        self.send(body)

    def chunked(self, parts: Iterable[bytes], *lines: str, end: bool = True) -> None:
        self.head(*lines, "Transfer-Encoding: chunked")
        for part in parts:
            self.send(b"%x\r\n%b\r\n" % (len(part), part))
        if end:
            self.send(b"0\r\n\r\n")

    def wait_for_hangup(self) -> bool:
        """Whether the server has hung up, as it should."""
        self.socket.settimeout(PATIENCE_S)
        with suppress(OSError):
            return self.socket.recv(1) == b""
        return True


Script = Callable[[Peer], None]


@dataclass
class Upstream:
    scripts: dict[str, Script] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    """Set at the end of the test, for scripts that wait."""

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        # On Linux, closing a listener is not enough while a thread waits in accept.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def on(self, path: str, script: Script) -> str:
        """Set what happens at a path; returns its address."""
        self.scripts[path] = script
        return self.url + path

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        peer.settimeout(PATIENCE_S)
        with peer, suppress(OSError):
            seen = _read(peer)
            self.seen.append(seen)
            self.scripts[seen.path.partition("?")[0]](Peer(peer, seen, self))


def _read(peer: socket.socket) -> Seen:
    data = b""
    while b"\r\n\r\n" not in data:
        more = peer.recv(65536)
        if not more:
            raise ConnectionError
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = [(n.lower(), v.strip()) for n, _, v in (line.partition(":") for line in lines)]
    length = int(dict(headers).get("content-length", "0"))
    while len(body) < length:
        body += peer.recv(65536)
    method, path, _ = first.split(" ")
    return Seen(method, path, headers, body)
