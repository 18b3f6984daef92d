"""Something else answers at the address of a node: it is told nothing, and everyone is told so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from tests.support.cluster import PATIENCE_S, Cluster, until
from tests.support.postgresql import EngineDatabase, databases

JSON = {"Content-Type": "application/json"}
PRECIOUS = "Bearer hw_of_a_client"


class Stranger(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    heard: list[str]

    def do_GET(self) -> None:
        type(self).heard.append(f"{self.requestline}\n{self.headers}")
        self.send_response(200)
        self.send_header("Content-Length", "64")
        self.end_headers()
        self.wfile.write(b"0" * 64)

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def stranger() -> Iterator[str]:
    Stranger.heard = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def lead(database: EngineDatabase, there: str, instead_of: str) -> None:
    """Let a node's row say that it is somewhere else."""
    database.query(f"UPDATE nodes SET address = '{there}' WHERE address = '{instead_of}'")


@pytest.mark.slow
def test_whoever_answers_at_the_address_of_a_node_has_to_be_that_node(
    database: EngineDatabase,
) -> None:
    with (
        databases() as another,
        Cluster(another, nodes=1) as other_cluster,
        Cluster(database, nodes=2) as cluster,
        httpx.Client(timeout=PATIENCE_S) as client,
        stranger() as program,
    ):
        assert client.put(cluster.any().stream_url("mine"), headers=JSON).status_code == 201
        owner = cluster.owner_of("mine")
        (edge,) = cluster.others(owner)
        headers = JSON | {"Authorization": PRECIOUS}
        url = edge.stream_url("mine")
        assert client.post(url, json=[0], headers=headers).status_code == 204
        secret = bytes(database.query("SELECT value FROM secrets WHERE kind = 'node'")[0][0])
        before = owner.url
        for there in (program, other_cluster.nodes[0].url):
            lead(database, there, before)
            until(lambda: client.get(f"{edge.url}/v1/cluster").text.count(there) >= 1)  # noqa: B023
            answer = client.post(url, json=[1], headers=headers)
            assert answer.status_code == 503, answer.text
            assert answer.json()["error"]["code"] == "owned_elsewhere"
            assert "not_that_node" in edge.stderr
            assert there in edge.stderr
            before = there
        assert Stranger.heard
        for heard in Stranger.heard:
            assert heard.startswith("GET /v1/cluster/hello?challenge=")
            assert PRECIOUS not in heard
            assert secret.decode() not in heard
            assert "headwater-node" not in heard.lower()
        # Nothing was sent, so nothing was stored.
        lead(database, owner.url, before)
        until(lambda: client.post(url, json=[2], headers=headers).status_code == 204)
        assert client.get(url, params={"offset": "-1"}).json() == [0, 2]
