"""Run it: `python -m examples.orders`. It starts a server, the page and two workers."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

if __package__ in (None, ""):
    # As a script: `python examples/orders/app.py`.
    sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.orders.worker import ORDERS, PACKERS, SHIPMENTS, STATE
from examples.ports import free_port
from headwater.client import Headwater, RetryPolicy

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = Path(__file__).parent / "page.html"
NAMES: Final = ("ann", "ben", "cleo", "dan", "eva")
# How soon another worker gets what a dead one was packing.
ACK_TIMEOUT_S: Final = 5.0
# A server that has just been started may take its time on a busy machine.
START_S: Final = 60.0


class Workers:
    """The processes that pack. Each has a name, and can be killed."""

    def __init__(self, server: str, packing_s: float) -> None:
        self._command = ["--server", server, "--packing", str(packing_s)]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def names(self) -> dict[str, bool]:
        """All names, and who is at work."""
        return {name: self._is_at_work(name) for name in NAMES}

    def start(self, name: str) -> None:
        with self._lock:
            if not self._is_at_work(name):
                command = [sys.executable, "-m", "examples.orders.worker", "--name", name]
                self._running[name] = subprocess.Popen([*command, *self._command], cwd=ROOT)

    def kill(self, name: str) -> None:
        """As a crash would: no handler runs, nothing is tidied up."""
        with self._lock:
            worker = self._running.pop(name, None)
        if worker is not None:
            worker.kill()
            worker.wait()

    def stop(self) -> None:
        for name in NAMES:
            self.kill(name)

    def _is_at_work(self, name: str) -> bool:
        worker = self._running.get(name)
        return worker is not None and worker.poll() is None


class Handler(BaseHTTPRequestHandler):
    """The page, and the workers of this machine. Everything else the page asks the server for."""

    protocol_version = "HTTP/1.1"

    def __init__(self, server: str, workers: Workers, *args: Any) -> None:
        self._server = server
        self._workers = workers
        super().__init__(*args)

    def do_GET(self) -> None:
        if self.path == "/":
            self._send(HTTPStatus.OK, PAGE.read_bytes(), "text/html; charset=utf-8")
        elif self.path == "/config":
            config = {"server": self._server, "orders": ORDERS, "state": STATE}
            self._send_json(config | {"shipments": SHIPMENTS})
        elif self.path == "/workers":
            self._send_json(self._workers.names())
        else:
            self._send(HTTPStatus.NOT_FOUND, b"", "text/plain")

    def do_POST(self) -> None:
        _, _, name = self.path.removesuffix("/kill").rpartition("/workers/")
        # Other sites' pages may send a POST here, but not one with this type.
        if self.headers.get("Content-Type") != "application/json" or name not in NAMES:
            self._send(HTTPStatus.BAD_REQUEST, b"", "text/plain")
            return
        self.rfile.read(min(int(self.headers.get("Content-Length") or 0), 1000))
        if self.path.endswith("/kill"):
            self._workers.kill(name)
        else:
            self._workers.start(name)
        self._send_json(self._workers.names())

    def _send_json(self, value: Any) -> None:
        self._send(HTTPStatus.OK, json.dumps(value).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal belongs to the workers."""


def prepare(client: Headwater) -> None:
    """Every program of the application may do this at its start."""
    for path in (ORDERS, STATE, SHIPMENTS):
        client.stream(path).ensure(content_type="application/json")
    client.stream(ORDERS).group(PACKERS).ensure(ack_timeout_s=ACK_TIMEOUT_S)


@contextmanager
def own_server(home: Path, page_port: int, *, spark: bool) -> Iterator[str]:
    """A server for the shop, with tables of its streams beside it, which lets the page in."""
    port = free_port()
    origins = ",".join(f"http://{host}:{page_port}" for host in ("127.0.0.1", "localhost"))
    command = [sys.executable, "-m", "headwater", "up", "--port", str(port), "--log-level", "error"]
    command += ["--data", str(home / "data"), "--lake", str(home / "lake")]
    command += ["--cors-origin", origins, "--pipelines" if spark else "--no-pipelines"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        # The client waits for it: a connection that is refused is tried again.
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.orders", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="where to serve the page (8000)")
    parser.add_argument("--home", type=Path, help="keep everything here; else nothing is kept")
    parser.add_argument("--packing", type=float, default=1.5, help="seconds that an order takes")
    parser.add_argument("--no-spark", action="store_true", help="no tables, even if Spark is there")
    return parser.parse_args(arguments)


def run(chosen: argparse.Namespace, home: Path) -> None:
    port = chosen.port or free_port()
    spark = not chosen.no_spark and find_spec("pyspark") is not None
    with own_server(home, port, spark=spark) as server:
        with Headwater(server, retry=RetryPolicy(unreachable_after_s=START_S)) as client:
            prepare(client)
        workers = Workers(server, chosen.packing)
        page = ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, server, workers))
        try:
            for name in NAMES[:2]:
                workers.start(name)
            print(f"The shop is open: http://127.0.0.1:{port}/", flush=True)
            if spark:
                print(f"Tables: headwater sql --root {home / 'lake'}", flush=True)
            page.serve_forever(poll_interval=0.1)
        finally:
            page.server_close()
            workers.stop()


def main(arguments: list[str] | None = None) -> None:
    chosen = parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="orders-") as name, suppress(KeyboardInterrupt):
        run(chosen, chosen.home or Path(name))


if __name__ == "__main__":
    main()
