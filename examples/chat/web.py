"""The application's own server: a page, and what it cannot do by itself.

The page reads chats and answers from the stream server. What needs the key of the model happens
here: to ask, and to ask again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

from examples.chat.chats import Chats
from headwater.client import HeadwaterError

PAGE: Final = Path(__file__).parent / "page.html"
_CHAT: Final = re.compile(r"[a-z0-9-]{1,64}")
_BODY_BYTES_MAX: Final = 100_000


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, chats: Chats, streams_url: str, *args: Any) -> None:
        self._chats = chats
        self._streams_url = streams_url
        super().__init__(*args)

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/":
            self._send(HTTPStatus.NOT_FOUND, b"", "text/plain")
            return
        page = PAGE.read_text(encoding="utf-8").replace("{{streams}}", self._streams_url)
        self._send(HTTPStatus.OK, page.encode(), "text/html; charset=utf-8")

    def do_POST(self) -> None:
        try:
            length = int(self.headers.get("Content-Length") or 0)
            if length > _BODY_BYTES_MAX:
                raise ValueError("that is too much to say at once")
            body = json.loads(self.rfile.read(length))
            answer = self._act(self.path, str(body["chat"]), body)
        except (ValueError, KeyError, TypeError) as error:
            self.close_connection = True
            self._send(HTTPStatus.BAD_REQUEST, str(error).encode(), "text/plain")
        except HeadwaterError as error:
            self._send(HTTPStatus.BAD_GATEWAY, str(error).encode(), "text/plain")
        else:
            self._send(HTTPStatus.OK, json.dumps(answer).encode(), "application/json")

    def _act(self, path: str, chat: str, body: Any) -> Any:
        if _CHAT.fullmatch(chat) is None:
            raise ValueError("a chat is called by letters, digits and dashes")
        match path:
            case "/open":
                self._chats.open(chat)
            case "/ask":
                self._chats.ask(chat, str(body["text"]))
            case "/retry":
                return {"chat": self._chats.retry(chat)}
            case _:
                raise ValueError("there is no such action")
        return {"chat": chat}

    def _send(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal shows the address, and nothing else."""


@contextmanager
def web_server(chats: Chats, streams_url: str, port: int) -> Iterator[str]:
    """Serve the page until the block ends; yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, chats, streams_url))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
