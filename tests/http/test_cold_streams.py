"""Streams that are not in memory answer like those that are.

The server keeps 16 idle streams loaded. Each test works on more than that, so that by the time it
comes back to one, that one has to be loaded again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.http.client import (
    CLOSE,
    JSON,
    TEXT,
    Client,
    error_code,
    eventually,
    fresh,
    producer,
)
from tests.http.conftest import watched
from tests.http.wire import request_bytes
from tests.support.engines import serving
from tests.support.server import ServerProcess

COUNT = 24


@pytest.fixture(scope="module")
def forgetful_server(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    few = ("--streams-in-memory-max", "16")
    with serving(engine, tmp_path_factory.mktemp("forgetful"), *few) as server:
        yield server


@pytest.fixture
def client(forgetful_server: ServerProcess) -> Iterator[Client]:
    yield from watched(forgetful_server)


@pytest.fixture
def cold(client: Client) -> Callable[[str], str]:
    """Makes the server forget a stream; returns its path for convenience."""
    others = [client.create(TEXT, b"x") for _ in range(COUNT)]

    def forget(path: str) -> str:
        for other in others:
            assert client.get(other).status == 200
        return path

    return forget


Cold = Callable[[str], str]


def test_reads(client: Client, cold: Cold) -> None:
    path = client.create(JSON, b"[1,2]", b"3")
    warm = client.get(path)
    again = client.get(cold(path))
    assert (again.status, again.body) == (200, b"[1,2,3]")
    for name in ("ETag", "Stream-Next-Offset", "Cache-Control", "Content-Type"):
        assert again.headers[name] == warm.headers[name]
    tag = {"If-None-Match": warm.headers["ETag"]}
    assert client.get(cold(path), headers=tag).status == 304
    assert client.head(cold(path)).next_offset == warm.next_offset
    assert client.get(cold(path), "offset=now").next_offset == warm.next_offset
    assert client.get(cold(path), f"offset={warm.next_offset}").body == b"[]"
    assert error_code(client.get(cold(path), "offset=0")) == "invalid_offset"


def test_appends(client: Client, cold: Cold) -> None:
    path = client.create(TEXT, b"one")
    assert client.post(cold(path), b"two", TEXT).status == 204
    assert client.post(cold(path), b"x", JSON).status == 409
    assert client.post(cold(path), b"", TEXT).status == 400
    assert client.post(cold(path), b"x", TEXT | {"Producer-Id": "p"}).status == 400
    assert client.get(cold(path)).body == b"onetwo"
    assert client.post(cold(path), b"x", TEXT | {"Stream-Seq": "b"}).status == 204
    assert client.post(cold(path), b"x", TEXT | {"Stream-Seq": "a"}).status == 409


def test_what_is_not_there(client: Client, cold: Cold) -> None:
    path = cold(fresh())
    assert client.get(path).status == 404
    # Whether the stream is there comes before whether the headers are well formed.
    assert client.post(path, b"x", TEXT | {"Producer-Id": "p"}).status == 404
    assert client.delete(path).status == 404


def test_producers(client: Client, cold: Cold) -> None:
    path = client.create(TEXT)
    for seq in range(3):
        assert client.post(cold(path), b"x", TEXT | producer(1, seq)).status == 200
    assert client.post(cold(path), b"x", TEXT | producer(1, 1)).status == 204
    assert client.post(cold(path), b"x", TEXT | producer(0, 3)).status == 403
    assert client.post(cold(path), b"x", TEXT | producer(1, 9)).status == 409
    closing = TEXT | CLOSE | producer(1, 3)
    assert client.post(cold(path), b"x", closing).status == 200
    assert client.post(cold(path), b"x", closing).status == 204
    assert client.post(cold(path), b"x", TEXT).status == 409


def test_live_reads(client: Client, cold: Cold) -> None:
    path = client.create(TEXT, b"one")
    with client.events(cold(path)) as events:
        assert events.pair()[0] == "one"
        # A stream with readers stays, whatever else comes and goes.
        assert client.post(cold(path), b"two", TEXT).status == 204
        assert events.pair()[0] == "two"
    reply = client.get(cold(path), "offset=-1&live=long-poll")
    assert reply.body == b"onetwo"
    with client.long_poll(cold(path), "offset=now") as waiting:
        client.post(cold(path), b"three", TEXT)
        assert waiting.reply().body == b"three"
    with client.events(cold(path)) as events:
        events.pair()
        assert client.delete(cold(path)).status == 204
        assert [event.kind for event in events.rest()] == ["deleted"]


def test_readers_that_hang_up_before_they_begin(client: Client, cold: Cold) -> None:
    path = client.create(TEXT, b"one")
    for _ in range(5):
        cold(path)
        with client.wire() as wire:
            wire.send(request_bytes("GET", f"/v1/stream/{path}?offset=-1&live=sse"))
    eventually(lambda: client.readers(path) == 0)
    with client.events(path) as events:
        events.pair()
        # Those who hung up may be noticed only now.
        eventually(lambda: client.readers(path) == 1)
    eventually(lambda: client.readers(path) == 0)


def test_forks(client: Client, cold: Cold) -> None:
    source = client.create(TEXT, b"one")
    fork = fresh("fork")
    headers = {"Stream-Forked-From": f"/v1/stream/{cold(source)}"}
    assert client.put(cold(fork), headers).status == 201
    assert client.put(cold(fork), headers).status == 200
    assert client.post(cold(fork), b"two", TEXT).status == 204
    assert client.get(cold(fork)).body == b"onetwo"
    assert client.delete(cold(source)).status == 204
    assert client.get(cold(source)).status == 410
    assert client.put(cold(source), TEXT).status == 409
    assert client.get(cold(fork)).body == b"onetwo"
    assert client.delete(cold(fork)).status == 204
    assert client.get(cold(source)).status == 404


def test_creating_again(client: Client, cold: Cold) -> None:
    path = client.create(TEXT | {"Stream-TTL": "3600"}, b"one")
    assert client.put(cold(path), TEXT | {"Stream-TTL": "3600"}).status == 200
    assert client.put(cold(path), TEXT).status == 409
    assert client.head(cold(path)).headers["Stream-TTL"] == "3600"
    old = client.get(path).next_offset
    assert client.delete(cold(path)).status == 204
    client.create(JSON, b"1", path=path)
    assert error_code(client.get(cold(path), f"offset={old}")) == "unknown_offset"
    assert client.get(cold(path)).body == b"[1]"


def test_details_and_listing(client: Client, cold: Cold) -> None:
    path = client.create(JSON, b"[1,2]")
    client.post(path, b"3", JSON | producer(0, 0))
    warm = client.json(f"/v1/stream/{path}/_details")
    assert client.json(f"/v1/stream/{cold(path)}/_details") == warm
    (entry,) = client.json(f"/v1/streams?prefix={cold(path)}")["streams"]
    assert entry.items() <= warm.items()
