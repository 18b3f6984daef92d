"""PUT with a version: which settings win, and who is told what."""

from __future__ import annotations

import json

import pytest

from tests.http.client import CLOSE, JSON, TEXT, Client, error_code, fresh

FAIL = {"Stream-Unique-Ids": "fail"}
SUCCEED = {"Stream-Unique-Ids": "succeed"}


def version(number: int) -> dict[str, str]:
    return {"Stream-Config-Version": str(number)}


def message(client: Client, path: str, headers: dict[str, str]) -> str:
    reply = client.put(path, headers)
    assert (reply.status, error_code(reply)) == (409, "config_conflict")
    text: str = json.loads(reply.body)["error"]["message"]
    return text


SETTINGS = {"Stream-TTL": "60", "Stream-Retention-Bytes": "900", "Stream-Description": "old"}


@pytest.mark.parametrize(
    "asked, difference",
    [
        (TEXT | SETTINGS, "content type"),
        (JSON | SETTINGS | {"Stream-TTL": "61"}, "Stream-TTL or Stream-Expires-At"),
        (JSON | SETTINGS | {"Stream-Retention-Bytes": "901"}, "retention"),
        (JSON | SETTINGS | {"Stream-Description": "new"}, "description"),
        (JSON | SETTINGS | FAIL, "unique id checking"),
        (JSON | SETTINGS | CLOSE, "open or closed state"),
        (JSON | {"Stream-TTL": "60"}, "retention and description"),
    ],
)
def test_the_same_version_with_other_settings(
    client: Client, asked: dict[str, str], difference: str
) -> None:
    path = fresh()
    assert client.put(path, JSON | SETTINGS | version(2)).status == 201
    assert message(client, path, asked | version(2)).endswith(f"a different {difference}")
    assert client.put(path, SETTINGS | version(2)).status == 200, "any content type will do"


def test_the_same_version_of_a_stream_that_was_closed_since(client: Client) -> None:
    path = client.create(JSON | version(1))
    client.close(path)
    reply = client.put(path, JSON | version(1))
    assert (reply.status, reply.headers["Stream-Closed"]) == (200, "true")


def test_an_older_version_is_shown_what_is_in_force(client: Client) -> None:
    path = fresh()
    pointer = {"Stream-Id-Pointer": "/id"}
    assert client.put(path, JSON | SETTINGS | FAIL | pointer | version(3)).status == 201
    reply = client.put(path, TEXT | version(2) | {"Stream-TTL": "7"})
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"
    expected = SETTINGS | FAIL | pointer | version(3)
    for shown in (reply, client.head(path)):
        assert {name: shown.headers[name] for name in expected} == expected


def test_a_newer_version_is_applied_and_shown(client: Client) -> None:
    path = fresh()
    assert client.put(path, JSON | SETTINGS | version(1)).status == 201
    reply = client.put(path, version(2) | {"Stream-TTL": "90"})
    assert (reply.status, reply.headers["Stream-TTL"]) == (200, "90")
    assert reply.headers["Stream-Config-Version"] == "2"
    for gone in ("Stream-Retention-Bytes", "Stream-Description"):
        assert gone not in reply.headers
        assert gone not in client.head(path).headers


def test_a_stream_without_a_version_takes_the_first(client: Client) -> None:
    path = client.create(JSON)
    assert client.put(path, JSON | version(1) | {"Stream-TTL": "9"}).headers["Stream-TTL"] == "9"


def test_how_duplicates_are_answered_may_change(client: Client) -> None:
    path = fresh()
    assert client.put(path, JSON | FAIL | version(1)).status == 201
    one = JSON | {"Message-Id": "1"}
    assert client.post(path, b"1", one).status == 204
    assert error_code(client.post(path, b"1", one)) == "duplicate_id"
    assert "duplicate ids" in message(client, path, JSON | SUCCEED | version(1))
    assert client.put(path, JSON | SUCCEED | version(2)).status == 200
    again = client.post(path, b"1", one)
    assert (again.status, again.headers["Stream-Duplicate-Ids"]) == (204, "1")
    assert client.put(path, JSON | FAIL | version(3)).status == 200
    assert error_code(client.post(path, b"1", one)) == "duplicate_id"


@pytest.mark.parametrize(
    "there, asked",
    [
        (FAIL, {}),
        ({}, FAIL),
        (FAIL | {"Stream-Id-Pointer": "/id"}, SUCCEED | {"Stream-Id-Pointer": "/key"}),
        (FAIL, FAIL | {"Stream-Id-Pointer": "/id"}),
        ({}, TEXT),
    ],
)
def test_what_a_stream_holds_never_changes(
    client: Client, there: dict[str, str], asked: dict[str, str]
) -> None:
    path = fresh()
    assert client.put(path, JSON | there | version(1)).status == 201
    assert message(client, path, JSON | asked | version(2)).endswith("which no version can change")


def test_a_fork_is_ensured_like_any_other(client: Client) -> None:
    source, path = fresh(), fresh()
    assert client.put(source, JSON | SUCCEED | {"Stream-TTL": "60"}).status == 201
    fork = {"Stream-Forked-From": f"/v1/stream/{source}"}
    assert client.put(path, fork | version(1)).status == 201
    assert client.put(path, fork | version(1)).status == 200
    assert client.put(path, fork | version(2) | {"Stream-TTL": "5"}).headers["Stream-TTL"] == "5"
    assert "fork source" in message(client, path, JSON | SUCCEED | version(3))


def test_durability(client: Client) -> None:
    path = fresh()
    relaxed = {"Stream-Durability": "relaxed"}
    assert client.put(path, TEXT | relaxed).status == 201
    assert client.head(path).headers["Stream-Durability"] == "relaxed"
    assert client.post(path, b"1", TEXT).headers["Stream-Durability"] == "relaxed"
    assert "durability" in message(client, path, TEXT)
    assert client.put(path, TEXT | version(1)).headers["Stream-Durability"] == "synced"
    assert "Stream-Durability" not in client.post(path, b"2", TEXT).headers
    assert client.get(path).body == b"12"
    assert client.put(fresh(), {"Stream-Durability": "none"}).status == 400


def test_a_fork_keeps_the_profile_of_its_source(client: Client) -> None:
    source, path = client.create(JSON), fresh()
    profile = json.dumps({"profile": {"kind": "state-protocol"}}).encode()
    assert client.send("POST", f"/v1/stream/{source}/_profile", JSON, profile).status < 300
    assert client.put(path, {"Stream-Forked-From": f"/v1/stream/{source}"}).status == 201
    assert client.json(f"/v1/stream/{path}/_details")["profile"] == "state-protocol"
