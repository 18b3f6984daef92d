"""Taking a deletion back within its grace period."""

from __future__ import annotations

import json

import pytest

from tests.http.client import CLOSE, JSON, TEXT, Client, error_code, fresh, producer
from tests.http.test_clear import group
from tests.http.wire import Reply


def undelete(client: Client, path: str) -> Reply:
    return client.send("POST", f"/v1/stream/{path}/_undelete")


def deleted(client: Client, prefix: str) -> list[str]:
    found = client.json(f"/v1/streams?deleted=true&prefix={prefix}")
    return [stream["name"] for stream in found["streams"]]


def test_it_comes_back_whole(client: Client) -> None:
    path = client.create(TEXT, b"one")
    assert client.post(path, b"two", TEXT | producer(0, 0)).status == 200
    offset = client.head(path).next_offset
    assert client.delete(path).status == 204
    assert client.get(path).status == 404
    assert deleted(client, path) == [path]
    reply = undelete(client, path)
    assert (reply.status, reply.next_offset) == (204, offset)
    assert deleted(client, path) == []
    assert client.get(path).body == b"onetwo"
    assert client.get(path, f"offset={offset}").status == 200
    # Its producers are known, and go on.
    assert client.post(path, b"two", TEXT | producer(0, 0)).status == 204
    assert client.post(path, b"three", TEXT | producer(0, 1)).status == 200
    assert client.get(path).body == b"onetwothree"


def test_groups_come_back_where_they_were(client: Client) -> None:
    path = client.create(JSON, b'["a", "b"]')
    group(client, path, start="first")
    fetched = group(client, path, "/fetch", consumer="c", max=1, wait_ms=0)["messages"]
    assert isinstance(fetched, list)
    group(client, path, "/ack", receipts=[fetched[0]["receipt"]])
    client.delete(path)
    assert undelete(client, path).status == 204
    left = group(client, path, "/fetch", consumer="c", max=10, wait_ms=0)["messages"]
    assert isinstance(left, list)
    assert [message["value"] for message in left] == ["b"]


def test_a_closed_stream_comes_back_closed(client: Client) -> None:
    path = client.create(TEXT, b"all")
    client.post(path, b"", CLOSE)
    client.delete(path)
    assert undelete(client, path).status == 204
    assert client.get(path).headers["Stream-Closed"] == "true"


def test_the_path_is_free_at_once_and_then_in_the_way(client: Client) -> None:
    path = client.create(TEXT, b"old")
    client.delete(path)
    client.create(TEXT, b"new", path=path)
    assert deleted(client, path) == []
    assert error_code(undelete(client, path)) == "undelete_conflict"
    assert client.get(path).body == b"new"
    client.delete(path)
    # The last one that was there.
    assert undelete(client, path).status == 204
    assert client.get(path).body == b"new"


def test_purging_takes_earlier_deletions_along(client: Client) -> None:
    path = client.create(TEXT, b"old")
    client.delete(path)
    client.create(TEXT, b"new", path=path)
    assert client.delete(f"{path}?purge=true").status == 204
    assert deleted(client, path) == []
    assert undelete(client, path).status == 404


def test_purging_takes_them_along_at_the_path_of_a_source_that_is_gone(client: Client) -> None:
    path = client.create(TEXT, b"old")
    client.delete(path)
    client.create(TEXT, b"new", path=path)
    fork = client.create(TEXT | {"Stream-Forked-From": path})
    client.delete(path)
    assert client.delete(f"{path}?purge=true").status == 204
    assert error_code(client.delete(f"{path}?purge=true")) == "stream_gone"
    assert client.get(fork).body == b"new"
    client.delete(fork)
    assert undelete(client, path).status == 404


def test_what_was_purged_does_not_come_back(client: Client) -> None:
    path = client.create(TEXT, b"one")
    assert client.delete(f"{path}?purge=true").status == 204
    assert undelete(client, path).status == 404
    client.create(TEXT, b"two", path=path)
    client.delete(path)
    assert deleted(client, path) == [path]
    assert client.delete(f"{path}?purge=true").status == 204
    assert deleted(client, path) == []
    assert client.delete(f"{path}?purge=true").status == 404
    assert error_code(client.delete(f"{path}?purge=yes")) == "invalid_query"


def test_there_was_never_such_a_stream(client: Client) -> None:
    assert error_code(undelete(client, fresh())) == "stream_not_found"


def test_a_stream_that_is_there(client: Client) -> None:
    path = client.create(TEXT)
    assert error_code(undelete(client, path)) == "stream_not_found"


def test_a_fork_comes_back_while_its_source_is_there(client: Client) -> None:
    source = client.create(TEXT, b"shared")
    fork = fresh()
    client.put(fork, {"Stream-Forked-From": source})
    client.post(fork, b" own", TEXT)
    client.delete(fork)
    assert undelete(client, fork).status == 204
    assert client.get(fork).body == b"shared own"
    # It counts as a fork again: its source is kept for it.
    client.delete(source)
    assert client.get(source).status == 410
    assert client.get(fork).body == b"shared own"
    # Now it is kept only for its fork, which is not kept itself, for both go together.
    client.delete(fork)
    assert client.get(source).status == 404
    assert undelete(client, fork).status == 404
    assert undelete(client, source).status == 404


def test_a_fork_whose_source_has_gone(client: Client) -> None:
    source = client.create(TEXT, b"shared")
    fork = fresh()
    client.put(fork, {"Stream-Forked-From": source})
    client.delete(fork)
    client.delete(source)
    assert error_code(undelete(client, fork)) == "undelete_conflict"
    assert undelete(client, source).status == 204
    assert undelete(client, fork).status == 204
    assert client.get(fork).body == b"shared"


def test_a_fork_whose_source_was_cleared(client: Client) -> None:
    source = client.create(TEXT, b"shared")
    fork = fresh()
    client.put(fork, {"Stream-Forked-From": source})
    client.delete(fork)
    assert client.send("POST", f"/v1/stream/{source}/_clear").status == 204
    assert error_code(undelete(client, fork)) == "undelete_conflict"


def test_ids_are_known_again(client: Client) -> None:
    unique = JSON | {"Stream-Unique-Ids": "fail", "Stream-Id-Pointer": "/id"}
    path = client.create(unique, b'{"id": "a"}')
    client.delete(path)
    assert undelete(client, path).status == 204
    assert error_code(client.post(path, b'{"id": "a"}', JSON)) == "duplicate_id"
    assert client.post(path, b'{"id": "b"}', JSON).status == 204


def test_the_list_says_until_when(client: Client) -> None:
    path = client.create(TEXT, b"abc")
    client.delete(path)
    (found,) = client.json(f"/v1/streams?deleted=true&prefix={path}")["streams"]
    assert found["size_bytes"] == 3
    assert found["kept_until"] - found["deleted_at"] == 3_600_000
    assert client.json(f"/v1/streams?prefix={path}")["streams"] == []
    assert error_code(client.send("GET", "/v1/streams?deleted=1")) == "invalid_query"


@pytest.mark.parametrize("times", [3])
def test_again_and_again(client: Client, times: int) -> None:
    path = client.create(JSON, b"[0]")
    for number in range(1, times + 1):
        assert client.delete(path).status == 204
        assert undelete(client, path).status == 204
        assert client.post(path, str(number).encode(), JSON).status == 204
    assert json.loads(client.get(path).body) == list(range(times + 1))
