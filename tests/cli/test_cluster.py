"""`headwater cluster`: nodes that share a database, at a prompt."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.cluster import Cluster, until
from tests.support.postgresql import EngineDatabase
from tests.support.server import ServerProcess


def headwater(*arguments: str, url: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "headwater",
            "cluster",
            *arguments,
            *(["--url", url] if url else []),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_cluster_at_a_prompt(database: EngineDatabase) -> None:
    made = headwater("init", database.url, "--shards", "5")
    assert made.returncode == 0, made.stderr
    assert "5 shards, before 32" in made.stderr
    try:
        with Cluster(database, nodes=2) as cluster:
            url = cluster.nodes[0].url
            refused = headwater("init", database.url)
            assert refused.returncode == 1
            assert "in use by a node" in refused.stderr
            shown = headwater("status", url=url)
            assert shown.returncode == 0, shown.stderr
            assert all(node.url in shown.stdout for node in cluster.nodes)
            lines = headwater("status", "--json", url=url).stdout.splitlines()
            assert sorted(json.loads(line)["shards"] for line in lines) == [2, 3]
            drained = headwater("drain", cluster.nodes[1].url, url=url)
            assert drained.returncode == 0, drained.stderr
            until(lambda: cluster.counts()[cluster.nodes[1].url] == 0)
            assert headwater("drain", cluster.nodes[1].url, "--undo", url=url).returncode == 0
            cluster.balanced()
            assert headwater("drain", "99", url=url).returncode == 3
    finally:
        assert headwater("init", database.url, "--shards", "32").returncode == 0


def test_a_server_that_is_alone(server: ServerProcess) -> None:
    shown = headwater("status", url=server.url)
    assert shown.returncode == 1
    assert "not part of a cluster" in shown.stderr
