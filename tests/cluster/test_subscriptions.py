"""Subscriptions on three nodes: shared by name, woken by any node, none lost with a node."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from tests.cluster.test_layers import drain
from tests.subscriptions.api import Api
from tests.subscriptions.receiver import DONE, Receiver
from tests.support.cluster import PATIENCE_S, Cluster, until
from tests.support.postgresql import databases

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with databases() as database, Cluster(database) as cluster:
        yield cluster


@pytest.fixture
def apis(cluster: Cluster) -> Iterator[list[Api]]:
    apis = [Api(node.url) for node in cluster.nodes]
    for api in apis:
        api.http.timeout = httpx.Timeout(PATIENCE_S)
    yield apis
    for api in apis:
        api.http.close()
    for node in cluster.nodes:
        assert "Traceback" not in node.stderr, node.stderr


def owners(cluster: Cluster, names: list[str]) -> Counter[str]:
    """How many subscriptions each node has."""
    found = cluster.database.query(
        "SELECT s.name, n.address FROM subscriptions s JOIN shards h ON h.id = s.shard"
        " JOIN nodes n ON n.id = h.node_id"
    )
    by_name: dict[str, str] = dict(found)
    return Counter(by_name[name] for name in names)


def tail_of(api: Api, path: str) -> str:
    answer = api.http.head(f"/{path}")
    assert answer.status_code == 200
    return answer.headers["Stream-Next-Offset"]


def test_nodes_share_subscriptions_and_every_node_knows_all(
    cluster: Cluster, apis: list[Api]
) -> None:
    with Receiver(DONE) as receiver:
        names = [f"shared-{number:02}" for number in range(32)]
        for number, name in enumerate(names):
            config = {"type": "webhook", "webhook": {"url": receiver.url}}
            answer = apis[number % 3].put(name, pattern=f"bells/{number}/**", **config)
            assert answer.status_code == 201, answer.text
            assert apis[(number + 1) % 3].put(name, pattern="other", **config).status_code == 409
        assert len(owners(cluster, names)) == 3
        for api in apis:
            listed: list[str] = []
            while True:
                query = {"prefix": "shared-", "limit": "5", "after": listed[-1] if listed else ""}
                page = api.http.get("/__ds/subscriptions", params=query).json()
                listed += [one["id"] for one in page["subscriptions"]]
                if page["next"] is None:
                    break
                assert page["next"] == listed[-1]
            assert listed == names
            assert len({api.get(name)["created_at"] for name in names}) > 1
        for number in range(len(names)):
            apis[number % 3].create(f"bells/{number}/ring", 1)
        woken: set[str] = set()
        while len(woken) < len(names):
            woken.update(receiver.next().pending)
        assert woken == {f"bells/{number}/ring" for number in range(len(names))}
        # Whoever makes a key first, all sign with the same.
        keys = [api.http.get("/__ds/jwks.json").json() for api in apis]
        assert keys[0] == keys[1] == keys[2]
        for number, name in enumerate(names):
            path = f"/__ds/subscriptions/{name}"
            assert apis[number % 3].http.delete(path).status_code == 204
            assert apis[(number + 1) % 3].http.get(path).status_code == 404


class Ringing(threading.Thread):
    """Appends to streams through any node, each until it is acknowledged."""

    def __init__(self, cluster: Cluster, paths: list[str]) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._paths = paths
        self._end = threading.Event()
        self.count = 0

    def run(self) -> None:
        with httpx.Client(timeout=PATIENCE_S) as client:
            while not self._end.is_set():
                path = self._paths[self.count % len(self._paths)]
                try:
                    node = self._cluster.any()
                    answer = client.post(node.stream_url(path), json=[self.count], headers=JSON)
                except httpx.TransportError:
                    continue
                self.count += answer.status_code == 204

    def stop(self) -> None:
        self._end.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


def test_a_stream_that_is_named_before_it_is_made_wakes(apis: list[Api]) -> None:
    """Once, with its first message: nothing comes later that would make up for it."""
    with Receiver(DONE) as receiver:
        paths = {f"unborn-{number}" for number in range(12)}
        for number, path in enumerate(sorted(paths)):
            apis[number % 3].webhook(receiver.url, streams=[path])
        for number, path in enumerate(sorted(paths)):
            apis[(number + 1) % 3].create(path, 1)
        woken: set[str] = set()
        while woken != paths:
            woken.update(receiver.next().streams)


def test_a_wake_stream_that_holds_text_is_refused_by_every_owner(apis: list[Api]) -> None:
    apis[0].http.put("/plain-text", headers={"Content-Type": "text/plain"})
    for number in range(12):
        wake = {"type": "pull-wake", "pattern": "a", "wake_stream": "plain-text"}
        answer = apis[number % 3].put(f"unfit-{number}", **wake)
        assert (answer.status_code, "application/json" in answer.text) == (400, True), answer.text


def test_no_wake_is_lost_with_a_node(cluster: Cluster, apis: list[Api]) -> None:
    seen: dict[tuple[str, str], str] = {}
    with Receiver(DONE) as receiver:
        names = [f"kept-{number}" for number in range(9)]
        for name in names:
            config = {"type": "webhook", "webhook": {"url": receiver.url}}
            assert apis[0].put(name, pattern="towers/**", **config).status_code == 201
        paths = [f"towers/{number}" for number in range(12)]
        for path in paths:
            apis[1].create(path)
        ringing = Ringing(cluster, paths)
        ringing.start()
        until(lambda: ringing.count > 50)
        cluster.nodes[2].kill()
        rung = ringing.count
        until(lambda: len(cluster.counts()) == 2 and ringing.count > rung + 100)
        cluster.nodes[2].start()
        cluster.balanced(3)
        ringing.stop()

        def is_quiet() -> bool:
            """Whether everyone was told of everything."""
            while not receiver.received.empty():
                wake = receiver.next()
                for path, stream in wake.streams.items():
                    key = wake.body["subscription_id"], path
                    seen[key] = max(seen.get(key, ""), stream["tail_offset"])
            tails = {path: tail_of(apis[0], path) for path in paths}
            return all(seen.get((name, path)) == tails[path] for name in names for path in paths)

        until(is_quiet)
        until(lambda: all(apis[1].get(name)["streams_pending"] == 0 for name in names))
        for name in names:
            assert apis[2].http.delete(f"/__ds/subscriptions/{name}").status_code == 204


def test_workers_see_no_error_while_their_subscription_changes_hands(
    cluster: Cluster, apis: list[Api]
) -> None:
    """A worker claims, reads and acknowledges through other nodes than those that own things, and
    what it acknowledges it has read a moment ago."""
    names = [f"pulled-{number}" for number in range(4)]
    for name in names:
        config = {
            "type": "pull-wake",
            "wake_stream": f"wakes/{name}",
            "streams": [f"jobs/{name}"],
            "lease_ttl_ms": 300_000,
        }
        assert apis[0].put(name, **config).status_code == 201
        assert apis[1].put(name, **config).status_code == 200
        apis[1].create(f"jobs/{name}")
    generations: Counter[str] = Counter()
    for turn in range(12):
        if turn % 4 == 1:
            drain(cluster, cluster.nodes[turn % 3])
            drain(cluster, cluster.nodes[turn % 3], draining=False)
        for number, name in enumerate(names):
            asked = apis[(turn + number) % 3]
            apis[turn % 3].append(f"jobs/{name}", turn)
            claimed = asked.claim(name)
            generations[name] += 1
            assert claimed["generation"] == generations[name]
            newest = apis[(turn + 1) % 3].append(f"jobs/{name}", -turn)
            ack = {"stream": f"jobs/{name}", "offset": newest}
            answer = asked.proven(name, "ack", claimed, acks=[ack], done=True)
            assert answer.status_code == 200, answer.text
            assert answer.json()["next_wake"] is False
    for name in names:
        wakes = apis[0].read(f"wakes/{name}")
        assert [wake["generation"] for wake in wakes] == list(range(1, generations[name] + 1))
        assert apis[0].http.delete(f"/__ds/subscriptions/{name}").status_code == 204
