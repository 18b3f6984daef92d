"""What the examples start on this machine: a stream server, and a small web server for a page."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.request import urlopen

# Below those that the system gives to outgoing connections, which could take one meanwhile.
_PORTS: Final = range(10_000, 20_000)
_BODY_BYTES_MAX: Final = 100_000


def free_port() -> int:
    """One that was free a moment ago."""
    for port in random.sample(_PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port between {_PORTS.start} and {_PORTS.stop} is free")


@contextmanager
def stream_server(command: str, *options: str, page_port: int) -> Iterator[str]:
    """`headwater serve` or `headwater up`, which lets the page in; yields its address."""
    port = free_port()
    origins = ",".join(f"http://{host}:{page_port}" for host in ("127.0.0.1", "localhost"))
    start = [sys.executable, "-m", "headwater", command, "--port", str(port)]
    start += ["--log-level", "error", "--cors-origin", origins, *options]
    process = subprocess.Popen(start, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, process)
        yield url
    finally:
        process.terminate()
        process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    """Pages ask for the server's module at once, so the server has to be there first."""
    while process.poll() is None:
        with suppress(OSError), urlopen(f"{url}/healthz", timeout=5):
            return
        time.sleep(0.05)
    raise SystemExit("the stream server did not start")


class Handler(BaseHTTPRequestHandler):
    """What all pages need of their web server."""

    protocol_version = "HTTP/1.1"

    def read_json(self) -> Any:
        """The body of the request; ValueError if it is none."""
        length = int(self.headers.get("Content-Length") or 0)
        if length > _BODY_BYTES_MAX:
            raise ValueError("the body is too long")
        return json.loads(self.rfile.read(length) or b"{}")

    def send_page(self, page: str | Path) -> None:
        text = page if isinstance(page, str) else page.read_text(encoding="utf-8")
        self.send(HTTPStatus.OK, text.encode(), "text/html; charset=utf-8")

    def send_json(self, value: Any) -> None:
        """None is not found."""
        if value is None:
            self.send(HTTPStatus.NOT_FOUND)
        else:
            self.send(HTTPStatus.OK, json.dumps(value).encode(), "application/json")

    def refuse(self, error: Exception) -> None:
        """Part of the body may be unread, so the connection ends."""
        self.close_connection = True
        self.send(HTTPStatus.BAD_REQUEST, str(error).encode())

    def send(self, status: HTTPStatus, body: bytes = b"", content_type: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """The terminal belongs to the example."""


@contextmanager
def web_server(handler: Callable[..., Handler], port: int) -> Iterator[str]:
    """Serve a page until the block ends; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
