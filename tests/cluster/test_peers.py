"""A node that talks nonsense: half answers, endless ones, slow ones. Nobody believes it, nobody is
kept from anything else, and whoever asked is told."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import chain, count, repeat
from pathlib import Path
from time import sleep
from typing import Final, Self

import httpx

from headwater.core.peers import proof
from tests.cluster.test_strangers import lead
from tests.support.cluster import PATIENCE_S, Cluster, until
from tests.support.postgresql import EngineDatabase
from tests.support.server import HOST, ServerProcess

JSON: Final = {"Content-Type": "application/json"}
# Nobody is to be taken for gone here, however busy the machine is.
LEASE_MS: Final = 10_000
MORE_MEMORY_KB_MAX: Final = 200_000
_OK: Final = b"HTTP/1.1 200 OK\r\n"
_CHUNKED: Final = _OK + b"Transfer-Encoding: chunked\r\n"
_FEED: Final = _CHUNKED + b"Content-Type: application/vnd.headwater.feed\r\n\r\n"
_BULK: Final = b"x" * 65_536

# What is said, until it is hung up on.
NONSENSE: Final[dict[str, Callable[[], Iterator[bytes]]]] = {
    "noise": lambda: iter([b"\x00\xff\r" * 1000 + b"\r\n\r\n"]),
    "half": lambda: iter([_OK + b"Content-Length: 100\r\n\r\n[1"]),
    "half-chunk": lambda: iter([_CHUNKED + b"\r\n5\r\n[1"]),
    "half-chunks": lambda: iter([_CHUNKED + b"\r\n2\r\n[1\r\n"]),
    "less-than-nothing": lambda: iter([_OK + b"Content-Length: -9\r\n\r\n[1]"]),
    "chunk-of-less-than-nothing": lambda: chain([_CHUNKED + b"\r\n-6\r\n"], repeat(_BULK)),
    "no-status": lambda: iter([b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n"]),
    "not-yet": lambda: iter([b"HTTP/1.1 100 Continue\r\n\r\n"]),
    "endless": lambda: chain([_OK + b"Content-Length: 99999999999\r\n\r\n"], repeat(_BULK)),
    "endless-head": lambda: chain([_OK], repeat(b"x: " + _BULK[:1000] + b"\r\n")),
    "endless-chunk": lambda: chain([_CHUNKED + b"\r\nfffffffff\r\n"], repeat(_BULK)),
    "no-chunks": lambda: chain([_CHUNKED + b"\r\n"], repeat(_BULK)),
    "nothing": lambda: iter([]),
}
# To those who ask for a feed.
FEEDS: Final[dict[str, Callable[[], Iterator[bytes]]]] = {
    "feed-noise": lambda: chain([_FEED], repeat(b"6\r\n\xff\xff\xff\xff\xff\xff\r\n")),
    "feed-less-than-nothing": lambda: chain([_FEED], repeat(b"3\r\n-3\n\r\n")),
    "feed-endless": lambda: chain([_FEED, b"c\r\n99999999999\n\r\n"], repeat(b"2\r\nxx\r\n")),
}


class BadPeer:
    """Proves that it is a node, if it can, and then does as the path of a stream says."""

    def __init__(self, secret: bytes, node_id: int, hello: str | None = None) -> None:
        self._secret = secret
        self._node_id = node_id
        self._hello = hello
        self._socket = socket.create_server((HOST, 0), backlog=100)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        self._is_over = False
        self.misled = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError):
            connection.settimeout(PATIENCE_S)
            while not self._is_over and self._answer(connection, _head_of(connection)):
                pass

    def _answer(self, connection: socket.socket, head: bytes) -> bool:
        """Whether it may be asked something else."""
        challenge = re.match(rb"GET /v1/cluster/hello\?challenge=(\w+) ", head)
        if challenge is not None and self._hello is None:
            made = proof(self._secret, challenge[1], self._node_id)
            connection.sendall(_OK + b"Content-Length: %d\r\n\r\n%b" % (len(made), made))
            return True
        self.misled += 1
        named = re.match(rb"\w+ /v1/(?:stream/|cluster/feed\?stream=)([\w-]+)", head)
        name = self._hello or (named[1].decode().partition("--")[0] if named else "nothing")
        if name == "slow":
            for byte in _OK + b"Content-Length: 3\r\n\r\n[7]":
                connection.sendall(bytes([byte]))
                sleep(0.05)
            return True
        live = b"live=true" in head
        for part in (FEEDS if live and name in FEEDS else NONSENSE).get(name, lambda: iter([]))():
            if self._is_over:
                return False
            connection.sendall(part)
        return False


def _head_of(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65_536) or _gone()
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    while length and len(body) < int(length[1]):
        body += connection.recv(65_536) or _gone()
    return head


def _gone() -> bytes:
    raise ConnectionResetError


def _stream_of(client: httpx.Client, cluster: Cluster, owner: ServerProcess, name: str) -> str:
    """Make a stream that a node owns, with a name that says what is to happen."""
    for number in count():
        path = f"{name}--{number}"
        answer = client.put(owner.stream_url(path), json=[0], headers=JSON)
        assert answer.status_code == 201, answer.text
        if cluster.owner_of(path) is owner:
            return path
    raise AssertionError


def _memory_kb(node: ServerProcess) -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{node.pid}/status").read_text())
    assert found is not None
    return int(found[1])


def test_a_node_that_talks_nonsense(database: EngineDatabase) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(database, nodes=3, lease_ms=LEASE_MS))
        client = stack.enter_context(httpx.Client(timeout=PATIENCE_S))
        edge, owner, other = cluster.nodes
        paths = {
            name: _stream_of(client, cluster, owner, name) for name in (*NONSENSE, *FEEDS, "slow")
        }
        own = _stream_of(client, cluster, edge, "own")
        strange = _stream_of(client, cluster, other, "strange")
        memory_kb = _memory_kb(edge)
        secret = bytes(database.query("SELECT value FROM secrets WHERE kind = 'node'")[0][0])
        ids = {
            address: number for number, address in database.query("SELECT id, address FROM nodes")
        }
        bad = stack.enter_context(BadPeer(secret, ids[owner.url]))
        stranger = stack.enter_context(
            BadPeer(b"?", ids[other.url], hello="chunk-of-less-than-nothing")
        )
        lead(database, bad.url, owner.url)
        lead(database, stranger.url, other.url)
        until(lambda: _misled(client, edge, bad.url, stranger.url))

        def ask(path: str) -> httpx.Response:
            live = {"live": "sse"} if path.startswith("feed-") else {}
            params = {"offset": "-1", **live}
            return httpx.get(edge.stream_url(path), params=params, timeout=PATIENCE_S)

        with ThreadPoolExecutor(len(paths) + 1) as threads:
            # These are tried again and again, so not all of them.
            reads = ("half", "half-chunks", "endless", *FEEDS, "slow")
            asked = {name: threads.submit(ask, paths[name]) for name in reads}
            asked["strange"] = threads.submit(ask, strange)
            # Whoever sends what may not be sent twice is told at once that nobody knows.
            for name in NONSENSE:
                answer = client.post(edge.stream_url(paths[name]), json=[1], headers=JSON)
                assert (answer.status_code, _code(answer)) == (503, "outcome_unknown"), name
            # And nobody else is kept waiting.
            assert client.post(edge.stream_url(own), json=[1], headers=JSON).status_code == 204
            answers = {name: answer.result(PATIENCE_S) for name, answer in asked.items()}
        slow = answers.pop("slow")
        assert (slow.status_code, slow.json()) == (200, [7])
        for name, answer in answers.items():
            assert (answer.status_code, _code(answer)) == (503, "owned_elsewhere"), name
        assert _memory_kb(edge) - memory_kb < MORE_MEMORY_KB_MAX
        assert bad.misled > len(NONSENSE)
        assert stranger.misled
        assert "Traceback" not in edge.stderr
        assert edge.stderr.count("not_that_node") < 3

        lead(database, owner.url, bad.url)
        lead(database, other.url, stranger.url)
        until(lambda: client.get(edge.stream_url(strange)).status_code == 200)
        for path in (*paths.values(), strange):
            until(lambda: client.get(edge.stream_url(path)).status_code == 200)  # noqa: B023
            found = client.get(edge.stream_url(path), params={"offset": "-1"})
            assert found.json() == [0], path


def _misled(client: httpx.Client, node: ServerProcess, *where: str) -> bool:
    seen = client.get(f"{node.url}/v1/cluster").text
    return all(address in seen for address in where)


def _code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])
