"""Quotas are for the whole cluster, whichever nodes are asked."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from tests.support.cluster import PATIENCE_S, Cluster, until
from tests.support.postgresql import databases

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
STREAMS, BYTES, PRODUCERS = 6, 3_000, 4
QUOTAS = f"t/*: streams={STREAMS} bytes={BYTES} producers={PRODUCERS}; big: bytes=1000000"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with databases() as database, Cluster(database, "--quotas", QUOTAS) as cluster:
        yield cluster
        for node in cluster.nodes:
            assert "Traceback" not in node.stderr, node.stderr


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as client:
        yield client


def refused(answer: httpx.Response) -> bool:
    assert answer.status_code in (200, 201, 204, 403), answer.text
    if answer.status_code != 403:
        return False
    assert answer.json()["error"]["code"] == "quota_exceeded"
    return True


def test_one_after_the_other_finds_the_limit_exactly(
    client: httpx.Client, cluster: Cluster
) -> None:
    def put(number: int) -> bool:
        url = cluster.any().stream_url(f"t/exact/{number}")
        return not refused(client.put(url, headers=TEXT))

    assert [put(number) for number in range(STREAMS + 3)] == [True] * STREAMS + [False] * 3
    # What is deleted makes room, through any node.
    for number in range(3):
        assert client.delete(cluster.any().stream_url(f"t/exact/{number}")).status_code == 204
        until(partial(put, number))
        assert not put(99)
    held = 0
    while True:
        number = cluster.random.randrange(STREAMS)
        body = b"x" * cluster.random.randint(1, 200)
        url = cluster.any().stream_url(f"t/exact/{number}")
        if refused(client.post(url, content=body, headers=TEXT)):
            assert held + len(body) > BYTES
            break
        held += len(body)
        assert held <= BYTES
    # Others have accounts of their own.
    assert client.put(cluster.any().stream_url("t/other/1"), headers=TEXT).status_code == 201


def test_producers_of_all_nodes_are_counted(client: httpx.Client, cluster: Cluster) -> None:
    known = 0
    for number in range(2):
        client.put(cluster.any().stream_url(f"t/known/{number}"), headers=JSON)
    for number in range(PRODUCERS + 2):
        stamp = {"Producer-Id": f"p{number}", "Producer-Epoch": "0", "Producer-Seq": "0"}
        url = cluster.any().stream_url(f"t/known/{number % 2}")
        known += not refused(client.post(url, json=[1], headers=JSON | stamp))
    assert known == PRODUCERS


def test_at_the_same_moment_no_node_goes_beyond_by_itself(cluster: Cluster) -> None:
    def put(number: int) -> bool:
        node = random.Random(number).choice(cluster.nodes)
        with httpx.Client(timeout=PATIENCE_S) as own:
            return not refused(own.put(node.stream_url(f"t/rush/{number}"), headers=TEXT))

    with ThreadPoolExecutor(8) as threads:
        made = sum(threads.map(put, range(30)))
    # A node cannot know what the others are about to commit. Afterwards it does.
    assert STREAMS <= made <= STREAMS * len(cluster.nodes)
    assert not any(put(number) for number in range(100, 103))


def test_a_stream_far_from_its_limit_is_written_without_counting_each_time(
    client: httpx.Client, cluster: Cluster
) -> None:
    client.put(cluster.any().stream_url("big"), headers=TEXT)
    for _ in range(50):
        assert not refused(
            client.post(cluster.any().stream_url("big"), content=b"x" * 100, headers=TEXT)
        )
    whole = client.post(cluster.any().stream_url("big"), content=b"x" * 999_999, headers=TEXT)
    assert refused(whole)


def test_a_transaction_is_refused_as_a_whole(client: httpx.Client, cluster: Cluster) -> None:
    for path in ("t/one/a", "t/two/a"):
        assert client.put(cluster.any().stream_url(path), headers=JSON).status_code == 201
    publish = [
        {"stream": "t/one/a", "value": 1},
        {"stream": "t/two/a", "value": "x" * BYTES},
    ]
    answer = client.post(f"{cluster.any().url}/v1/transaction", json={"publish": publish})
    assert refused(answer), answer.text
    assert client.get(cluster.any().stream_url("t/one/a")).json() == []
