"""Quotas over HTTP: refused beyond, also in transactions, and the same after a restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.http.client import TEXT, Client, error_code, producer

QUOTAS = "t/*: streams=2 bytes=100 producers=2; **: streams=5"


@pytest.fixture
def client(start_server: StartServer, tmp_path: Path) -> Client:
    return Client(start_server("--data", str(tmp_path), "--quotas", QUOTAS))


def test_streams(client: Client) -> None:
    assert client.put("t/a/1", TEXT).status == 201
    assert client.put("t/a/2", TEXT).status == 201
    refused = client.put("t/a/3", TEXT)
    assert (refused.status, error_code(refused)) == (403, "quota_exceeded")
    assert b"'t/a' may hold 2 streams" in refused.body
    # What is there is there, whoever else is full.
    assert client.put("t/a/1", TEXT).status == 200
    assert client.put("t/b/1", TEXT).status == 201
    assert client.delete("t/a/1").status == 204
    assert client.put("t/a/3", TEXT).status == 201


def test_bytes_and_a_restart(client: Client, start_server: StartServer, tmp_path: Path) -> None:
    client.put("t/a/1", TEXT)
    assert client.post("t/a/1", b"x" * 60, TEXT).status == 204
    assert error_code(client.post("t/a/1", b"x" * 41, TEXT)) == "quota_exceeded"
    assert error_code(client.put("t/a/2", TEXT, b"x" * 41)) == "quota_exceeded"
    assert client.get("t/a/2").status == 404
    assert client.post("t/a/1", b"x" * 40, TEXT).status == 204
    client.server.restart()
    assert error_code(client.post("t/a/1", b"x", TEXT)) == "quota_exceeded"
    assert client.delete("t/a/1").status == 204
    assert client.put("t/a/1", TEXT, b"x" * 100).status == 201


def test_forks_do_not_make_room(client: Client) -> None:
    client.put("t/a/1", TEXT, b"x" * 90)
    assert client.put("t/a/2", {"Stream-Forked-From": "t/a/1"}).status == 201
    assert client.delete("t/a/1").status == 204
    assert error_code(client.post("t/a/2", b"x" * 11, TEXT)) == "quota_exceeded"
    assert client.delete("t/a/2").status == 204
    assert client.put("t/a/3", TEXT, b"x" * 100).status == 201


def test_producers(client: Client) -> None:
    client.put("t/a/1", TEXT)
    for name in ("p", "q"):
        assert client.post("t/a/1", b"x", TEXT | producer(0, 0, name)).status == 200
    assert error_code(client.post("t/a/1", b"x", TEXT | producer(0, 0, "r"))) == "quota_exceeded"
    assert client.post("t/a/1", b"x", TEXT | producer(0, 1, "q")).status == 200


def test_a_transaction_is_refused_as_a_whole(client: Client) -> None:
    client.put("t/a/1", TEXT)
    client.put("free", TEXT)
    data = "eHh4eHh4eHg="
    body = json.dumps(
        {"publish": [{"stream": "free", "data": data}, *[{"stream": "t/a/1", "data": data}] * 13]}
    )
    refused = client.send("POST", "/v1/transaction", {}, body.encode())
    assert (refused.status, error_code(refused)) == (403, "quota_exceeded")
    assert client.get("free").body == b""
    assert client.post("t/a/1", b"x" * 100, TEXT).status == 204


def test_what_can_be_undeleted_is_bounded_too(client: Client) -> None:
    for number in range(3):
        assert client.put(f"t/a/{number}", TEXT, b"x" * 60).status == 201
        assert client.delete(f"t/a/{number}").status == 204
    # The first one is as much as is kept for this account.
    kept = client.json("/v1/streams?deleted=true")["streams"]
    assert [stream["name"] for stream in kept] == ["t/a/0"]
    assert client.put("t/a/9", TEXT, b"x" * 60).status == 201
    again = client.send("POST", "/v1/stream/t/a/0/_undelete")
    assert error_code(again) == "quota_exceeded"
    assert client.delete("t/a/9").status == 204
    assert client.send("POST", "/v1/stream/t/a/0/_undelete").status == 204
    assert error_code(client.put("t/a/8", TEXT, b"x" * 60)) == "quota_exceeded"
