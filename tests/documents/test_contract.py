"""The wire contract of documents, case by case."""

from __future__ import annotations

import base64
import json

import pytest

from headwater.core.documents.framing import frame
from tests.documents.editing import ROOT, Documents, Writer, frames, fresh, text_of
from tests.http.client import error_code, producer
from tests.http.events import Events
from tests.http.wire import request_bytes

BEGINNING = "0000000000000000_0000000000000000"
OCTETS = {"Content-Type": "application/octet-stream"}
NOWHERE = "9999999999999999_9999999999999999_snapshot"
MANY = " ".join(f"word-{number}" for number in range(120))


def compacted(documents: Documents) -> tuple[str, str, str]:
    """A document with a snapshot: its path, that snapshot, and what it says."""
    path, writer = documents.create(), Writer()
    for update in writer.type(MANY):
        documents.add(path, update)
    return path, documents.await_snapshot(path), str(writer.text)


# ── PUT ──────────────────────────────────────────────────────────────────────────────────────


def test_create(documents: Documents) -> None:
    path = fresh()
    reply = documents.send("PUT", path)
    assert reply.status == 201
    assert reply.headers["Location"] == f"http://127.0.0.1{ROOT}/{path}"
    assert reply.headers["Stream-Next-Offset"] == BEGINNING
    assert reply.headers["Content-Type"] == "application/octet-stream"


def test_create_again(documents: Documents) -> None:
    path = documents.create()
    documents.add(path, b"\0\0")
    reply = documents.send("PUT", path, headers=OCTETS)
    assert reply.status == 200
    assert reply.headers["Stream-Next-Offset"] > BEGINNING


@pytest.mark.parametrize(
    "headers", [{"Content-Type": "text/plain"}, {"Stream-TTL": "60"}, {"Stream-Closed": "true"}]
)
def test_create_again_with_another_configuration(
    documents: Documents, headers: dict[str, str]
) -> None:
    reply = documents.send("PUT", documents.create(), headers=headers)
    assert reply.status == 409


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Stream-TTL": "60"},
        {"Stream-Expires-At": "2999-01-01T00:00:00Z"},
        {"Stream-Retention-Bytes": "1"},
        {"Stream-Retention-Seconds": "1"},
        {"Stream-Forked-From": "other"},
        {"Stream-Config-Version": "1"},
        {"Stream-Unique-Ids": "fail"},
        {"Stream-Closed": "true"},
    ],
)
def test_what_no_document_can_be(documents: Documents, headers: dict[str, str]) -> None:
    path = fresh()
    reply = documents.send("PUT", path, headers=headers)
    assert (reply.status, error_code(reply)) == (400, "INVALID_REQUEST")
    assert documents.send("HEAD", path).status == 404


def test_a_version_does_not_change_what_a_document_keeps(documents: Documents) -> None:
    path = documents.create()
    headers = {"Stream-Config-Version": "2", "Stream-Retention-Bytes": "1"}
    assert documents.send("PUT", path, headers=headers).status == 400


def test_create_with_updates(documents: Documents) -> None:
    path, (update,) = fresh(), Writer().type("hello")
    assert documents.send("PUT", path, body=b"\x05abc").status == 400
    assert documents.send("HEAD", path).status == 404
    assert documents.send("PUT", path, body=frame(update)).status == 201
    assert text_of(documents.load(path)) == "hello "


def test_paths_with_slashes_are_other_documents(documents: Documents) -> None:
    path = documents.create()
    assert documents.send("PUT", f"{path}/chapter-1/section_A").status == 201
    documents.add(f"{path}/chapter-1/section_A", b"\0\0")
    assert documents.send("GET", path, "offset=-1").body == b""


@pytest.mark.parametrize(
    "path", ["a.b", "..", "a/../b", "%2e%2e/x", "a//b", "a/", "%ff", "a%20b", "x" * 257, "_details"]
)
@pytest.mark.parametrize("method", ["PUT", "GET", "POST", "DELETE"])
def test_paths_that_no_document_has(documents: Documents, method: str, path: str) -> None:
    reply = documents.send(method, path, body=b"\x01a" if method == "POST" else b"")
    assert (reply.status, error_code(reply)) == (400, "INVALID_REQUEST")


