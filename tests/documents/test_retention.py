"""Updates that a snapshot covers may be dropped; nothing is lost by that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pycrdt import Doc

from tests.documents.editing import Documents, Writer, frames, text_of
from tests.http.client import error_code, eventually
from tests.support.server import ServerProcess


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Documents]:
    """A server that drops updates soon."""
    with ServerProcess(
        *("--data", str(tmp_path / "data"), "--documents", "--documents-compact-bytes", "500"),
        *("--documents-retention-s", "1", "--long-poll-timeout-ms", "100"),
    ) as server:
        yield Documents(server)


def test_what_a_snapshot_covers_is_dropped(forgetful: Documents) -> None:
    path, writer = forgetful.create(), Writer()
    first = forgetful.add(path, *writer.type("the first")).headers["Stream-Next-Offset"]

    def is_trimmed() -> bool:
        forgetful.add(path, *writer.type(" ".join(["word"] * 20)))
        return "Stream-Earliest-Offset" in forgetful.send("HEAD", path).headers

    eventually(is_trimmed)
    # Someone who joins, by way of the snapshot.
    assert text_of(forgetful.load(path)) == str(writer.text)
    # Someone who was away.
    gone = forgetful.send("GET", path, f"offset={first}")
    assert (gone.status, error_code(gone)) == (410, "OFFSET_EXPIRED")
    # Someone who begins at the beginning: a page cannot see where a redirect leads to.
    for query in ("", "offset=-1", "offset=-1&live=long-poll"):
        assert text_of(from_beginning(forgetful, path, query)) == str(writer.text)
    live = forgetful.send("GET", path, "offset=-1&live=sse")
    assert (live.status, error_code(live)) == (400, "INVALID_REQUEST")
    # And after a restart.
    forgetful.server.kill()
    forgetful.server.start()
    assert text_of(forgetful.load(path)) == str(writer.text)
    assert text_of(from_beginning(forgetful, path, "offset=-1")) == str(writer.text)
    # And if it was deleted in the meantime.
    assert forgetful.send("DELETE", path).status == 204
    stream = f"/v1/stream/yjs/notes/docs/{path}"
    assert forgetful.client.send("POST", f"{stream}/_undelete").status == 204
    assert text_of(forgetful.load(path)) == str(writer.text)


def from_beginning(documents: Documents, path: str, query: str) -> Doc[Any]:
    doc: Doc[Any] = Doc()
    while True:
        reply = documents.send("GET", path, query)
        assert reply.status == 200
        for update in frames(reply.body):
            doc.apply_update(update)
        if reply.headers.get("Stream-Up-To-Date") == "true":
            return doc
        query = f"offset={reply.headers['Stream-Next-Offset']}"
