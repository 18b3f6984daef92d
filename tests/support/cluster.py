"""Several nodes on one PostgreSQL database, and a gateway that takes a random one for each request.

with Cluster(database) as cluster:
    httpx.put(cluster.any().stream_url("orders"))
    cluster.nodes[0].kill()
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import httpx

from tests.support.postgresql import EngineDatabase
from tests.support.server import HOST, ServerProcess, free_port

# Long enough for a busy machine: a node that is delayed for a whole lease is considered gone.
LEASE_MS: Final = 6_000
SHORT_LEASE_MS: Final = 3_000
"""For tests that have to wait for a lease to end."""
PATIENCE_S: Final = 120.0


class Cluster:
    def __init__(
        self,
        database: EngineDatabase,
        *arguments: str,
        nodes: int = 3,
        lease_ms: int = LEASE_MS,
        headers: dict[str, str] | None = None,
        labels: Sequence[str] = (),
    ) -> None:
        self.database = database
        self.headers = headers or {}
        """Headers for requests about the state of the cluster."""
        self.random = random.Random(7)
        self.nodes = [self._node(lease_ms, arguments) for _ in range(nodes)]
        for node, label in zip(self.nodes, labels, strict=False):
            node.args += ("--label", label)
        self._stack = ExitStack()

    def _node(self, lease_ms: int, arguments: tuple[str, ...]) -> ServerProcess:
        port = free_port()
        address = f"http://{HOST}:{port}"
        place = ["--engine", self.database.url, "--advertise", address]
        return ServerProcess(*place, "--engine-lease-ms", str(lease_ms), *arguments, port=port)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for node in self.nodes:
                stack.push(node)
            # At the same time, as a supervisor would.
            with ThreadPoolExecutor() as threads:
                for started in [threads.submit(node.start) for node in self.nodes]:
                    started.result()
            self.balanced()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            for number, node in enumerate(self.nodes):
                print(f"--- node {number} ---\n{node.stderr[-4000:]}")
        self._stack.close()

    # ── State ────────────────────────────────────────────────────────────────────────────────

    @property
    def running(self) -> list[ServerProcess]:
        return [node for node in self.nodes if node.is_running]

    def any(self) -> ServerProcess:
        return self.random.choice(self.running)

    def status(self, node: ServerProcess | None = None) -> dict[str, Any]:
        url = f"{(node or self.running[0]).url}/v1/cluster"
        answer = httpx.get(url, timeout=PATIENCE_S, headers=self.headers)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def counts(self) -> dict[str, int]:
        """How many shards each node owns, by address."""
        return {node["address"]: node["shards"] for node in self.status()["nodes"]}

    def balanced(self, wanted: int | None = None) -> None:
        """Wait until all running nodes have their share."""
        wanted = len(self.running) if wanted is None else wanted

        def is_balanced() -> bool:
            counts = list(self.counts().values())
            even = len(counts) == wanted and max(counts) - min(counts) <= 1
            return even and sum(counts) == len(self.status()["shards"])

        until(is_balanced)

    def owner_of(self, path: str) -> ServerProcess:
        """The node that owns a stream."""
        sql = (
            "SELECT n.address FROM streams s JOIN shards h ON h.id = s.shard"
            f" JOIN nodes n ON n.id = h.node_id WHERE s.path = '{path}' AND s.status < 2"
        )
        found: list[tuple[str]] = []

        def has_one() -> bool:
            found[:] = self.database.query(sql)
            return bool(found)

        # While its shard changes hands it has none.
        until(has_one)
        return next(node for node in self.nodes if node.url == found[0][0])

    def others(self, node: ServerProcess) -> list[ServerProcess]:
        return [other for other in self.running if other is not node]


def until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        with suppress(httpx.TransportError):
            if condition():
                return
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


class Gateway:
    """Forwards each request to a node chosen at random."""

    def __init__(self, ports: list[int], seed: int = 11) -> None:
        self._ports = ports
        self._random = random.Random(seed)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._ready = threading.Event()
        self._end: Callable[[], object] = lambda: None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.requests = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        self._thread.join(PATIENCE_S)

    async def _main(self) -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        self._end = lambda: loop.call_soon_threadsafe(end.set)
        server = await asyncio.start_server(self._serve, HOST, 0, limit=2**20)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await end.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one request, marked as the last one: the next comes on a new connection."""
        back = sending = None
        with suppress(OSError, EOFError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            lines, options = _without_connection(head[:-4].split(b"\r\n"))
            there, back = await asyncio.open_connection(HOST, self._random.choice(self._ports))
            last = b"Connection: " + b", ".join([*options, b"close"])
            back.write(b"\r\n".join([*lines, last]) + b"\r\n\r\n")
            sending = asyncio.ensure_future(_pipe(reader, back))
            # If the client hangs up, hang up on the node too.
            sending.add_done_callback(partial(_hang_up, back))
            await _pipe(there, writer)
        if sending is not None:
            sending.cancel()
        if back is not None:
            back.close()
        writer.close()


def _without_connection(lines: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """The lines of a head that are not about its connection, and the connection options."""
    kept, options = [], []
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"connection":
            given = [one.strip() for one in value.split(b",")]
            options += [one for one in given if one.lower() not in (b"", b"close", b"keep-alive")]
        elif name.lower() != b"keep-alive":
            kept.append(line)
    return kept, options


def _hang_up(writer: asyncio.StreamWriter, _: asyncio.Future[None]) -> None:
    writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
