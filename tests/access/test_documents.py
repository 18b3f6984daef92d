"""A document needs its permissions on the stream behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.access.guests import Guest, House
from tests.http.client import error_code
from tests.http.wire import Reply

DOCUMENT = "/v1/yjs/notes/docs/team/plan"
STREAM = "yjs/notes/docs/team/plan"


@pytest.fixture
def library(tmp_path: Path) -> Iterator[House]:
    """A server with documents and access control."""
    with House.open(tmp_path, "memory", "--documents") as house:
        yield house
        assert "Traceback" not in house.server.stderr


def send(guest: Guest, method: str, query: str = "") -> Reply:
    body = b"\x02\x00\x00" if method == "POST" else b""
    return guest.send(method, f"{DOCUMENT}{query}", body=body)


def test_without_a_key(library: House) -> None:
    for method in ("PUT", "GET", "POST", "DELETE"):
        reply = send(library.stranger, method)
        assert (reply.status, error_code(reply)) == (401, "UNAUTHORIZED")
        assert "WWW-Authenticate" in reply.headers


def test_reading_writing_and_deleting_are_three_things(library: House) -> None:
    reader = library.guest(read=["yjs/notes/docs/team/**"])
    writer = library.guest(write=[STREAM])
    deleter = library.guest(delete=["yjs/notes/docs/**"])
    assert send(writer, "PUT").status == 201
    assert send(writer, "POST").status == 204
    assert send(writer, "HEAD").status == 200
    for query in (
        "",
        "?offset=snapshot",
        "?state=json",
        "?awareness=default",
        "?offset=1_snapshot",
    ):
        reply = send(writer, "GET", query)
        assert (reply.status, error_code(reply)) == (403, "FORBIDDEN"), query
    assert send(reader, "GET").status == 200
    assert send(reader, "GET", "?offset=snapshot").status == 307
    assert send(reader, "GET", "?awareness=default&offset=-1").status == 200
    for method in ("PUT", "POST", "DELETE"):
        assert send(reader, method).status == 403
        assert send(reader, method, "?awareness=default").status == 403
    assert send(writer, "DELETE").status == 403
    assert send(deleter, "DELETE").status == 204


def test_one_document_is_not_another(library: House) -> None:
    elsewhere = library.guest(read=["yjs/notes/docs/other", "notes/docs/**", "team/**"])
    assert send(elsewhere, "GET").status == 403
    # However it is spelled.
    for path in ("team%2Fplan", "team%2fplan", "%74eam/plan"):
        reply = elsewhere.send("GET", f"/v1/yjs/notes/docs/{path}")
        assert reply.status == 403, path


def test_an_address_that_means_nothing_is_told_to_those_who_are_known(library: House) -> None:
    reply = library.guest(read=["**"]).send("GET", "/v1/yjs/notes/docs/a/../b")
    assert (reply.status, error_code(reply)) == (400, "INVALID_REQUEST")
    assert library.stranger.send("GET", "/v1/yjs/notes/docs/a/../b").status == 401
