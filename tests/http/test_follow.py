"""Several streams over one connection: each event has its stream, and none disturbs another."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater.core.limits import FOLLOWED_MAX
from tests.conftest import StartServer
from tests.http.client import CLOSE, JSON, TEXT, Client, check_every_response, eventually, fresh
from tests.http.events import Events
from tests.http.wire import request_bytes


@contextmanager
def follow(client: Client, streams: dict[str, str]) -> Iterator[Events]:
    body = json.dumps({"streams": streams}).encode()
    with client.wire() as wire:
        wire.send(request_bytes("POST", "/v1/follow", JSON, body))
        head = wire.head()
        check_every_response(head)
        assert head.status == 200
        assert head.headers["Content-Type"] == "text/event-stream"
        yield Events(wire, head.headers)


class Listener:
    """What each stream said, in order."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._speaking = ""
        self.said: dict[str, list[Any]] = {}

    def step(self) -> bool:
        event = self._events.next()
        if event is None:
            return False
        if event.kind == "stream":
            self._speaking = event.json["stream"]
        elif event.kind == "failed":
            self.said.setdefault(event.json["stream"], []).append(event.json["error"]["code"])
        else:
            said = event.json if event.kind != "data" else event.data
            self.said.setdefault(self._speaking, []).append(said)
        return True

    def until(self, path: str, data: str) -> None:
        while data not in self.said.get(path, []):
            assert self.step()

    def data(self, path: str) -> list[str]:
        return [said for said in self.said.get(path, []) if isinstance(said, str)]


def test_each_event_has_its_stream(client: Client) -> None:
    words, numbers = client.create(TEXT, b"one"), client.create(JSON, b"[1,2]")
    with follow(client, {words: "-1", numbers: "now"}) as events:
        listener = Listener(events)
        listener.until(words, "one")
        for number in range(3, 8):
            client.post(numbers, str(number).encode(), JSON)
            listener.until(numbers, f"[{number}]")
            client.post(words, f"n{number}".encode(), TEXT)
            listener.until(words, f"n{number}")
        assert listener.data(numbers) == [f"[{number}]" for number in range(3, 8)]
        assert listener.data(words) == ["one", "n3", "n4", "n5", "n6", "n7"]


def test_bytes_come_in_base64(client: Client) -> None:
    path = client.create({"Content-Type": "application/octet-stream"}, b"\0\xff")
    with follow(client, {path: "-1"}) as events:
        assert events.expect("stream").json["encoding"] == "base64"
        assert events.expect("data").data == b64encode(b"\0\xff").decode()


def test_what_cannot_be_followed_does_not_disturb_the_others(client: Client) -> None:
    path, ghost = client.create(TEXT, b"here"), fresh("ghost")
    streams = {ghost: "-1", "a//b": "-1", path: "-1", client.create(): "nonsense"}
    with follow(client, streams) as events:
        listener = Listener(events)
        listener.until(path, "here")
        assert [listener.said[each] for each in streams if each != path] == [
            ["stream_not_found"],
            ["invalid_path"],
            ["invalid_offset"],
        ]


def test_streams_end_one_by_one_and_the_connection_with_the_last(client: Client) -> None:
    closing, leaving = client.create(TEXT, b"a"), client.create(TEXT, b"b")
    with follow(client, {closing: "-1", leaving: "-1"}) as events:
        listener = Listener(events)
        listener.until(leaving, "b")
        client.post(closing, b"last", TEXT | CLOSE)
        listener.until(closing, "last")
        client.post(leaving, b"more", TEXT)
        listener.until(leaving, "more")
        client.delete(leaving)
        while listener.step():
            pass
        assert listener.said[closing][-1]["streamClosed"] is True
        assert set(listener.said[leaving][-1]) == {"streamNextOffset"}


def test_a_connection_with_nothing_to_follow_ends(client: Client) -> None:
    with follow(client, {fresh("ghost"): "-1"}) as events:
        assert [event.kind for event in events.rest()] == ["failed"]


def test_readers_are_counted_and_leave_with_the_connection(client: Client) -> None:
    paths = [client.create(TEXT, b"x") for _ in range(3)]
    with follow(client, dict.fromkeys(paths, "-1")) as events:
        listener = Listener(events)
        for path in paths:
            listener.until(path, "x")
        assert [client.readers(path) for path in paths] == [1, 1, 1]
    eventually(lambda: [client.readers(path) for path in paths] == [0, 0, 0])


def test_history_comes_in_order_and_once(hasty: Client) -> None:
    """With chunks of 64 bytes, both streams have to be caught up with step by step."""
    paths = [hasty.create(TEXT, *(b"%d-%02d " % (n, i) for i in range(60))) for n in range(2)]
    with follow(hasty, dict.fromkeys(paths, "-1")) as events:
        listener = Listener(events)
        while any("59 " not in "".join(listener.data(path)) for path in paths):
            assert listener.step()
        for n, path in enumerate(paths):
            assert "".join(listener.data(path)) == "".join(f"{n}-{i:02} " for i in range(60))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"streams": {}}',
        b'{"streams": {"a": 1}}',
        b'{"streams": {"a": "-1"}, "more": 1}',
        json.dumps({"streams": {f"s{n}": "-1" for n in range(FOLLOWED_MAX + 1)}}).encode(),
    ],
    ids=["empty", "array", "no streams", "none", "number", "unknown", "too many"],
)
def test_nonsense_is_refused(client: Client, body: bytes) -> None:
    assert client.send("POST", "/v1/follow", JSON, body).status == 400


def test_every_stream_counts_as_a_live_read(start_server: StartServer) -> None:
    client = Client(start_server("--memory", "--readers-per-caller-max", "3"))
    paths = [client.create(TEXT, b"x") for _ in range(4)]
    body = json.dumps({"streams": dict.fromkeys(paths, "-1")}).encode()
    for _ in range(2):
        reply = client.send("POST", "/v1/follow", JSON, body)
        assert json.loads(reply.body)["error"]["code"] == "too_many_readers_of_caller"
    assert [client.readers(path) for path in paths] == [0, 0, 0, 0]
    with follow(client, dict.fromkeys(paths[:3], "-1")) as events:
        Listener(events).until(paths[2], "x")
