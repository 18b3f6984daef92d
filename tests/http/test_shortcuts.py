"""Shortcuts for frequent requests: whoever takes one gets the same answer as everyone else.

A head that comes in one piece with its body is known from the second time on, and takes the
shortcut from the third. One that comes byte by byte is always parsed, and goes to its handler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.http.client import JSON, Client, check_every_response, fresh
from tests.http.wire import Reply, Wire, request_bytes
from tests.support.server import ServerProcess

USES = 4
Send = Callable[..., Reply]


@pytest.fixture(params=["the shortcut", "the handler"])
def post(request: pytest.FixtureRequest, client: Client, server: ServerProcess) -> Iterator[Send]:
    """Sends something several times, the last time in the way of the parameter."""
    with Wire(server.port) as wire:

        def send(target: str, body: object, **headers: object) -> Reply:
            data = json.dumps(body).encode() if not isinstance(body, bytes) else body
            named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
            whole = request_bytes("POST", f"/v1/stream/{target}", JSON | named, data)
            if request.param == "the handler":
                wire.send(whole[:40])
                whole = whole[40:]
            wire.send(whole)
            reply = wire.reply()
            check_every_response(reply)
            return reply

        yield send


@pytest.fixture
def group(client: Client) -> str:
    """A group on a stream with messages."""
    path = fresh()
    assert client.put(path, JSON, b'[{"n":1},{"n":2},{"n":3},{"n":4},{"n":5},{"n":6}]').status
    target = f"{path}/_groups/g"
    assert client.put(target, JSON, b"{}").status == 201
    return target


def produce(post: Send, path: str, seq: object, body: object = 1, epoch: int = 0) -> Reply:
    return post(path, body, Producer_Id="p", Producer_Epoch=epoch, Producer_Seq=seq)


def test_a_producer(post: Send, client: Client) -> None:
    """Its next request, a repeated one, a gap, a fence: each is what it would be for anyone."""
    path = fresh()
    assert client.put(path, JSON).status == 201
    shapes = set()
    for seq in range(USES + 8):
        reply = produce(post, path, seq, seq)
        assert (reply.status, reply.body) == (200, b"")
        assert reply.headers["Producer-Seq"] == str(seq)
        assert (
            reply.headers["Stream-Next-Offset"] == client.head(path).headers["Stream-Next-Offset"]
        )
        shapes.add(str(shape(reply)))
        repeated = produce(post, path, seq, seq)
        assert (repeated.status, repeated.headers["Producer-Seq"]) == (204, str(seq))
    assert len(shapes) == 1, "the same status and headers in the same order"
    assert produce(post, path, seq + 100).status == 409
    assert produce(post, path, seq + 1, b"{").status == 400
    assert produce(post, path, "1x").status == 400
    assert produce(post, path, seq + 1, [7, 8]).status == 200
    assert produce(post, path, seq + 2, 9).status == 200
    assert produce(post, path, 0, 10, epoch=1).status == 200
    assert produce(post, path, seq + 3).status == 403
    assert json.loads(client.get(path).body) == [*range(USES + 8), 7, 8, 9, 10]
    closed = post(
        path, b"", Producer_Id="p", Producer_Epoch=1, Producer_Seq=1, Stream_Closed="true"
    )
    assert closed.status == 204
    assert produce(post, path, 2, epoch=1).status == 409
    assert client.delete(path).status == 204
    assert produce(post, path, 2, epoch=1).status == 404


def receipt_of(reply: Reply) -> str:
    (message,) = json.loads(reply.body)["messages"]
    receipt: str = message["receipt"]
    return receipt


def shape(reply: Reply) -> tuple[int, list[str]]:
    return reply.status, [name for name, _ in reply.headers.fields]


def test_fetching_and_acknowledging(post: Send, group: str) -> None:
    shapes = set()
    for number in range(1, USES + 1):
        fetched = post(f"{group}/fetch", {"consumer": "me", "max": 1})
        body: dict[str, Any] = json.loads(fetched.body)
        assert [message["value"] for message in body["messages"]] == [{"n": number}]
        assert body["lag"] == 7 - number
        acked = post(f"{group}/ack", {"receipts": [body["messages"][0]["receipt"]]})
        assert json.loads(acked.body) == {"acked": 1, "stale": []}
        assert fetched.headers["Content-Type"] == acked.headers["Content-Type"]
        assert acked.headers["Cache-Control"] == "no-store"
        shapes |= {str(shape(fetched)), str(shape(acked))}
    assert len(shapes) == 1, "the same status and headers in the same order"


def test_both_in_one(post: Send, group: str) -> None:
    receipt = receipt_of(post(f"{group}/fetch", {"consumer": "me", "ack": []}))
    for _ in range(USES):
        reply = post(f"{group}/fetch", {"consumer": "me", "ack": [receipt]})
        assert (json.loads(reply.body)["acked"], json.loads(reply.body)["stale"]) == (1, [])
        receipt = receipt_of(reply)
    stale = post(f"{group}/ack", {"receipts": ["nonsense", receipt]})
    assert json.loads(stale.body) == {"acked": 1, "stale": ["nonsense"]}


@pytest.mark.parametrize("action", ["fetch", "ack"])
def test_nonsense_is_refused_and_hurts_nobody(post: Send, group: str, action: str) -> None:
    for _ in range(USES):
        for body in (b"{", b"[]", b'{"consumer":7,"receipts":7}', b"{}"):
            reply = post(f"{group}/{action}", body)
            assert reply.status == 400
            assert json.loads(reply.body)["error"]["code"] == "invalid_body"
    reply = post(f"{group}/ack", {"receipts": ["x"]})
    assert json.loads(reply.body) == {"acked": 0, "stale": ["x"]}


@pytest.mark.parametrize("action", ["fetch", "ack"])
def test_a_group_that_is_gone(client: Client, post: Send, group: str, action: str) -> None:
    bodies: dict[str, object] = {"fetch": {"consumer": "me"}, "ack": {"receipts": ["x"]}}
    body = bodies[action]
    for _ in range(USES):
        assert post(f"{group}/{action}", body).status == 200
    assert client.delete(group).status == 204
    assert post(f"{group}/{action}", body).status == 404


def test_an_answer_larger_than_most(post: Send, client: Client) -> None:
    path = fresh()
    text = "x" * 100_000
    assert client.put(path, JSON, json.dumps([text] * USES).encode()).status == 201
    group = f"{path}/_groups/g"
    assert client.put(group, JSON, b"{}").status == 201
    for _ in range(USES):
        reply = post(f"{group}/fetch", {"consumer": "me"})
        assert [message["value"] for message in json.loads(reply.body)["messages"]] == [text]


def test_several_at_once_are_answered_in_order(
    client: Client, group: str, server: ServerProcess
) -> None:
    """Pipelined: the second waits for its turn, and gets the next message."""
    whole = request_bytes("POST", f"/v1/stream/{group}/fetch", JSON, b'{"consumer":"me"}')
    with Wire(server.port) as wire:
        for _ in range(2):
            wire.send(whole)
            wire.reply()
        wire.send(whole * 3)
        found = [json.loads(wire.reply().body)["messages"][0]["value"]["n"] for _ in range(3)]
    assert found == [3, 4, 5]


def test_a_member_that_hangs_up_is_taken_off(client: Client, server: ServerProcess) -> None:
    """While it waits on a shortcut: what comes next goes to somebody else."""
    path = fresh()
    assert client.put(path, JSON).status == 201
    group = f"{path}/_groups/g"
    assert client.put(group, JSON, b"{}").status == 201
    target = f"/v1/stream/{group}/fetch"
    at_once = request_bytes("POST", target, JSON, b'{"consumer":"me","wait_ms":0}')
    waiting = request_bytes("POST", target, JSON, b'{"consumer":"me","wait_ms":60000}')
    with Wire(server.port) as wire:
        for _ in range(USES):
            wire.send(at_once)
            assert json.loads(wire.reply().body)["messages"] == []
        wire.send(waiting)
    assert client.post(path, b"1", JSON).status == 204
    body = b'{"consumer":"you","wait_ms":60000}'
    reply = client.post(f"{group}/fetch", body, JSON)
    assert [message["value"] for message in json.loads(reply.body)["messages"]] == [1]
