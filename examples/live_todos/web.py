"""The browser's side: a page, and the queries that it asks for.

The page waits for changes at the stream server itself, with the module that it gets from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from examples import local
from examples.live_todos.database import ENTITY, Database

PAGE: Final = Path(__file__).parent / "page.html"
TENANTS: Final = ("acme", "globex")
_TODO: Final = re.compile(r"/todos/(\d+)")


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


class Handler(local.Handler):
    def __init__(self, application: Application, *args: Any) -> None:
        self._application = application
        super().__init__(*args)

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        if target.path == "/":
            self.send_page(PAGE)
            return
        tenant = parse_qs(target.query).get("tenant", [TENANTS[0]])[0]
        self.send_json(self._application.get(target.path, tenant))

    def do_POST(self) -> None:
        self._change("POST")

    def do_DELETE(self) -> None:
        self._change("DELETE")

    def _change(self, method: str) -> None:
        try:
            path, body = urlsplit(self.path).path, self.read_json()
            self.send_json(self._application.change(method, path, body))
        except (ValueError, KeyError, TypeError) as error:
            self.refuse(error)
