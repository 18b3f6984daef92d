"""A webhook receiver on a thread, which answers as it is told and remembers what it got."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Queue
from threading import Thread
from types import TracebackType
from typing import Any, Self

PATIENCE_S = 60


@dataclass(frozen=True)
class Received:
    raw: bytes
    signature: str

    @property
    def body(self) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(self.raw)
        return fields

    @property
    def streams(self) -> dict[str, dict[str, Any]]:
        return {stream["path"]: stream for stream in self.body["streams"]}

    @property
    def pending(self) -> list[str]:
        return sorted(path for path, stream in self.streams.items() if stream["has_pending"])

    def acks(self) -> list[dict[str, str]]:
        """What acknowledges everything that is shown."""
        return [
            {"stream": path, "offset": stream["tail_offset"]}
            for path, stream in self.streams.items()
            if stream["has_pending"]
        ]


Answer = tuple[int, bytes]
DONE: Answer = (200, b'{"done": true}')
TAKEN: Answer = (200, b"{}")
DOWN: Answer = (503, b"")


class Receiver:
    def __init__(self, answer: Answer | Callable[[Received], Answer] = TAKEN) -> None:
        self.answer = answer
        self.received: Queue[Received] = Queue()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                raw = self.rfile.read(length)
                if len(raw) < length:
                    return  # Its server was killed in the middle of it.
                received = Received(raw, self.headers["Webhook-Signature"])
                chosen = outer.answer(received) if callable(outer.answer) else outer.answer
                outer.received.put(received)
                self.send_response(chosen[0])
                self.send_header("Content-Length", str(len(chosen[1])))
                if chosen[0] == 302:
                    self.send_header("Location", chosen[1].decode())
                self.end_headers()
                self.wfile.write(chosen[1])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    def next(self) -> Received:
        return self.received.get(timeout=PATIENCE_S)

    def quiet(self) -> bool:
        """Whether nothing is waiting here. Nothing may come later, either, but that takes time."""
        try:
            self.received.get(timeout=0.3)
        except Empty:
            return True
        return False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
