"""A collaborative editor: the page, and a server for its documents.

The page is made of npm packages, which are installed and bundled at the first start.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Final

from examples.ports import free_port

HERE: Final = Path(__file__).parent
BUNDLE: Final = HERE / "build" / "editor.js"
_SOURCES: Final = ("package.json", "package-lock.json", "editor.js", "connection.js", "times.js")
_FILES: Final = {
    "/": (HERE / "index.html", "text/html; charset=utf-8"),
    "/editor.js": (BUNDLE, "text/javascript"),
}


def build() -> None:
    """Install and bundle what the page is made of, unless that was done."""
    newest = max((HERE / name).stat().st_mtime for name in _SOURCES)
    if BUNDLE.exists() and BUNDLE.stat().st_mtime > newest:
        return
    if shutil.which("npm") is None:
        raise SystemExit("the editor needs node 20 or newer, with npm")
    subprocess.run(["npm", "ci", "--ignore-scripts"], cwd=HERE, check=True, stdout=sys.stderr)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=HERE, check=True, stdout=sys.stderr)


class Pages(BaseHTTPRequestHandler):
    """The page, its script, and where the documents are."""

    def __init__(self, server_url: str, *arguments: object) -> None:
        self._server_url = server_url
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.path == "/config":
            body, kind = json.dumps({"server": self._server_url}).encode(), "application/json"
        elif self.path in _FILES:
            path, kind = _FILES[self.path]
            body = path.read_bytes()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def pages(server_url: str, port: int) -> Iterator[str]:
    """Serve the page; gives its address."""
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Pages, server_url))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def own_server(data: Path, page_port: int) -> Iterator[str]:
    """A server with documents that lets the page in."""
    port = free_port()
    origins = ",".join(f"http://{host}:{page_port}" for host in ("127.0.0.1", "localhost"))
    command = [sys.executable, "-m", "headwater", "serve", "--documents"]
    command += ["--data", str(data), "--port", str(port), "--log-level", "error"]
    command += ["--cors-origin", origins]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.editor", description=__doc__)
    parser.add_argument("--server", help="the address of a running server; else one is started")
    parser.add_argument("--data", type=Path, help="where its streams are; else they go with it")
    parser.add_argument("--port", type=int, default=8000, help="where to serve the page (8000)")
    chosen = parser.parse_args(arguments)
    build()
    with ExitStack() as stack:
        server_url = chosen.server
        if server_url is None:
            data = chosen.data or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server_url = stack.enter_context(own_server(data, chosen.port))
        page = stack.enter_context(pages(server_url, chosen.port))
        print(f"Open {page}/#welcome in two windows. Documents: {server_url}/v1/yjs/editor/docs/…")
        with suppress(KeyboardInterrupt):
            Event().wait()
