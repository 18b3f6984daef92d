"""Clearing a stream: the messages go, the stream stays."""

from __future__ import annotations

import json

from tests.http.client import CLOSE, JSON, TEXT, Client, error_code, fresh, producer


def clear(client: Client, path: str) -> str:
    reply = client.send("POST", f"/v1/stream/{path}/_clear")
    assert reply.status == 204
    return reply.next_offset


def group(client: Client, path: str, what: str = "", **body: object) -> dict[str, object]:
    method = "POST" if what else "PUT"
    target = f"/v1/stream/{path}/_groups/g{what}"
    reply = client.send(method, target, JSON, json.dumps(body).encode())
    assert reply.status < 300, reply.body
    found: dict[str, object] = json.loads(reply.body) if reply.body else {}
    return found


def test_all_that_was_there_is_gone(client: Client) -> None:
    path = client.create(TEXT, b"one", b"two")
    first = client.get(path, "offset=-1").next_offset
    begin = clear(client, path)
    assert begin == first
    reply = client.get(path)
    assert (reply.body, reply.next_offset) == (b"", begin)
    middle = f"{begin[:-16]}{3:016}"
    assert error_code(client.get(path, f"offset={middle}")) == "offset_expired"
    client.post(path, b"three", TEXT)
    assert client.get(path).body == b"three"
    assert client.get(path, f"offset={begin}").body == b"three"
    assert client.head(path).headers["Stream-Earliest-Offset"] == begin


def test_the_stream_is_the_same_as_before(client: Client) -> None:
    path = fresh()
    settings = JSON | {"Stream-TTL": "900", "Stream-Unique-Ids": "fail", "Stream-Id-Pointer": "/id"}
    assert client.put(path, settings).status == 201
    assert client.post(path, b'{"id": 1}', JSON | producer(0, 0)).status == 200
    clear(client, path)
    clear(client, path)
    assert client.put(path, settings).status == 200
    assert client.post(path, b'{"id": 1}', JSON | producer(0, 0)).status == 204
    assert error_code(client.post(path, b'{"id": 1}', JSON)) == "duplicate_id"
    assert client.post(path, b'{"id": 2}', JSON | CLOSE | producer(0, 1)).status == 200
    clear(client, path)
    assert client.get(path).headers["Stream-Closed"] == "true"


def test_groups_go_on_at_the_end(client: Client) -> None:
    path = client.create(JSON, b"[1,2,3]")
    group(client, path, start="first")
    held = group(client, path, "/fetch", consumer="c", max=1)["messages"]
    assert isinstance(held, list)
    assert [one["value"] for one in held] == [1]
    clear(client, path)
    client.post(path, b"4", JSON)
    found = group(client, path, "/fetch", consumer="c", max=9, wait_ms=5_000)["messages"]
    assert isinstance(found, list)
    assert [one["value"] for one in found] == [4]


def test_a_fork_keeps_what_it_inherited(client: Client) -> None:
    source, path = client.create(TEXT, b"one"), fresh()
    assert client.put(path, {"Stream-Forked-From": f"/v1/stream/{source}"}).status == 201
    clear(client, source)
    assert (client.get(source).body, client.get(path).body) == (b"", b"one")


def test_snapshots_of_it_go_too(client: Client) -> None:
    path = client.create(TEXT, b"one")
    offset = client.head(path).next_offset
    target = f"/v1/stream/{path}/_snapshots"
    assert client.send("PUT", f"{target}/{offset}", TEXT, b"state").status == 201
    clear(client, path)
    assert client.send("GET", f"{target}/latest").status == 404


def test_what_is_not_there_cannot_be_cleared(client: Client) -> None:
    assert client.send("POST", f"/v1/stream/{fresh()}/_clear").status == 404