def test_beside_documents_there_is_nothing(documents: Documents) -> None:
    for target in ("/v1/yjs", "/v1/yjs/", "/v1/yjs/notes", "/v1/yjs/notes/docs", "/v1/yjs/a/b/c"):
        assert documents.client.send("GET", target).status == 404


@pytest.mark.parametrize("method", ["PATCH", "LOCK"])
def test_other_methods(documents: Documents, method: str) -> None:
    reply = documents.send(method, documents.create())
    assert (reply.status, error_code(reply)) == (405, "METHOD_NOT_ALLOWED")
    assert "PUT" in reply.headers["Allow"]


def test_preflight(documents: Documents) -> None:
    assert documents.send("OPTIONS", documents.create()).status == 204


# ── POST ─────────────────────────────────────────────────────────────────────────────────────


def test_append(documents: Documents) -> None:
    path = documents.create()
    reply = documents.add(path, b"\0\0")
    assert reply.status == 204
    assert (
        reply.headers["Stream-Next-Offset"]
        == documents.send("HEAD", path).headers["Stream-Next-Offset"]
    )


def test_bytes_are_returned_as_sent(documents: Documents) -> None:
    path = documents.create()
    # A number may be written with more bytes than it needs.
    body = b"\x81\x00a" + frame(b"bc") + b"\x00" + frame(bytes(range(256)))
    assert documents.send("POST", path, headers=OCTETS, body=body).status == 204
    assert documents.send("GET", path, "offset=-1").body == body


@pytest.mark.parametrize(
    "body",
    [b"\x05abc", b"\x01", b"\x80", b"\xff" * 9, frame(b"a") + b"\x02a", b"\x80" * 40_000],
    ids=lambda body: repr(body[:8]),
)
def test_a_body_that_is_not_whole_frames(documents: Documents, body: bytes) -> None:
    path = documents.create()
    reply = documents.send("POST", path, headers=OCTETS, body=body)
    assert (reply.status, error_code(reply)) == (400, "INVALID_REQUEST")
    assert documents.send("HEAD", path).headers["Stream-Next-Offset"] == BEGINNING


def test_a_head_that_was_seen_before_changes_nothing(documents: Documents) -> None:
    path, writer = documents.create(), Writer()
    for _ in range(5):
        assert documents.add(path, *writer.type("x")).status == 204
        reply = documents.send("POST", path, headers=OCTETS, body=b"\x01")
        assert (reply.status, error_code(reply)) == (400, "INVALID_REQUEST")


def test_an_empty_body(documents: Documents) -> None:
    reply = documents.send("POST", documents.create(), headers=OCTETS)
    assert (reply.status, error_code(reply)) == (400, "INVALID_REQUEST")


def test_nobody_closes_a_document_for_the_others(documents: Documents) -> None:
    """The published provider tries to when it disconnects."""
    path, closing = documents.create(), {"Stream-Closed": "true"}
    for headers in (closing, closing | producer(0, 0)):
        reply = documents.send("POST", path, headers=headers)
        assert reply.status == 204
        assert reply.headers["Stream-Next-Offset"] == BEGINNING
        assert documents.send("POST", path, "awareness=default", headers=headers).status == 204
    last = documents.send("POST", path, headers=closing | producer(0, 0), body=frame(b"\0\0"))
    assert last.status == 200
    assert "Stream-Closed" not in last.headers
    assert documents.add(path, b"\0\0").status == 204
    assert documents.send("POST", path, "awareness=default", body=b"\x01a").status == 204
    assert documents.send("POST", fresh(), headers=closing).status == 404


def test_a_large_body_is_taken(documents: Documents) -> None:
    path = documents.create()
    body = b"\x01a" * 50_000
    assert documents.send("POST", path, body=body).status == 204
    assert documents.send("POST", path, body=body + b"\x01").status == 400
    read = documents.send("GET", path, "offset=-1")
    assert read.body == body


def test_an_idempotent_producer(documents: Documents) -> None:
    path = documents.create()
    body = frame(b"\0\0") + frame(b"\0\0")
    first = documents.send("POST", path, headers=producer(0, 0), body=body)
    again = documents.send("POST", path, headers=producer(0, 0), body=body)
    assert (first.status, again.status) == (200, 204)
    assert first.headers["Stream-Next-Offset"] == again.headers["Stream-Next-Offset"]
    assert documents.send("GET", path, "offset=-1").body == body
    gap = documents.send("POST", path, headers=producer(0, 5), body=body)
    assert gap.status == 409
    assert gap.headers["Producer-Expected-Seq"] == "1"


