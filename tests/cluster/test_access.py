"""Who may do what is the same through every node."""

from __future__ import annotations

import subprocess
import sys

import httpx

from tests.support.cluster import PATIENCE_S, Cluster, until
from tests.support.postgresql import EngineDatabase

JSON = {"Content-Type": "application/json"}


def keys(database: EngineDatabase, *arguments: str) -> str:
    made = subprocess.run(
        [sys.executable, "-m", "headwater", "keys", *arguments, "--engine", database.url],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return made.stdout.strip()


def key(database: EngineDatabase, *grants: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {keys(database, 'create', *grants)}"}


def test_a_key_is_good_for_the_same_through_every_node(database: EngineDatabase) -> None:
    """Keys are in the database, from before the first node was started."""
    admin = key(database, "--admin", "**")
    writer = key(database, "--write", "mine/**", "--read", "mine/**")
    with (
        # That there are keys is enough: every node asks for one.
        Cluster(database, nodes=2, headers=admin) as cluster,
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
        # A key that is made or revoked while they run.
        late = key(database, "--read", "mine/**", "--name", "late")
        urls = [node.stream_url("mine/0") for node in cluster.nodes]
        until(lambda: all(client.get(url, headers=late).status_code == 200 for url in urls))
        assert " late " in keys(database, "ls")
        keys(database, "revoke", late["Authorization"].split("_")[1])
        until(lambda: all(client.get(url, headers=late).status_code == 401 for url in urls))
        assert {client.get(url, headers=writer).status_code for url in urls} == {200}
