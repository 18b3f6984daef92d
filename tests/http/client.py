"""Requests to a server under test, with the promises that hold for every response checked."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from headwater.http.cors import EXPOSED
from tests.http.events import Events
from tests.http.wire import PATIENCE_S, Reply, Wire, request_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.server import ServerProcess

_names = itertools.count()
_CODE: Final = re.compile(r"[a-z]+(_[a-z0-9]+)*|[A-Z]+(_[A-Z]+)*")
TEXT: Final = {"Content-Type": "text/plain"}
JSON: Final = {"Content-Type": "application/json"}
CLOSE: Final = {"Stream-Closed": "true"}


def fresh(prefix: str = "s") -> str:
    """A stream path that no other test uses."""
    return f"{prefix}-{next(_names)}"


def eventually(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def producer(epoch: int | str, seq: int | str, name: str = "p") -> dict[str, str]:
    return {"Producer-Id": name, "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}


def check_every_response(reply: Reply) -> None:
    """What holds for each response, whatever the request was."""
    headers = reply.headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    # Pages of other sites are let in, or told nothing.
    told = {name: value for name, value in headers.fields if name.startswith("Access-Control-")}
    let_in = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": EXPOSED}
    assert not told or let_in.items() <= told.items()
    exposed = set(EXPOSED.lower().split(", "))
    ours = {name.lower() for name, _ in headers.fields if name.startswith(("Stream-", "Producer-"))}
    assert ours <= exposed
    assert "Date" in headers
    assert not [name for name, _ in headers.fields if "fork" in name.lower()]
    if reply.status == 204:
        assert headers["Cache-Control"] == "no-store"
    if reply.status >= 400:
        assert headers["Content-Type"] == "application/json"
        assert headers["Cache-Control"] == "no-store"
        assert "ETag" not in headers


def check_error_body(reply: Reply) -> None:
    body = json.loads(reply.body)
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"code", "message"}
    assert _CODE.fullmatch(body["error"]["code"])
    assert body["error"]["message"]
    assert "Traceback" not in body["error"]["message"]


def error_code(reply: Reply) -> str:
    check_error_body(reply)
    code: str = json.loads(reply.body)["error"]["code"]
    return code


class Client:
    """Requests to one server, each on a connection of its own.

    Paths are stream paths; `send` takes a whole request target.
    """

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.port = server.port

    def wire(self, **options: int) -> Wire:
        return Wire(self.port, **options)

    def send(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        with self.wire() as wire:
            reply = wire.request(method, target, headers, body)
        check_every_response(reply)
        if reply.status >= 400 and method != "HEAD":
            check_error_body(reply)
        return reply

    def put(self, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Reply:
        return self.send("PUT", f"/v1/stream/{path}", headers, body)

    def post(self, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
        return self.send("POST", f"/v1/stream/{path}", headers, body)

    def get(self, path: str, query: str = "", headers: Mapping[str, str] | None = None) -> Reply:
        return self.send("GET", f"/v1/stream/{path}{'?' if query else ''}{query}", headers)

    def head(self, path: str) -> Reply:
        return self.send("HEAD", f"/v1/stream/{path}")

    def delete(self, path: str) -> Reply:
        return self.send("DELETE", f"/v1/stream/{path}")

    def json(self, target: str) -> Any:
        reply = self.send("GET", target)
        assert reply.status == 200
        assert reply.headers["Content-Type"] == "application/json"
        return json.loads(reply.body)

    def readers(self, path: str) -> int:
        """How many live readers the stream has."""
        count: int = self.json(f"/v1/stream/{path}/_details")["readers"]
        return count

    # ── Preparing ────────────────────────────────────────────────────────────────────────────

    def create(
        self, headers: Mapping[str, str] = TEXT, *bodies: bytes, path: str | None = None
    ) -> str:
        """A new stream with these appends; returns its path."""
        path = path or fresh()
        assert self.put(path, headers).status == 201
        content_type = {"Content-Type": headers["Content-Type"]}
        for body in bodies:
            assert self.post(path, body, content_type).status == 204
        return path

    def close(self, path: str) -> None:
        assert self.post(path, headers=CLOSE).status == 204

    def read_all(self, path: str) -> bytes:
        """The whole stream, page after page (raw bytes, so not for JSON)."""
        parts, offset = [], "-1"
        while True:
            reply = self.get(path, f"offset={offset}")
            assert reply.status == 200
            parts.append(reply.body)
            if reply.headers.get("Stream-Up-To-Date") == "true":
                return b"".join(parts)
            assert reply.next_offset > offset or offset == "-1"
            offset = reply.next_offset

    # ── Live reads ───────────────────────────────────────────────────────────────────────────

    @contextmanager
    def events(self, path: str, query: str = "offset=-1", **options: int) -> Iterator[Events]:
        """An event stream that is open as long as the block lasts."""
        with self.wire(**options) as wire:
            wire.send(request_bytes("GET", f"/v1/stream/{path}?{query}&live=sse"))
            head = wire.head()
            check_every_response(head)
            assert head.status == 200
            yield Events(wire, head.headers)

    @contextmanager
    def long_poll(
        self, path: str, query: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[Wire]:
        """A long-poll that is under way when the block begins; its reply is still to be read."""
        before = self.readers(path)
        with self.wire() as wire:
            wire.send(request_bytes("GET", f"/v1/stream/{path}?{query}&live=long-poll", headers))
            eventually(lambda: self.readers(path) > before)
            yield wire