@pytest.mark.parametrize("method", ["POST", "GET", "HEAD", "DELETE"])
def test_without_a_document(documents: Documents, method: str) -> None:
    reply = documents.send(method, fresh(), body=frame(b"\0\0") if method == "POST" else b"")
    assert reply.status == 404
    if method != "HEAD":
        assert error_code(reply) == "DOCUMENT_NOT_FOUND"


# ── GET ──────────────────────────────────────────────────────────────────────────────────────


def test_read_from_an_offset(documents: Documents) -> None:
    path, writer = documents.create(), Writer()
    first, second = writer.type("one two")
    offset = documents.add(path, first).headers["Stream-Next-Offset"]
    documents.add(path, second)
    reply = documents.send("GET", path, f"offset={offset}")
    assert frames(reply.body) == [second]
    assert reply.headers["Stream-Up-To-Date"] == "true"


def test_one_past_an_offset_is_that_offset(documents: Documents) -> None:
    """Clients of the published provider count on from an offset."""
    path, writer = documents.create(), Writer()
    first, second = writer.type("one two")
    offset = documents.add(path, first).headers["Stream-Next-Offset"]
    run, position = offset.split("_")
    past = f"{run}_{int(position) + 1:016d}"
    assert documents.send("GET", path, f"offset={past}").body == b""
    documents.add(path, second)
    assert frames(documents.send("GET", path, f"offset={past}").body) == [second]


def test_long_poll(documents: Documents) -> None:
    path = documents.create()
    offset = documents.add(path, b"\0\0").headers["Stream-Next-Offset"]
    assert documents.send("GET", path, f"offset={offset}&live=long-poll").status == 204
    assert documents.send("GET", path, "offset=-1&live=long-poll").body == frame(b"\0\0")


def test_events_are_base64(documents: Documents) -> None:
    path, (update,) = documents.create(), Writer().type("hello")
    with documents.client.wire() as wire:
        wire.send(request_bytes("GET", f"{ROOT}/{path}?offset=-1&live=sse"))
        head = wire.head()
        assert head.status == 200
        assert head.headers["Stream-SSE-Data-Encoding"] == "base64"
        events = Events(wire, head.headers)
        assert events.expect("control").json["upToDate"] is True
        documents.add(path, update)
        data, control = events.pair()
        assert frames(base64.b64decode(data)) == [update]
        assert (
            control["streamNextOffset"]
            == documents.send("HEAD", path).headers["Stream-Next-Offset"]
        )


@pytest.mark.parametrize("query", ["offset=nonsense", "offset=a&offset=b", "offset=-1&live=now"])
def test_queries_that_mean_nothing(documents: Documents, query: str) -> None:
    reply = documents.send("GET", documents.create(), query)
    assert (reply.status, error_code(reply)) == (400, "INVALID_REQUEST")


# ── Snapshots ────────────────────────────────────────────────────────────────────────────────


def test_discovery_without_a_snapshot(documents: Documents) -> None:
    path = documents.create()
    reply = documents.send("GET", path, "offset=snapshot")
    assert reply.status == 307
    assert reply.headers["Location"] == f"{ROOT}/{path}?offset=-1"
    assert reply.headers["Cache-Control"] == "private, max-age=5"


def test_discovery_keeps_the_rest_of_the_query(documents: Documents) -> None:
    path = documents.create()
    reply = documents.send("GET", path, "key=a%20b&offset=snapshot")
    assert reply.headers["Location"] == f"{ROOT}/{path}?key=a+b&offset=-1"


def test_discovery_without_a_document(documents: Documents) -> None:
    reply = documents.send("GET", fresh(), "offset=snapshot")
    assert (reply.status, error_code(reply)) == (404, "DOCUMENT_NOT_FOUND")


def test_a_snapshot_and_what_comes_after_it(documents: Documents) -> None:
    path, snapshot, words = compacted(documents)
    assert documents.location(path) == f"{ROOT}/{path}?offset={snapshot}"
    reply = documents.send("GET", path, f"offset={snapshot}")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/octet-stream"
    assert f"{reply.headers['Stream-Next-Offset']}_snapshot" == snapshot
    assert text_of(documents.load(path)) == words
    # Everything can still be read from the beginning.
    assert len(frames(documents.client.read_all(f"yjs/notes/docs/{path}"))) == len(words.split())


