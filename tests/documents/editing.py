"""Documents over HTTP, and editors in Python."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

from pycrdt import Doc, Text

from headwater.core.documents.framing import frame, read_frames
from tests.http.client import Client, eventually
from tests.http.wire import Reply
from tests.support.server import ServerProcess

ROOT: Final = "/v1/yjs/notes/docs"
_names = itertools.count()


def fresh() -> str:
    """A document that no other test uses."""
    return f"d-{next(_names)}"


class Documents:
    """Requests for the documents of one service."""

    def __init__(self, server: ServerProcess, headers: Mapping[str, str] | None = None) -> None:
        self.server = server
        self.client = Client(server)
        self._headers = dict(headers or {})

    def send(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Reply:
        target = f"{ROOT}/{path}{'?' if query else ''}{query}"
        return self.client.send(method, target, {**self._headers, **(headers or {})}, body)

    def create(self) -> str:
        path = fresh()
        assert self.send("PUT", path).status == 201
        return path

    def add(self, path: str, *updates: bytes) -> Reply:
        return self.send("POST", path, body=b"".join(map(frame, updates)))

    def location(self, path: str) -> str:
        """Where the newest snapshot is."""
        reply = self.send("GET", path, "offset=snapshot")
        assert reply.status == 307
        return reply.headers["Location"]

    def await_snapshot(self, path: str, after: str = "offset=-1") -> str:
        """The offset of the first snapshot that sorts after another."""
        eventually(lambda: self._is_later(path, after))
        return self.location(path).partition("offset=")[2]

    def _is_later(self, path: str, after: str) -> bool:
        location = self.location(path).partition("?")[2]
        return location != "offset=-1" and (after == "offset=-1" or location > after)

    def load(self, path: str) -> Doc[Any]:
        """The document as someone who joins sees it: a snapshot, and the updates after it."""
        doc: Doc[Any] = Doc()
        offset = self.location(path).partition("offset=")[2]
        if offset != "-1":
            reply = self.send("GET", path, f"offset={offset}")
            if reply.status == 404:
                return self.load(path)
            doc.apply_update(reply.body)
            offset = reply.headers["Stream-Next-Offset"]
        while True:
            reply = self.send("GET", path, f"offset={offset}")
            assert reply.status == 200, reply.body
            for update in frames(reply.body):
                doc.apply_update(update)
            if reply.headers.get("Stream-Up-To-Date") == "true":
                return doc
            offset = reply.headers["Stream-Next-Offset"]


def frames(body: bytes) -> list[bytes]:
    return list(read_frames(BytesIO(body).read))


class Writer:
    """Someone who types, and the updates that come of it."""

    def __init__(self, client_id: int | None = None) -> None:
        self.doc: Doc[Any] = Doc(client_id=client_id)
        self.text = self.doc.get("text", type=Text)
        self._updates: list[bytes] = []
        self._kept = self.doc.observe(lambda event: self._updates.append(event.update))

    def type(self, words: str) -> list[bytes]:
        """Updates, one for each word."""
        for word in words.split():
            self.text += f"{word} "
        return self.take()

    def take(self) -> list[bytes]:
        """The updates since the last time."""
        taken, self._updates[:] = list(self._updates), []
        return taken


def text_of(doc: Doc[Any]) -> str:
    return str(doc.get("text", type=Text))
