"""A language model that knows nothing: it speaks the API of the others, one word at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

_OPINION: Final = (
    "That is a fine question. A river does not ask whether anybody looks at it: it flows, and "
    "whoever comes to the bank sees the same water. An answer can be like that too. It arrives "
    "word by word, it is written down as it comes, and you may leave, reload, or look from the "
    "other bank. Nothing of it is lost, and nobody has to say it twice."
)


def words(question: str, attempt: int) -> list[str]:
    """The answer to a question. Asked again, it says so."""
    opening = f"You asked: “{question.strip()}”. " if attempt == 1 else f"Attempt {attempt}. "
    return [f"{word} " for word in (opening + _OPINION).split()]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, pause: Callable[[], object], asked: list[str], *args: Any) -> None:
        self._pause = pause
        self._asked = asked
        super().__init__(*args)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        question = body["messages"][-1]["content"]
        self._asked.append(question)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for word in words(question, self._asked.count(question)):
            self._event(json.dumps({"choices": [{"delta": {"content": word}}]}))
            self._pause()
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody wants to read that."""


class Model(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody did not want to hear the rest."""


@contextmanager
def model_server(pause: Callable[[], object]) -> Iterator[tuple[str, list[str]]]:
    """Answer until the block ends, with a pause after each word.

    Yields the address of the API, and what was asked.
    """
    asked: list[str] = []
    server = Model(("127.0.0.1", 0), partial(Handler, pause, asked))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