def test_a_newer_snapshot_takes_the_place_of_the_former(documents: Documents) -> None:
    path, snapshot, words = compacted(documents)
    later = Writer()
    for update in later.type(MANY):
        documents.add(path, update)
    newer = documents.await_snapshot(path, f"offset={snapshot}")
    assert newer > snapshot
    reply = documents.send("GET", path, f"offset={snapshot}")
    # The former one goes right after the newer one is there.
    if reply.status == 404:
        assert error_code(reply) == "SNAPSHOT_NOT_FOUND"
    both = text_of(documents.load(path))
    assert sorted(both.split()) == sorted((words + MANY).split())


@pytest.mark.parametrize("name", [NOWHERE, "-1_snapshot", f"{BEGINNING}_snapshot", "now_snapshot"])
def test_a_snapshot_that_is_not_there(documents: Documents, name: str) -> None:
    reply = documents.send("GET", documents.create(), f"offset={name}")
    assert (reply.status, error_code(reply)) == (404, "SNAPSHOT_NOT_FOUND")


def test_a_snapshot_of_nonsense(documents: Documents) -> None:
    reply = documents.send("GET", documents.create(), "offset=x_snapshot")
    assert (reply.status, error_code(reply)) == (400, "INVALID_REQUEST")
    gone = documents.send("GET", fresh(), f"offset={NOWHERE}")
    assert (gone.status, error_code(gone)) == (404, "DOCUMENT_NOT_FOUND")


# ── HEAD and DELETE ──────────────────────────────────────────────────────────────────────────


def test_head(documents: Documents) -> None:
    path = documents.create()
    reply = documents.send("HEAD", path)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize("root", [ROOT, "/v1/stream/yjs/notes/docs"])
def test_delete_takes_everything_along(root: str, documents: Documents) -> None:
    """As a document, and as the stream that it is."""
    path, snapshot, _ = compacted(documents)
    documents.send("PUT", path, "awareness=other")
    assert documents.client.send("DELETE", f"{root}/{path}").status == 204
    for query in ("", "offset=snapshot", f"offset={snapshot}", "awareness=default&offset=-1"):
        assert documents.send("GET", path, query).status == 404
    assert documents.send("POST", path, body=frame(b"\0\0")).status == 404
    assert documents.send("POST", path, "awareness=default", body=b"x").status == 404
    assert documents.send("DELETE", path).status == 404
    left = documents.client.json(f"/v1/streams?prefix=yjs/notes/docs/{path}")["streams"]
    assert left == []
    # And it can be made anew, without anything of the former one.
    assert documents.send("PUT", path).status == 201
    assert documents.location(path).endswith("offset=-1")
    assert documents.send("GET", path, f"offset={snapshot}").status == 404
    assert documents.send("GET", path, "offset=-1").body == b""


def test_what_a_crash_left_of_a_deleted_document(documents: Documents) -> None:
    """A delete that is repeated says that there is no document, and clears away what is left."""
    path = fresh()
    left = f"/v1/stream/yjs/notes/docs/{path}/.snapshots/{NOWHERE}"
    assert documents.client.send("PUT", left).status == 201
    assert documents.send("DELETE", path).status == 404
    assert documents.client.json(f"/v1/streams?prefix=yjs/notes/docs/{path}")["streams"] == []


def test_delete_and_undelete(documents: Documents) -> None:
    path, _, text = compacted(documents)
    assert documents.send("DELETE", path).status == 204
    back = documents.client.send("POST", f"/v1/stream/yjs/notes/docs/{path}/_undelete")
    assert back.status == 204
    assert documents.location(path).endswith("_snapshot")
    assert text_of(documents.load(path)) == text


def test_delete_and_purge(documents: Documents) -> None:
    path = documents.create()
    assert documents.send("DELETE", path, "purge=true").status == 204
    assert (
        documents.client.send("POST", f"/v1/stream/yjs/notes/docs/{path}/_undelete").status == 404
    )


# ── Awareness ────────────────────────────────────────────────────────────────────────────────


