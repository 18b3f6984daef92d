"""A server that speaks the protocol and nothing else, in front of Headwater; and one that says no.

Other servers answer for Headwater's own resources as for streams that do not exist.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

OWN = ("/_details", "/_position", "/_bulk", "/_clear", "/_undelete", "/v1/streams")


class _Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream = ""

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if urlsplit(self.path).path.endswith(OWN):
            self._answer(404, [("Content-Type", "text/plain")], b"Stream not found")
            return
        connection = http.client.HTTPConnection(urlsplit(self.upstream).netloc, timeout=40)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() != "accept-encoding"}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        dropped = ("transfer-encoding", "content-length", "connection")
        kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in dropped]
        self._answer(answer.status, kept, content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Refuse(_Forward):
    status = 500
    seen: list[str | None]

    def handle_any(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.seen.append(self.headers.get("Authorization"))
        body = b'{"error":{"code":"no","message":"the answer\\nis \\u001b[31mno"}}'
        self._answer(self.status, [("Content-Type", "application/json")], body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is nothing to write to the test's stderr about."""


@contextmanager
def plain_server(upstream: str) -> Iterator[str]:
    """The protocol without Headwater's additions."""
    with _serving(type("Forward", (_Forward,), {"upstream": upstream})) as url:
        yield url


@contextmanager
def refusing_server(status: int) -> Iterator[tuple[str, list[str | None]]]:
    """A server that answers everything so; and the credentials that it was shown."""
    seen: list[str | None] = []
    with _serving(type("Refuse", (_Refuse,), {"status": status, "seen": seen})) as url:
        yield url, seen


@contextmanager
def answering_server(body: bytes, content_type: str = "application/json") -> Iterator[str]:
    """A server that answers everything with this."""

    def handle_any(self: _Forward) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200, [("Content-Type", content_type)], body)

    methods = dict.fromkeys(("do_GET", "do_HEAD", "do_PUT", "do_POST", "do_DELETE"), handle_any)
    with _serving(type("Answer", (_Forward,), methods)) as url:
        yield url


@contextmanager
def trickling_server() -> Iterator[str]:
    """A server whose answers come byte by byte, and never end."""
    over = threading.Event()

    def handle_any(self: _Forward) -> None:
        with suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            while not over.wait(0.05):
                self.wfile.write(b"y")

    methods = dict.fromkeys(("do_GET", "do_HEAD", "do_PUT", "do_POST", "do_DELETE"), handle_any)
    with _serving(type("Trickle", (_Forward,), methods)) as url:
        try:
            yield url
        finally:
            over.set()


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = _QuietServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
