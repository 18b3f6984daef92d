"""Who may do what is the same through every node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx

from tests.support.cluster import PATIENCE_S, Cluster
from tests.support.postgresql import EngineDatabase

JSON = {"Content-Type": "application/json"}


def key(file: Path, *grants: str) -> dict[str, str]:
    made = subprocess.run(
        [sys.executable, "-m", "headwater", "keys", "create", "--keys-file", str(file), *grants],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return {"Authorization": f"Bearer {made.stdout.strip()}"}


def test_a_key_is_good_for_the_same_through_every_node(
    database: EngineDatabase, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    admin = key(file, "--admin", "**")
    writer = key(file, "--write", "mine/**", "--read", "mine/**")
    options = ["--access", "on", "--keys-file", str(file)]
    options += ["--signing-secret-file", str(tmp_path / "secret")]
    with (
        Cluster(database, *options, nodes=2, headers=admin) as cluster,
        httpx.Client(timeout=PATIENCE_S) as client,
    ):
        for number in range(6):
            path = f"mine/{number}"
            made = client.put(cluster.any().stream_url(path), headers=JSON | writer)
            assert made.status_code == 201, made.text
            for node in cluster.nodes:
                url = node.stream_url(path)
                assert client.post(url, json=[1], headers=JSON | writer).status_code == 204
                assert client.get(url, headers=writer).status_code == 200
                # Not even to look, without a key; and not to delete, with this one.
                assert client.get(url).status_code == 401
                assert client.delete(url, headers=writer).status_code == 403
                forged = {"Headwater-Node": "x", "Headwater-For-Itself": "true"}
                assert client.get(url, headers=forged).status_code == 401
                # What an address is signed with at one node, all of them know.
                body = {"stream": path, "expires_s": 60}
                signed = client.post(f"{node.url}/v1/presign", json=body, headers=writer).json()
                for other in cluster.nodes:
                    there = client.get(f"{other.url}{httpx.URL(signed['url']).raw_path.decode()}")
                    assert there.status_code == 200, there.text
            others = client.put(cluster.any().stream_url(f"yours/{number}"), headers=JSON | writer)
            assert others.status_code == 403