def test_awareness_comes_with_the_document(documents: Documents) -> None:
    path = documents.create()
    reply = documents.send("HEAD", path, "awareness=default")
    assert reply.status == 200
    assert reply.headers["Stream-TTL"] == "3600"
    assert documents.send("POST", path, "awareness=default", body=b"\x01a").status == 204
    read = documents.send("GET", path, "awareness=default&offset=-1")
    assert read.body == b"\x01a"
    # It is no part of the document.
    assert documents.send("GET", path, "offset=-1").body == b""


def test_more_awareness(documents: Documents) -> None:
    path = documents.create()
    assert documents.send("GET", path, "awareness=cursors&offset=-1").status == 404
    assert documents.send("PUT", path, "awareness=cursors").status == 201
    assert documents.send("PUT", path, "awareness=cursors").status == 200
    assert documents.send("POST", path, "awareness=cursors", body=b"\x01c").status == 204
    assert documents.send("GET", path, "awareness=cursors&offset=-1").body == b"\x01c"
    assert documents.send("GET", path, "awareness=default&offset=-1").body == b""
    assert documents.send("DELETE", path, "awareness=cursors").status == 204
    assert documents.send("DELETE", path, "awareness=cursors").status == 404
    assert documents.send("HEAD", path).status == 200


def test_awareness_is_made_anew_by_a_post(documents: Documents) -> None:
    path = documents.create()
    assert documents.send("DELETE", path, "awareness=default").status == 204
    assert documents.send("GET", path, "awareness=default&offset=-1").status == 404
    assert documents.send("POST", path, "awareness=default", body=b"\x01a").status == 204
    assert documents.send("GET", path, "awareness=default&offset=-1").body == b"\x01a"
    assert documents.send("HEAD", path, "awareness=default").headers["Stream-TTL"] == "3600"


def test_awareness_without_a_document(documents: Documents) -> None:
    for method, body in (("PUT", b""), ("POST", b"\x01a"), ("GET", b""), ("DELETE", b"")):
        reply = documents.send(method, fresh(), "awareness=default", body=body)
        assert (reply.status, error_code(reply)) == (404, "DOCUMENT_NOT_FOUND"), method


def test_awareness_is_followed(documents: Documents) -> None:
    path = documents.create()
    with documents.client.wire() as wire:
        wire.send(request_bytes("GET", f"{ROOT}/{path}?awareness=default&offset=now&live=sse"))
        events = Events(wire, wire.head().headers)
        events.expect("control")
        documents.send("POST", path, "awareness=default", body=b"\x01a")
        data, _ = events.pair()
        assert base64.b64decode(data) == b"\x01a"


@pytest.mark.parametrize("name", ["", ".x", "a/b", "%C3%A4", "a&awareness=b"])
def test_names_that_awareness_cannot_have(documents: Documents, name: str) -> None:
    path = documents.create()
    for method in ("PUT", "GET", "POST", "HEAD", "DELETE"):
        reply = documents.send(method, path, f"awareness={name}", body=b"\x01a")
        assert reply.status == 400, method


# ── Content ──────────────────────────────────────────────────────────────────────────────────


def test_content(documents: Documents) -> None:
    path = documents.create()
    tail = documents.add(path, *Writer().type("hello world")).headers["Stream-Next-Offset"]
    reply = documents.send("GET", path, "state=text&name=text")
    assert (reply.status, reply.body) == (200, b"hello world ")
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert reply.headers["Stream-Next-Offset"] == tail
    reply = documents.send("GET", path, "state=json")
    assert json.loads(reply.body) == {"text": "hello world "}
    assert reply.headers["Content-Type"] == "application/json"
    assert documents.send("GET", path, "state=json&name=other").body == b"null"


def test_content_with_a_snapshot(documents: Documents) -> None:
    path, _, words = compacted(documents)
    assert documents.send("GET", path, "state=text").body.decode() == words


def test_content_that_cannot_be_shown(documents: Documents) -> None:
    path = documents.create()
    assert documents.send("GET", path, "state=xml").status == 400
    documents.add(path, b"nonsense")
    reply = documents.send("GET", path, "state=json")
    assert (reply.status, error_code(reply)) == (400, "INVALID_REQUEST")
    assert documents.send("GET", fresh(), "state=json").status == 404
