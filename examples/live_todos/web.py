"""The browser's side: a page, and the queries that it asks for.

The page waits for changes at the stream server itself, with the module that it gets from there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from examples.live_todos.database import ENTITY, Database

PAGE: Final = Path(__file__).parent / "page.html"
TENANTS: Final = ("acme", "globex")
_TODO: Final = re.compile(r"/todos/(\d+)")
_BODY_BYTES_MAX: Final = 10_000


class Application:
    """What the page asks for, as plain values."""

    def __init__(
        self, database: Database, server: str, stream: str, on_commit: Callable[[], None]
    ) -> None:
        self._database = database
        self._server = server
        self._stream = stream
        self._on_commit = on_commit

    def config(self) -> Any:
        return {
            "server": self._server,
            "stream": self._stream,
            "entity": ENTITY,
            "tenants": TENANTS,
        }

    def get(self, path: str, tenant: str) -> Any:
        match path:
            case "/config":
                return self.config()
            case "/open":
                return self._database.todos(tenant, "open")
            case "/done":
                return self._database.count(tenant, "done")
        return None

    def change(self, method: str, path: str, body: Any) -> Any:
        """Carry out a change; None if there is nothing to change."""
        found = _TODO.fullmatch(path)
        with self._database.transaction() as transaction:
            done: Any = None
            if method == "POST" and path == "/todos":
                done = {"id": transaction.add(body["tenant"], body["title"])}
            elif method == "POST" and found:
                fields = {name: body[name] for name in ("status", "title") if name in body}
                done = {} if transaction.update(int(found[1]), **fields) else None
            elif method == "DELETE" and found:
                done = {} if transaction.remove(int(found[1])) else None
        self._on_commit()
        return done


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, application: Application, *args: Any) -> None:
        self._application = application
        super().__init__(*args)

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        if target.path == "/":
            self._send(HTTPStatus.OK, PAGE.read_bytes(), "text/html; charset=utf-8")
            return
        tenant = parse_qs(target.query).get("tenant", [TENANTS[0]])[0]
        self._send_json(self._application.get(target.path, tenant))

    def do_POST(self) -> None:
        self._change("POST")

    def do_DELETE(self) -> None:
        self._change("DELETE")

    def _change(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        try:
            if length > _BODY_BYTES_MAX:
                raise ValueError("the body is too long")
            body = json.loads(self.rfile.read(length) or b"{}")
            self._send_json(self._application.change(method, urlsplit(self.path).path, body))
        except (ValueError, KeyError, TypeError) as error:
            self.close_connection = True
            self._send(HTTPStatus.BAD_REQUEST, str(error).encode(), "text/plain")

    def _send_json(self, value: Any) -> None:
        if value is None:
            self._send(HTTPStatus.NOT_FOUND, b"", "text/plain")
        else:
            self._send(HTTPStatus.OK, json.dumps(value).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal belongs to the queries."""


@contextmanager
def web_server(application: Application, port: int) -> Iterator[str]:
    """Serve the page until the block ends; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, application))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
