"""Large bodies of JSON, which are read off the loop: what they get is what small ones get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.http.client import CLOSE, JSON, TEXT, Client, error_code, fresh, producer

COUNT = 4_000
MESSAGES = [{"id": number, "text": "x" * 60} for number in range(COUNT)]
LARGE = json.dumps(MESSAGES).encode()
assert len(LARGE) > 256 * 1024


def read_messages(client: Client, path: str) -> list[object]:
    messages: list[object] = []
    offset = "-1"
    while True:
        reply = client.get(path, f"offset={offset}")
        messages += json.loads(reply.body)
        if "Stream-Up-To-Date" in reply.headers:
            return messages
        offset = reply.next_offset


def test_an_append(client: Client) -> None:
    path = client.create(JSON)
    assert client.post(path, LARGE, JSON).status == 204
    assert client.post(path, b"[1]", JSON).status == 204
    assert read_messages(client, path) == [*MESSAGES, 1]


def test_the_first_body(client: Client) -> None:
    path = fresh()
    assert client.put(path, JSON, LARGE).status == 201
    assert client.put(path, JSON, LARGE).status == 200
    fork = fresh()
    reply = client.put(fork, {"Stream-Forked-From": f"/v1/stream/{path}"}, LARGE)
    assert reply.status == 201
    assert read_messages(client, fork) == MESSAGES * 2


def test_a_producer(client: Client) -> None:
    path = client.create(JSON)
    assert client.post(path, LARGE, JSON | producer(0, 0)).status == 200
    assert client.post(path, LARGE, JSON | producer(0, 0)).status == 204
    assert client.post(path, LARGE, JSON | producer(0, 1) | CLOSE).status == 200
    assert read_messages(client, path) == MESSAGES * 2


def test_ids(client: Client) -> None:
    path = fresh()
    rule = {"Stream-Unique-Ids": "succeed", "Stream-Id-Pointer": "/id"}
    assert client.put(path, JSON | rule, json.dumps(MESSAGES[:10]).encode()).status == 201
    reply = client.post(path, LARGE, JSON)
    assert (reply.status, reply.headers["Stream-Duplicate-Ids"]) == (204, "10")
    assert read_messages(client, path) == MESSAGES


@pytest.mark.parametrize(
    "headers, body, code",
    [
        (JSON, LARGE + b"]", "invalid_json"),
        (JSON, LARGE[:-1], "invalid_json"),
        (JSON, LARGE.replace(b"x", b"\xff", 1), "invalid_json"),
        (JSON, b"[" + b" " * len(LARGE) + b"]", "empty_body"),
        (TEXT, LARGE[:-1], "content_type_mismatch"),
        (JSON | producer(0, 9), LARGE, "sequence_gap"),
        (JSON | producer(0, 9), LARGE[:-1], "invalid_json"),
        (JSON, b"[" + b"1," * 200_000 + b"1]", "too_many_messages"),
        (JSON, b"[" + b"1," * 200_000 + b"]", "invalid_json"),
    ],
)
def test_refusals_come_in_the_same_order(
    client: Client, headers: dict[str, str], body: bytes, code: str
) -> None:
    path = client.create(JSON)
    assert error_code(client.post(path, body, headers)) == code
    assert client.get(path).body == b"[]"
    client.close(path)
    assert error_code(client.post(path, body, headers)) == "stream_closed"


def test_as_many_messages_as_an_append_may_have(client: Client) -> None:
    path = client.create(JSON)
    assert client.post(path, b"[" + b"1," * 99_999 + b"1]", JSON).status == 204
    reply = client.post(path, b"[" + b"1," * 100_000 + b"1]", JSON)
    assert (reply.status, error_code(reply)) == (413, "too_many_messages")


def test_a_body_full_of_messages_costs_little(client: Client) -> None:
    """With an object for each message this took 5 GB."""
    path = client.create(JSON)
    before = peak_bytes(client)
    reply = client.post(path, b"[" + b"1," * (31 * 2**20 - 1) + b"1]", JSON)
    assert (reply.status, error_code(reply)) == (413, "too_many_messages")
    assert peak_bytes(client) - before < 400 * 2**20


def peak_bytes(client: Client) -> int:
    """The most memory that the server ever had."""
    status = Path(f"/proc/{client.server.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
