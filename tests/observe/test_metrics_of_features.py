"""/metrics counts what live queries, subscriptions, history and access control do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.testing import running_server
from tests.http.client import JSON, Client, eventually
from tests.observe.figures import Figures
from tests.support.server import ServerProcess

LIVE = b'{"profile": {"kind": "state-protocol", "touch": {"enabled": true}}}'
CHANGE = b'{"type": "todos", "key": "1", "value": {"a": 1}, "headers": {"operation": "insert"}}'


@pytest.fixture
def client() -> Iterator[Client]:
    with running_server() as server:
        yield Client(cast(ServerProcess, server))


def figures(client: Client) -> Figures:
    return Figures.of(client.server.url)


def test_live_queries(client: Client) -> None:
    path = client.create(JSON)
    client.send("POST", f"/v1/stream/{path}/_profile", JSON, LIVE)
    body = {"cursor": "now", "timeoutMs": 0, "keys": ["0123456789abcdef"]}
    wait = f"/v1/stream/{path}/touch/wait"
    assert client.send("POST", wait, JSON, json.dumps(body).encode()).status == 200
    now = figures(client)
    assert sum(now("live_streams", mode=mode) for mode in ("idle", "fine")) == 1
    assert now("live_waits_total", outcome="timeout") == 1
    assert now("live_waiters") == 0
    client.post(path, CHANGE, JSON)
    eventually(lambda: figures(client)("live_changes_total") == 1)
    # A stream that is let go takes its numbers along, and they still count.
    client.send("POST", f"/v1/stream/{path}/_profile", JSON, b'{"profile": {"kind": "generic"}}')
    now = figures(client)
    assert sum(now("live_streams", mode=mode) for mode in ("idle", "fine")) == 0
    assert now("live_changes_total") == 1
    assert now("live_waits_total", outcome="timeout") == 1


def test_subscriptions(client: Client) -> None:
    path = client.create(JSON)
    settings = {"type": "pull-wake", "streams": [path], "wake_stream": "wakes"}
    subscription = "/v1/stream/__ds/subscriptions/s"
    assert client.send("PUT", subscription, JSON, json.dumps(settings).encode()).status == 201
    assert figures(client)("subscriptions", state="idle") == 1
    client.post(path, b"1", JSON)
    eventually(lambda: figures(client)("wakes_offered_total") == 1)
    now = figures(client)
    assert now("subscriptions", state="offered") == 1
    assert now("subscription_pending_streams") == 1
    assert now("subscriptions_failing") == 0


def test_a_webhook_that_cannot_be_reached() -> None:
    with running_server(insecure=True) as server:
        client = Client(cast(ServerProcess, server))
        path = client.create(JSON)
        # Nothing listens on this port of this machine.
        hook = {"url": "http://127.0.0.1:9/hook"}
        settings = {"type": "webhook", "streams": [path], "webhook": hook}
        made = client.send(
            "PUT", "/v1/stream/__ds/subscriptions/s", JSON, json.dumps(settings).encode()
        )
        assert made.status == 201
        client.post(path, b"1", JSON)
        eventually(lambda: figures(client)("webhooks_total", outcome="failed") >= 1)
        now = figures(client)
        assert now("subscriptions_failing") == 1
        assert now("webhook_seconds_count") >= 1


def test_history(tmp_path: Path) -> None:
    far = tmp_path / "far"
    with running_server(
        memory=False,
        data=tmp_path / "data",
        seal_after_bytes=1,
        seal_after_ms=0,
        history_store=far.as_uri(),
    ) as server:
        client = Client(cast(ServerProcess, server))
        client.create(JSON, b"[1,2,3]")
        eventually(lambda: figures(client)("uploads_total") >= 1)
        eventually(lambda: figures(client)("history_files", place="object storage") >= 1)
        now = figures(client)
        assert now("sealed_files_total") >= 1
        assert now("sealed_bytes_total") == now("history_bytes", place="here")
        assert now("disk_bytes", part="segments") == now("history_bytes", place="here")
        assert now("uploaded_bytes_total") == now("history_bytes", place="object storage")
        assert now("history_store_down") == 0
        assert now("compaction_failures_total") == 0


def test_files_that_are_rewritten(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"memory": False, "data": tmp_path}
    settings |= {"seal_after_bytes": 1, "seal_after_ms": 0}
    with running_server(**settings, compact_bytes_per_second=0) as server:
        client = Client(cast(ServerProcess, server))
        path = client.create(JSON)
        for number in range(8):
            client.post(path, b"[1,2,3]", JSON)
            eventually(lambda number=number: figures(client)("sealed_files_total") > number)  # type: ignore[misc]
        assert figures(client)("compacted_files_total") == 0
    with running_server(**settings) as server:
        client = Client(cast(ServerProcess, server))
        eventually(lambda: figures(client)("compacted_files_total") == 8)
        assert figures(client)("compacted_bytes_total") == 8 * len("1,2,3,")
        eventually(lambda: figures(client)("history_files", place="here") == 1)


def test_object_storage_that_does_not_answer(tmp_path: Path) -> None:
    far = tmp_path / "far"
    with running_server(
        memory=False,
        data=tmp_path / "data",
        seal_after_bytes=1,
        seal_after_ms=0,
        history_store=far.as_uri(),
    ) as server:
        client = Client(cast(ServerProcess, server))
        eventually(lambda: (far / "catalogs").is_dir())
        # From now on nothing can be written there.
        (far / "segments").write_text("in the way")
        client.create(JSON, b"[1,2,3]")
        eventually(lambda: figures(client)("history_store_down") == 1)
        now = figures(client)
        assert now("upload_failures_total") >= 1
        assert now("history_waiting_bytes") == now("history_bytes", place="here") > 0


def test_those_who_are_turned_away() -> None:
    with running_server(requests_per_s_max=1) as server:
        answers = [httpx.get(server.stream_url("a")).status_code for _ in range(30)]
        refused = answers.count(429)
        assert refused > 0
        # The one who asks has to be let in as well.
        eventually(lambda: httpx.get(f"{server.url}/metrics").status_code == 200)
        eventually(lambda: _rate_refusals(server.url) >= refused)


def _rate_refusals(url: str) -> float:
    answer = httpx.get(f"{url}/metrics")
    if answer.status_code != 200:
        return 0
    return Figures(answer.text)("refusals_total", reason="rate")


def test_those_who_are_not_known(tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["keys", "create", "--admin", "**", "--data", str(tmp_path)])
    with running_server(memory=False, data=tmp_path) as server:
        assert httpx.get(server.stream_url("a")).status_code == 401
        assert httpx.get(f"{server.url}/metrics").status_code == 401
        assert httpx.get(f"{server.url}/openapi.json").status_code == 200
        key = {"Authorization": f"Bearer {made.stdout.strip()}"}
        now = Figures(httpx.get(f"{server.url}/metrics", headers=key).text)
        assert now("refusals_total", reason="unauthorized") == 2
