"""A collaborative editor: the page, and a server for its documents.

The page is made of npm packages, which are installed and bundled at the first start.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from threading import Event
from typing import Any, Final

from examples import local

HERE: Final = Path(__file__).parent
BUNDLE: Final = HERE / "build" / "editor.js"
_SOURCES: Final = ("package.json", "package-lock.json", "editor.js", "connection.js", "times.js")


def build() -> None:
    """Install and bundle what the page is made of, unless that was done."""
    newest = max((HERE / name).stat().st_mtime for name in _SOURCES)
    if BUNDLE.exists() and BUNDLE.stat().st_mtime > newest:
        return
    if shutil.which("npm") is None:
        raise SystemExit("the editor needs node 20 or newer, with npm")
    subprocess.run(["npm", "ci", "--ignore-scripts"], cwd=HERE, check=True, stdout=sys.stderr)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=HERE, check=True, stdout=sys.stderr)


class Pages(local.Handler):
    """The page, its script, and where the documents are."""

    def __init__(self, server_url: str, *arguments: Any) -> None:
        self._server_url = server_url
        super().__init__(*arguments)

    def do_GET(self) -> None:
        if self.path == "/config":
            self.send_json({"server": self._server_url})
        elif self.path == "/editor.js":
            self.send(HTTPStatus.OK, BUNDLE.read_bytes(), "text/javascript")
        elif self.path == "/":
            self.send_page(HERE / "index.html")
        else:
            self.send(HTTPStatus.NOT_FOUND)


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
            options = ["--documents", "--data", str(data)]
            server_url = stack.enter_context(
                local.stream_server("serve", *options, page_port=chosen.port)
            )
        page = stack.enter_context(local.web_server(partial(Pages, server_url), chosen.port))
        print(f"Open {page}#welcome in two windows. Documents: {server_url}/v1/yjs/editor/docs/…")
        with suppress(KeyboardInterrupt):
            Event().wait()
