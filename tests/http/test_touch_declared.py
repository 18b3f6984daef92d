"""Waits that declare their templates, waits whose client goes away, values that look the same."""

from __future__ import annotations

import json
from typing import Any

from headwater.client.live_keys import Keyset, keyset
from tests.conftest import StartServer
from tests.http.client import JSON, Client, eventually
from tests.http.wire import request_bytes


def live_stream(client: Client, **settings: Any) -> str:
    path = client.create(JSON)
    profile = {"kind": "state-protocol", "touch": {"enabled": True, **settings}}
    body = json.dumps({"profile": profile}).encode()
    assert client.post(f"{path}/_profile", body, JSON).status == 200
    return path


def ask(client: Client, path: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(f"{path}/touch/{name}", json.dumps(body).encode(), JSON)
    assert reply.status == 200, reply.body
    answer: dict[str, Any] = json.loads(reply.body)
    return answer


def meta(client: Client, path: str) -> dict[str, Any]:
    answer: dict[str, Any] = client.json(f"/v1/stream/{path}/touch/meta?settle=flush")
    return answer


def unsettled(client: Client, path: str) -> dict[str, Any]:
    answer: dict[str, Any] = client.json(f"/v1/stream/{path}/touch/meta")
    return answer


def touched(client: Client, path: str, keys: Keyset, cursor: str) -> bool:
    body = {"cursor": cursor, "timeoutMs": 0, **keys.wire()}
    return bool(ask(client, path, "wait", body)["touched"])


def change(client: Client, path: str, operation: str, **rows: Any) -> None:
    record = {"type": "t", "key": "1", "headers": {"operation": operation}, **rows}
    assert client.post(path, json.dumps(record).encode(), JSON).status == 204


def test_a_template_followed_with_other_encodings_is_told_of_the_table(client: Client) -> None:
    """`true` is 1 as a bool and true as a string: the keys are not the same."""
    path = live_stream(client)
    others = keyset("t", {"done": True})
    ours = keyset("t", {"done": True}, encodings={"done": "string"})
    assert others.template is not None
    ask(client, path, "templates/activate", {"templates": [others.template.wire()]})
    cursor = meta(client, path)["cursor"]
    change(client, path, "insert", value={"done": True})
    meta(client, path)
    assert touched(client, path, others, cursor)
    assert touched(client, path, ours, cursor)


def test_who_waits_on_a_template_with_other_encodings_is_woken(client: Client) -> None:
    path = live_stream(client)
    others = keyset("t", {"done": True})
    ours = keyset("t", {"done": True}, encodings={"done": "string"})
    assert others.template is not None
    ask(client, path, "templates/activate", {"templates": [others.template.wire()]})
    cursor = meta(client, path)["cursor"]
    body = json.dumps({"cursor": cursor, "timeoutMs": 120_000, **ours.wire()}).encode()
    with client.wire() as wire:
        wire.send(request_bytes("POST", f"/v1/stream/{path}/touch/wait", JSON, body))
        eventually(lambda: meta(client, path)["activeWaiters"] == 1)
        change(client, path, "insert", value={"done": True})
        assert json.loads(wire.reply().body)["touched"] is True


def test_declaring_what_is_followed_already_closes_no_bucket(client: Client) -> None:
    """What is held back, because the table was touched a moment ago, stays so."""
    path = live_stream(client, coarseIntervalMs=60_000)
    keys = keyset("other", {"a": "x"})
    touched(client, path, keys, "now")
    change(client, path, "insert", value={"a": 1})
    settled = meta(client, path)["generation"]
    change(client, path, "insert", value={"a": 2})
    eventually(lambda: unsettled(client, path)["totalChanges"] == 2)
    touched(client, path, keys, "now")
    assert unsettled(client, path)["generation"] == settled
    assert unsettled(client, path)["totalActivations"] == 1


def test_times_that_differ_by_less_than_a_millisecond_are_different_rows(client: Client) -> None:
    path = live_stream(client)
    at = "2026-03-23T08:30:00.0001Z"
    keys = keyset("t", {"at": at}, encodings={"at": "datetime"}, membership_only=True)
    assert keys.template is not None
    ask(client, path, "templates/activate", {"templates": [keys.template.wire()]})
    cursor = meta(client, path)["cursor"]
    change(client, path, "update", old_value={"at": at, "n": 1}, value={"at": at, "n": 2})
    meta(client, path)
    assert not touched(client, path, keys, cursor)
    later = {"at": "2026-03-23T08:30:00.0002Z", "n": 2}
    change(client, path, "update", old_value={"at": at, "n": 2}, value=later)
    meta(client, path)
    assert touched(client, path, keys, cursor)


def test_a_client_that_goes_away_leaves_nothing_behind(start_server: StartServer) -> None:
    server = start_server("--memory")
    client = Client(server)
    path = live_stream(client)
    body = {"cursor": "now", "timeoutMs": 120_000, **keyset("t", {"a": "x"}).wire()}
    with client.wire() as wire:
        request = request_bytes(
            "POST", f"/v1/stream/{path}/touch/wait", JSON, json.dumps(body).encode()
        )
        wire.send(request)
        eventually(lambda: meta(client, path)["activeWaiters"] == 1)
    eventually(lambda: meta(client, path)["activeWaiters"] == 0)
    assert server.stop() == 0
    assert "unexpected_error" not in server.stderr
