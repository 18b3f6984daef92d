"""/metrics counts what happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest

from headwater.http.messages import Request
from headwater.http.observe.metrics import Metrics, gauge
from headwater.testing import running_server
from tests.http.client import JSON, TEXT, Client, eventually
from tests.observe.figures import Figures
from tests.support.server import ServerProcess

STREAM = "/v1/stream/{path}"
GROUP = f"{STREAM}/_groups/{{group}}"


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def client(engine: str, tmp_path: Path) -> Iterator[Client]:
    """For a server in this process, which starts in no time."""
    with running_server(memory=engine == "memory", data=tmp_path / "data") as server:
        yield Client(cast(ServerProcess, server))


def figures(client: Client) -> Figures:
    return Figures.of(client.server.url)


def test_appends_and_commits(client: Client) -> None:
    path = client.create(JSON, b"[1,2]", b"3")
    client.post(path, b"x", JSON)  # refused
    now = figures(client)
    assert now("appends_total") == 2
    assert now("appended_messages_total") == 3
    assert now("appended_bytes_total") == len(b"1,2,3,")
    assert now("commit_failures_total") == 0
    assert now("queue_bytes") == 0
    assert now("streams_in_memory") == 1
    assert now("hot_bytes") == len(b"1,2,3,")
    commits = now("commit_seconds_count")
    assert commits == 3
    assert now("commit_requests_count") == commits
    assert now("commit_requests_sum") == 3
    assert now("commit_seconds_bucket", le="+Inf") == commits


def test_the_disk(client: Client, engine: str) -> None:
    client.create(TEXT, b"data")
    now = figures(client)
    stored = engine == "sqlite"
    assert (now("disk_bytes", part="database") > 0) == stored
    assert (now("disk_bytes", part="wal") > 0) == stored
    assert (now("sync_seconds_count") > 0) == stored


def test_requests_and_errors(client: Client) -> None:
    path = client.create(TEXT, b"a")
    client.get(path)
    client.get("missing")
    client.send("HEAD", "/v1/stream/missing")
    client.send("GET", "/nowhere")
    client.send("PATCH", f"/v1/stream/{path}")
    now = figures(client)
    assert now("requests_total", method="PUT", route=STREAM, status="201") == 1
    assert now("requests_total", method="POST", route=STREAM, status="204") == 1
    assert now("requests_total", method="GET", route=STREAM, status="200") == 1
    assert now("requests_total", method="GET", route=STREAM, status="404") == 1
    assert now("requests_total", method="HEAD", route=STREAM, status="404") == 1
    assert now("requests_total", method="GET", route="other", status="404") == 1
    assert now("request_seconds_count", method="GET", route=STREAM) == 2
    assert now("errors_total", code="stream_not_found") == 1
    assert now("errors_total", code="not_found") == 1
    assert now("errors_total", code="method_not_allowed") == 1
    assert now("connections") >= 1
    assert now("connections_opened_total") >= 6


def test_what_is_no_request_is_counted_too(client: Client) -> None:
    with client.wire() as wire:
        wire.send(b"nonsense\r\n\r\n")
        assert wire.reply().status == 400
    now = figures(client)
    assert now("requests_total", method="", route="refused", status="400") == 1
    assert now("errors_total", code="malformed_http") == 1


def test_readers(client: Client) -> None:
    path = client.create(TEXT, b"a")
    client.get(path)
    with client.events(path) as events, client.long_poll(path, "offset=now") as poll:
        now = figures(client)
        assert now("readers", kind="sse") == 1
        assert now("readers", kind="long-poll") == 1
        client.post(path, b"b", TEXT)
        assert poll.reply().status == 200
        while (event := events.next()) is not None and event.data != "b":
            pass
        eventually(lambda: figures(client)("delivery_seconds_count") == 1)
    eventually(lambda: figures(client)("readers", kind="sse") == 0)
    now = figures(client)
    assert now("readers", kind="long-poll") == 0
    assert [now("reads_total", kind=kind) for kind in ("catch-up", "long-poll", "sse")] == [1, 1, 1]
    assert now("events_total") == 2
    assert now("event_bytes_total") > 0
    # They took as long as nothing happened, which says nothing about the server.
    assert now("request_seconds_count", method="GET", route=STREAM) == 1
    assert now("requests_total", method="GET", route=STREAM, status="200") == 3


def test_groups(client: Client) -> None:
    path = client.create(JSON, b"[1,2,3,4]")
    group = f"/v1/stream/{path}/_groups/g"
    client.send("PUT", group, JSON, b'{"dead_letter": "dead"}')

    def act(action: str, **body: object) -> dict[str, list[dict[str, str]]]:
        reply = client.send("POST", f"{group}/{action}", JSON, json.dumps(body).encode())
        assert reply.status == 200
        answer: dict[str, list[dict[str, str]]] = json.loads(reply.body)
        return answer

    receipts = [m["receipt"] for m in act("fetch", consumer="ann", max=4)["messages"]]
    now = figures(client)
    assert (now("group_in_flight"), now("group_deliveries_total")) == (4, 4)
    assert (now("groups_in_memory"), now("group_lag_messages")) == (1, 4)
    act("ack", receipts=receipts[:1])
    act("nack", receipts=receipts[1:2])
    act("reject", receipts=receipts[2:3])
    client.send(
        "POST",
        "/v1/transaction",
        JSON,
        json.dumps({"ack": {"stream": path, "group": "g", "receipts": receipts[3:]}}).encode(),
    )
    act("fetch", consumer="ann")
    eventually(lambda: figures(client)("group_dead_letters_total") == 1)
    now = figures(client)
    outcomes = ("acked", "nacked", "rejected", "extended")
    assert [now("group_settled_total", outcome=o) for o in outcomes] == [2, 1, 1, 0]
    assert (now("group_deliveries_total"), now("group_redeliveries_total")) == (5, 1)
    assert (now("group_in_flight"), now("group_outstanding")) == (1, 1)
    assert now("requests_total", method="POST", route=f"{GROUP}/fetch", status="200") == 2
    assert now("requests_total", method="POST", route=f"{GROUP}/ack", status="200") == 1


def test_the_process_and_the_build(client: Client, engine: str) -> None:
    now = figures(client)
    assert now.samples["process_open_fds", frozenset()] > 0
    assert now.samples["process_resident_memory_bytes", frozenset()] > 0
    (build,) = now.families["headwater_build_info"].samples
    assert build.labels["engine"] == engine


def test_those_who_ask_for_openmetrics_get_it(server: ServerProcess) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = httpx.get(f"{server.url}/metrics", headers=accept)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_servers_in_one_process_have_their_own_figures() -> None:
    with running_server() as one, running_server() as other:
        httpx.put(one.stream_url("a"), content=b"x")
        assert Figures.of(one.url)("appends_total") == 1
        assert Figures.of(other.url)("appends_total") == 0


async def test_a_subsystem_adds_its_own_figures() -> None:
    metrics = Metrics()
    fetched: list[int] = []

    async def prepare() -> None:
        fetched.append(41 + len(fetched))

    metrics.add(lambda: [gauge("kettles", "Kettles that boil.", fetched[-1])], prepare)
    for expected in (41, 42):
        answer = await metrics.handle(Request("GET", b"/metrics", b"", {}))
        assert isinstance(answer.body, bytes)
        assert f"headwater_kettles {expected}.0" in answer.body.decode()
