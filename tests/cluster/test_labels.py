"""Prefixes that are bound to nodes with a label."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest

from headwater.store.engine import CannotOpen
from headwater.store.postgresql.bindings import bind
from headwater.store.postgresql.database import Database
from tests.support.cluster import PATIENCE_S, Cluster, until
from tests.support.postgresql import EngineDatabase

JSON = {"Content-Type": "application/json"}


def headwater(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater", "cluster", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_streams_below_a_prefix_are_owned_where_they_belong(database: EngineDatabase) -> None:
    labels = ["region=eu", "region=us,tier=gold"]
    with (
        Cluster(database, labels=labels) as cluster,
        httpx.Client(timeout=PATIENCE_S) as client,
    ):
        before = "eu/from-before"
        assert client.put(cluster.any().stream_url(before), headers=JSON).status_code == 201
        made = headwater("bind", "eu/", "region=eu", "--engine", database.url)
        assert made.returncode == 0, made.stderr
        assert "new streams below eu/ are for nodes with region=eu, which have 8 shards" in (
            made.stderr
        )
        european = cluster.nodes[0]

        def is_moved() -> bool:
            status = cluster.status()
            own = {n["address"]: n["id"] for n in status["nodes"]}[european.url]
            owners = {s["owner"] for s in status["shards"] if s["label"] == "region=eu"}
            return status["bindings"] == [{"prefix": "eu", "label": "region=eu"}] and owners == {
                own
            }

        until(is_moved)
        # The others make up for it: everyone has a share of about the same size.
        cluster.balanced()
        for number in range(12):
            for path in (f"eu/{number}", f"europe/{number}"):
                answer = client.put(cluster.any().stream_url(path), headers=JSON)
                assert answer.status_code == 201, answer.text
            until(lambda: cluster.owner_of(f"eu/{number}") is european)  # noqa: B023
        assert {cluster.owner_of(f"europe/{n}").url for n in range(12)} > {european.url}
        shown = headwater("status", "--url", european.url)
        assert "region=us, tier=gold" in shown.stdout
        assert "eu/ is bound to region=eu, which has 8 shards" in shown.stderr
        # While no such node lives, the others serve its streams, with everything in them.
        assert client.post(european.stream_url("eu/1"), json=[1], headers=JSON).status_code == 204
        european.kill()
        rest = cluster.others(european)
        # Whoever asks before that node is known to be gone may hear that nobody knows what became
        # of it.
        url = rest[0].stream_url("eu/1")
        until(lambda: client.post(url, json=[2], headers=JSON).status_code == 204)
        assert client.put(rest[1].stream_url("eu/new"), headers=JSON).status_code == 201
        european.start()
        until(is_moved)
        assert client.get(rest[1].stream_url("eu/1")).json() == [1, 2]
        until(lambda: cluster.owner_of("eu/new") is european)
        gone = headwater("unbind", "eu", "--engine", database.url)
        assert gone.returncode == 0, gone.stderr
        assert headwater("unbind", "eu", "--engine", database.url).returncode == 3
        until(lambda: not any(s["label"] for s in cluster.status()["shards"]))
        for path in (before, "eu/1"):
            assert client.get(cluster.any().stream_url(path)).status_code == 200


@pytest.mark.parametrize("arguments", [("eu", "europe"), ("e u", "a=b"), ("eu", "a=b,c=d")])
def test_what_cannot_be_bound(arguments: tuple[str, str], database: EngineDatabase) -> None:
    refused = headwater("bind", *arguments, "--engine", database.url)
    assert refused.returncode == 2, refused.stderr
    assert "Traceback" not in refused.stderr


def test_there_are_only_so_many_shards(database: EngineDatabase) -> None:
    Database(database.url).divide(4)
    try:
        _label(database)
    finally:
        database.query("DELETE FROM bindings")
        Database(database.url).divide(32)


def _label(database: EngineDatabase) -> None:
    assert bind(database.url, "a", "x=1") == 1
    assert bind(database.url, "b", "x=1") == 1
    assert bind(database.url, "c", "x=2", 2) == 2
    with pytest.raises(CannotOpen, match="only 0 shards for x=3"):
        bind(database.url, "d", "x=3")
    with pytest.raises(CannotOpen, match="unbind them first"):
        Database(database.url).divide(8)
    # Bound anew: nothing has the former label any more.
    assert bind(database.url, "c", "x=1") == 1
    assert bind(database.url, "d", "x=3", 2) == 2
