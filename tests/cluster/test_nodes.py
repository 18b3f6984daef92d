"""Three nodes on one database: whatever is asked of any of them, the answer is the same."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest

from tests.support.cluster import PATIENCE_S, Cluster, until
from tests.support.postgresql import databases
from tests.support.server import ServerProcess

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with databases() as database, Cluster(database) as cluster:
        yield cluster


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as client:
        yield client


def created(client: httpx.Client, cluster: Cluster, path: str, **headers: str) -> None:
    answer = client.put(cluster.any().stream_url(path), headers=JSON | headers)
    assert answer.status_code == 201, answer.text


def messages(client: httpx.Client, node: ServerProcess, path: str) -> Any:
    answer = client.get(node.stream_url(path), params={"offset": "-1"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def apart(client: httpx.Client, cluster: Cluster, name: str, count: int) -> list[str]:
    """Streams that have owners of their own, each another one."""
    found: dict[str, str] = {}
    for number in range(200):
        path = f"{name}-{number}"
        created(client, cluster, path)
        found.setdefault(cluster.owner_of(path).url, path)
        if len(found) == count:
            return list(found.values())
    raise AssertionError("all streams have the same owner")


def test_every_shard_has_an_owner_and_each_node_its_share(cluster: Cluster) -> None:
    status = cluster.status()
    assert {shard["owner"] for shard in status["shards"]} == {n["id"] for n in status["nodes"]}
    assert sorted(node["shards"] for node in status["nodes"]) == [10, 11, 11]
    assert all(cluster.status(node)["shards"] == status["shards"] for node in cluster.nodes)


def test_a_stream_is_the_same_through_every_node(client: httpx.Client, cluster: Cluster) -> None:
    for number in range(12):
        path = f"same-{number}"
        created(client, cluster, path)
        for n in range(3):
            answer = client.post(cluster.any().stream_url(path), json=[n], headers=JSON)
            assert answer.status_code == 204
            # Through any other node, at once.
            assert messages(client, cluster.any(), path) == list(range(n + 1))
    listings = [
        client.get(f"{node.url}/v1/streams", params={"prefix": "same-"}).json()
        for node in cluster.nodes
    ]
    assert len(listings[0]["streams"]) == 12
    assert listings[0] == listings[1] == listings[2]
    gone = cluster.any().stream_url("same-3")
    assert client.delete(gone).status_code == 204
    assert [client.get(n.stream_url("same-3")).status_code for n in cluster.nodes] == [404] * 3
    created(client, cluster, "same-3")
    assert [messages(client, node, "same-3") for node in cluster.nodes] == [[]] * 3


def test_a_fork_lives_beside_its_source(client: httpx.Client, cluster: Cluster) -> None:
    created(client, cluster, "source")
    client.post(cluster.any().stream_url("source"), json=[1, 2], headers=JSON)
    for number in range(6):
        path = f"fork-{number}"
        # That there is none is known to nobody for longer than a moment.
        assert [client.head(n.stream_url(path)).status_code for n in cluster.nodes] == [404] * 3
        created(client, cluster, path, **{"Stream-Forked-From": "/v1/stream/source"})
        assert cluster.owner_of(path) is cluster.owner_of("source")
        for node in cluster.nodes:
            assert messages(client, node, path) == [1, 2]
        client.post(cluster.any().stream_url(path), json=[number], headers=JSON)
        assert messages(client, cluster.any(), path) == [1, 2, number]


def test_live_readers_follow_through_any_node(client: httpx.Client, cluster: Cluster) -> None:
    created(client, cluster, "live")
    owner = cluster.owner_of("live")
    for node in cluster.nodes:
        url = node.stream_url("live")
        with client.stream("GET", url, params={"offset": "now", "live": "sse"}) as events:
            lines = events.iter_lines()
            assert next(lines) == "event: control"
            client.post(owner.stream_url("live"), json=[node.port], headers=JSON)
            while next(lines) != "event: data":
                pass
            assert next(lines) == f"data:[{node.port}]"


def test_groups_work_through_any_node(client: httpx.Client, cluster: Cluster) -> None:
    created(client, cluster, "work")
    for path in ("work/_groups/hands", "work/_groups/other"):
        answer = client.put(
            cluster.any().stream_url(path), json={"dead_letter": f"{path[-5:]}.dead"}
        )
        assert answer.status_code == 201, answer.text
    client.post(cluster.any().stream_url("work"), json=list(range(9)), headers=JSON)
    seen: list[int] = []
    while len(seen) < 9:
        body = {"consumer": "me", "max": 2, "wait_ms": 1000}
        answer = client.post(cluster.any().stream_url("work/_groups/hands/fetch"), json=body)
        assert answer.status_code == 200, answer.text
        receipts = [message["receipt"] for message in answer.json()["messages"]]
        seen += [message["value"] for message in answer.json()["messages"]]
        acked = client.post(
            cluster.any().stream_url("work/_groups/hands/ack"), json={"receipts": receipts}
        )
        assert acked.status_code == 200, acked.text
    assert seen == list(range(9))
    listed = [client.get(f"{node.url}/v1/groups").json() for node in cluster.nodes]
    names = [
        {(one["stream"], group["name"]) for one in each["streams"] for group in one["groups"]}
        for each in listed
    ]
    assert names == [{("work", "hands"), ("work", "other")}] * 3


def test_transactions_over_streams_of_different_owners(
    client: httpx.Client, cluster: Cluster
) -> None:
    paths = apart(client, cluster, "together", 3)
    for number in range(5):
        publish = [{"stream": path, "value": number} for path in paths]
        answer = client.post(f"{cluster.any().url}/v1/transaction", json={"publish": publish})
        assert answer.status_code == 200, answer.text
        for path in paths:
            assert messages(client, cluster.any(), path) == list(range(number + 1))
    refused = [{"stream": paths[0], "value": 9}, {"stream": "together-nowhere", "value": 9}]
    answer = client.post(f"{cluster.any().url}/v1/transaction", json={"publish": refused})
    assert answer.status_code == 409, answer.text
    assert messages(client, cluster.any(), paths[0]) == list(range(5))
    cluster.balanced()


def test_transactions_that_want_the_same_shards_do_not_get_in_each_others_way(
    client: httpx.Client, cluster: Cluster
) -> None:
    """Whole ones only, through any node, while the shards go to and fro."""
    paths = [f"pairs-{number}" for number in range(6)]
    for path in paths:
        created(client, cluster, path)

    def run(worker: int) -> list[tuple[str, list[str]]]:
        chosen, done = random.Random(worker), []
        with httpx.Client(timeout=PATIENCE_S) as own:
            for number in range(30):
                pair, value = chosen.sample(paths, 2), f"{worker}-{number}"
                publish = [{"stream": path, "value": value} for path in pair]
                url = f"{chosen.choice(cluster.nodes).url}/v1/transaction"
                answer = own.post(url, json={"publish": publish})
                assert answer.status_code == 200, answer.text
                done.append((value, sorted(pair)))
        return done

    with ThreadPoolExecutor(5) as threads:
        done = dict(one for found in threads.map(run, range(5)) for one in found)
    held: dict[str, list[str]] = {}
    for path in paths:
        for value in messages(client, cluster.any(), path):
            held.setdefault(value, []).append(path)
    assert held == done
    cluster.balanced()


def test_a_shard_is_moved_by_its_owner_only(client: httpx.Client, cluster: Cluster) -> None:
    owners = {node["id"]: node["address"] for node in cluster.status()["nodes"]}
    shard = cluster.status()["shards"][5]
    there = owners[shard["owner"]]
    to_itself = {"shard": 5, "node": shard["owner"]}
    assert client.post(f"{there}/v1/cluster/move", json=to_itself).status_code == 204
    for other in (address for address in owners.values() if address != there):
        assert client.post(f"{other}/v1/cluster/move", json=to_itself).status_code == 503
    assert cluster.status()["shards"][5] == shard
    nobody = {"shard": 5, "node": 10**6}
    assert client.post(f"{there}/v1/cluster/move", json=nobody).status_code == 503


class Hook(BaseHTTPRequestHandler):
    woken: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).woken.append(json.loads(body))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"done": true}')

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_subscription_is_woken_by_streams_of_any_owner(
    client: httpx.Client, cluster: Cluster
) -> None:
    Hook.woken = []
    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        paths = apart(client, cluster, "bells/ring", 3)
        url = f"http://127.0.0.1:{server.server_port}/"
        body = {"type": "webhook", "pattern": "bells/**", "webhook": {"url": url}}
        at = "/v1/stream/__ds/subscriptions/ears"
        answer = client.put(f"{cluster.any().url}{at}", json=body)
        assert answer.status_code == 201, answer.text
        for node in cluster.nodes:
            assert client.get(f"{node.url}{at}").status_code == 200
            listed = client.get(f"{node.url}/v1/stream/__ds/subscriptions").json()
            assert [one["id"] for one in listed["subscriptions"]] == ["ears"]
        for path in paths:
            Hook.woken.clear()
            client.post(cluster.any().stream_url(path), json=[1], headers=JSON)
            until(lambda: any(_has_pending(wake, path) for wake in [*Hook.woken]))  # noqa: B023
        assert client.delete(f"{cluster.any().url}{at}").status_code == 204
    finally:
        server.shutdown()
        server.server_close()


def _has_pending(wake: dict[str, Any], path: str) -> bool:
    return any(one["path"] == path and one["has_pending"] for one in wake["streams"])


def test_what_only_looks_like_another_node_is_a_stranger(
    client: httpx.Client, cluster: Cluster
) -> None:
    """Without the secret, what nodes tell each other is not listened to."""
    created(client, cluster, "stranger")
    headers = {"Headwater-Node": "guess", "Headwater-Hops": "99", "Headwater-For-Itself": "true"}
    for node in cluster.nodes:
        answer = client.get(node.stream_url("stranger"), headers=headers)
        assert answer.status_code == 200
        assert b"headwater-node" not in [name for name, _ in answer.headers.raw]
