"""Run it: `python -m examples.orders`. It starts a server, the page and two workers."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

if __package__ in (None, ""):
    # As a script: `python examples/orders/app.py`.
    sys.path.insert(0, str(Path(__file__).parents[2]))

from examples import local
from examples.orders.worker import ORDERS, PACKERS, SHIPMENTS, STATE
from headwater.client import Headwater

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = Path(__file__).parent / "page.html"
NAMES: Final = ("ann", "ben", "cleo", "dan", "eva")
# How soon another worker gets what a dead one was packing.
ACK_TIMEOUT_S: Final = 5.0


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


class Handler(local.Handler):
    """The page, and the workers of this machine. Everything else the page asks the server for."""

    def __init__(self, server: str, workers: Workers, *args: Any) -> None:
        self._server = server
        self._workers = workers
        super().__init__(*args)

    def do_GET(self) -> None:
        if self.path == "/":
            self.send_page(PAGE)
        elif self.path == "/config":
            config = {"server": self._server, "orders": ORDERS, "state": STATE}
            self.send_json(config | {"shipments": SHIPMENTS})
        elif self.path == "/workers":
            self.send_json(self._workers.names())
        else:
            self.send(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        _, _, name = self.path.removesuffix("/kill").rpartition("/workers/")
        try:
            # Other sites' pages may send a POST here, but not one with this type.
            if self.headers.get("Content-Type") != "application/json" or name not in NAMES:
                raise ValueError("name a worker, and send JSON")
            self.read_json()
        except ValueError as error:
            self.refuse(error)
            return
        if self.path.endswith("/kill"):
            self._workers.kill(name)
        else:
            self._workers.start(name)
        self.send_json(self._workers.names())


def prepare(client: Headwater) -> None:
    """Every program of the application may do this at its start."""
    for path in (ORDERS, STATE, SHIPMENTS):
        client.stream(path).ensure(content_type="application/json")
    client.stream(ORDERS).group(PACKERS).ensure(ack_timeout_s=ACK_TIMEOUT_S)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.orders", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="where to serve the page (8000)")
    parser.add_argument("--home", type=Path, help="keep everything here; else nothing is kept")
    parser.add_argument("--packing", type=float, default=1.5, help="seconds that an order takes")
    parser.add_argument("--no-spark", action="store_true", help="no tables, even if Spark is there")
    return parser.parse_args(arguments)


def run(chosen: argparse.Namespace, home: Path) -> None:
    port = chosen.port or local.free_port()
    spark = not chosen.no_spark and find_spec("pyspark") is not None
    options = ["--data", str(home / "data"), "--lake", str(home / "lake")]
    options.append("--pipelines" if spark else "--no-pipelines")
    with local.stream_server("up", *options, page_port=port) as server:
        with Headwater(server) as client:
            prepare(client)
        workers = Workers(server, chosen.packing)
        try:
            for name in NAMES[:2]:
                workers.start(name)
            with local.web_server(partial(Handler, server, workers), port) as page:
                print(f"The shop is open: {page}", flush=True)
                if spark:
                    print(f"Tables: headwater sql --root {home / 'lake'}", flush=True)
                threading.Event().wait()
        finally:
            workers.stop()


def main(arguments: list[str] | None = None) -> None:
    chosen = parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="orders-") as name, suppress(KeyboardInterrupt):
        run(chosen, chosen.home or Path(name))


if __name__ == "__main__":
    main()
