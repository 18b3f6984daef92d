"""Bodies that are passed on: each node that has one in memory counts it against its own budget."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import httpx
import pytest

from tests.http.client import JSON
from tests.http.wire import request_bytes
from tests.support.cluster import PATIENCE_S, Cluster, until
from tests.support.postgresql import databases
from tests.support.server import HOST, ServerProcess

BODY_MAX: Final = 256 * 1024
BUDGET: Final = 4 * BODY_MAX
BODY: Final = 200_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    sizes = ["--body-bytes-max", str(BODY_MAX), "--bodies-bytes-max", str(BUDGET)]
    with databases() as database, Cluster(database, *sizes, nodes=2) as cluster:
        yield cluster


class Work:
    """A stream with a group, and fetches with large bodies that wait there for messages."""

    def __init__(self, cluster: Cluster, path: str, stack: ExitStack) -> None:
        self._stack = stack
        self._path = path
        for target, body in ((path, b""), (f"{path}/_groups/g", b"{}")):
            url = cluster.any().stream_url(target)
            answer = httpx.put(url, content=body, headers=JSON, timeout=PATIENCE_S)
            assert answer.status_code == 201, answer.text
        self.owner = cluster.owner_of(path)
        (self.other,) = cluster.others(self.owner)

    def fetch(self, address: str = HOST, *, begun: bool = False) -> socket.socket:
        """Sent to the node that has to pass it on, as a whole or no more than its beginning."""
        body = json.dumps({"consumer": "m", "wait_ms": 30_000}).encode().ljust(BODY)
        place, source = (HOST, self.other.port), (address, 0)
        peer = socket.create_connection(place, timeout=PATIENCE_S, source_address=source)
        target = f"/v1/stream/{self._path}/_groups/g/fetch"
        data = request_bytes("POST", target, JSON, body)
        self._stack.enter_context(peer).sendall(data[:-BODY] + b" " if begun else data)
        return peer

    def append(self) -> None:
        url = self.owner.stream_url(self._path)
        assert httpx.post(url, json=["work"] * 9, timeout=PATIENCE_S).status_code == 204


def held(node: ServerProcess) -> float:
    """How much of bodies a node has in memory."""
    lines = httpx.get(f"{node.url}/metrics", timeout=PATIENCE_S).text.splitlines()
    return next(
        float(line.split()[1]) for line in lines if line.startswith("headwater_body_bytes ")
    )


def test_they_count_where_they_pass_and_where_they_go(cluster: Cluster) -> None:
    with ExitStack() as stack:
        work = Work(cluster, "counted", stack)
        waiting = [work.fetch() for _ in range(2)]
        until(lambda: min(held(work.owner), held(work.other)) >= 2 * BODY)
        assert max(held(work.owner), held(work.other)) <= BUDGET // 2
        # One caller gets half; that is all there is for this one, and nothing more is passed on.
        answer = work.fetch(begun=True).makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 503 "), answer
        assert b"bodies_full" in answer
        work.append()
        assert {peer.recv(12) for peer in waiting} <= {b"HTTP/1.1 200"}
        until(lambda: held(work.owner) == held(work.other) == 0)


def test_the_owner_counts_them_for_the_client(cluster: Cluster) -> None:
    """And not for the node that they came through: then one client would take the share of all."""
    with ExitStack() as stack:
        work = Work(cluster, "apart", stack)
        waiting = [work.fetch("127.0.0.2") for _ in range(2)]
        until(lambda: min(held(work.owner), held(work.other)) >= 2 * BODY)
        waiting.append(work.fetch("127.0.0.3"))
        until(lambda: min(held(work.owner), held(work.other)) >= 3 * BODY)
        work.append()
        assert {peer.recv(12) for peer in waiting} <= {b"HTTP/1.1 200"}
        until(lambda: held(work.owner) == held(work.other) == 0)
