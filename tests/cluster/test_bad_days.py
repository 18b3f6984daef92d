"""Bad days of single nodes: cut off from PostgreSQL or others, given a wrong address or time."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import headwater
from tests.cluster.proxy import BOTH, Proxy
from tests.crash.faults import Clock
from tests.support.postgresql import EngineDatabase
from tests.support.server import ServerFailedError, ServerProcess

LEASE_MS = 4_000
PATIENCE_S = 180
TEXT = {"Content-Type": "text/plain"}
STREAMS = [f"s{number}" for number in range(12)]


class Pair:
    """A node with proxies on its ways to PostgreSQL and from its peers, and one without."""

    def __init__(self, database: EngineDatabase) -> None:
        port = urlsplit(database.url).port
        assert port is not None
        self.to_postgresql = Proxy(port)
        self.clock = Clock()
        self.cut_off = ServerProcess(env=self.clock.environment)
        self.from_peers = Proxy(self.cut_off.port)
        self.other = ServerProcess()
        # One that is cut off notices when it usually does.
        through = database.url.partition("?")[0].replace(
            f":{port}/", f":{self.to_postgresql.port}/"
        )
        self.cut_off.args = _arguments(through, self.from_peers.port)
        self.other.args = _arguments(database.url, self.other.port)
        self.client = httpx.AsyncClient(timeout=PATIENCE_S)

    async def start(self) -> None:
        for proxy in (self.to_postgresql, self.from_peers):
            await proxy.start()
        for node in (self.cut_off, self.other):
            await asyncio.to_thread(node.start)
        await until(self.is_balanced)
        for stream in STREAMS:
            answer = await self.client.put(self.cut_off.stream_url(stream), headers=TEXT)
            assert answer.status_code == 201, answer.text

    async def stop(self) -> None:
        await self.client.aclose()
        for node in (self.cut_off, self.other):
            if node._process is not None:
                node.kill()
            print(f"--- {node.url} ---\n{node.stderr[-3_000:]}")
        for proxy in (self.to_postgresql, self.from_peers):
            await proxy.stop()
        self.clock.close()

    async def shards(self) -> list[int]:
        """How many shards each node has, as the one without trouble sees it."""
        answer = await self.client.get(f"{self.other.url}/v1/cluster")
        return sorted(node["shards"] for node in answer.json()["nodes"])

    async def is_balanced(self) -> bool:
        return await self.shards() == [16, 16]

    async def append(self, node: ServerProcess, stream: str, body: bytes) -> httpx.Response:
        return await self.client.post(node.stream_url(stream), headers=TEXT, content=body)


def _arguments(url: str, advertised: int) -> tuple[str, ...]:
    return (
        *("--engine", url, "--engine-lease-ms", str(LEASE_MS), "--log-level", "warning"),
        *("--advertise", f"http://127.0.0.1:{advertised}"),
    )


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(httpx.TransportError):
                if await condition():
                    return
            await asyncio.sleep(0.05)


@pytest.fixture
async def pair(database: EngineDatabase) -> AsyncIterator[Pair]:
    pair = Pair(database)
    try:
        await pair.start()
        yield pair
    finally:
        await pair.stop()


async def test_a_node_that_loses_only_postgresql(pair: Pair) -> None:
    pair.to_postgresql.cut(BOTH)

    async def taken_over() -> bool:
        return await pair.shards() == [32]

    await until(taken_over)
    for stream in STREAMS:
        assert (await pair.append(pair.other, stream, b"1")).status_code == 204
    # Not what it remembers: that there is nothing.
    answers = await asyncio.gather(
        *(pair.client.get(pair.cut_off.stream_url(stream)) for stream in STREAMS)
    )
    assert {answer.status_code for answer in answers} == {503}
    assert (await pair.client.get(f"{pair.cut_off.url}/healthz")).status_code == 200
    pair.to_postgresql.reset()
    pair.to_postgresql.heal()

    async def back() -> bool:
        if not pair.cut_off.is_running:
            # As its supervisor would.
            pair.cut_off.kill()
            await asyncio.to_thread(pair.cut_off.start)
        # It has a share as soon as it has joined, and listens a moment later.
        ready = await pair.client.get(f"{pair.cut_off.url}/readyz")
        return await pair.is_balanced() and ready.status_code == 200

    await until(back)
    for stream in STREAMS:
        assert (await pair.append(pair.cut_off, stream, b"2")).status_code == 204
        assert (await pair.client.get(pair.cut_off.stream_url(stream))).content == b"12"


async def test_a_node_that_loses_only_its_peers(pair: Pair) -> None:
    for stream in STREAMS:
        # So that there are connections, which nobody ends.
        assert (await pair.client.get(pair.other.stream_url(stream))).status_code == 200
    pair.from_peers.cut(BOTH)
    await until(pair.is_balanced)
    # It reaches everybody, PostgreSQL sees it, and it answers those who reach it.
    for stream in STREAMS:
        assert (await pair.append(pair.cut_off, stream, b"1")).status_code == 204
    answers = await asyncio.gather(
        *(pair.client.get(pair.other.stream_url(stream)) for stream in STREAMS)
    )
    assert {answer.status_code for answer in answers} == {200, 503}
    refused = [answer for answer in answers if answer.status_code == 503]
    assert {answer.json()["error"]["code"] for answer in refused} <= {
        "owned_elsewhere",
        "storage_unavailable",
    }
    assert "node_is_silent" in pair.other.stderr
    pair.from_peers.reset()
    pair.from_peers.heal()
    for stream in STREAMS:
        assert (await pair.client.get(pair.other.stream_url(stream))).content == b"1"


async def test_two_nodes_with_one_address(pair: Pair, database: EngineDatabase) -> None:
    second = ServerProcess(*_arguments(database.url, pair.other.port))
    with pytest.raises(ServerFailedError, match=r"advertises http://\S+ too; give each its own"):
        await asyncio.to_thread(second.start)
    await until(pair.is_balanced)


async def test_the_figures_of_a_cluster(pair: Pair) -> None:
    for stream in STREAMS:
        await pair.append(pair.other, stream, b"1")
    text = (await pair.client.get(f"{pair.other.url}/metrics")).text
    figures = dict(
        line.split() for line in text.splitlines() if line.startswith("headwater_cluster")
    )
    assert figures["headwater_cluster_nodes"] == "2.0"
    assert figures["headwater_cluster_shards"] == "16.0"
    assert figures["headwater_cluster_lease_good"] == "1.0"
    assert float(figures["headwater_cluster_forwarded_total"]) > 0
    await asyncio.to_thread(pair.cut_off.kill)

    async def counted() -> bool:
        found = (await pair.client.get(f"{pair.other.url}/metrics")).text
        return "headwater_cluster_takeovers_total 1.0" in found

    await until(counted)


async def test_a_node_whose_clock_is_a_day_ahead_expires_nothing(pair: Pair) -> None:
    pair.clock.set(86_400)
    brief = [f"brief-{number}" for number in range(12)]
    for stream in brief:
        url = pair.other.stream_url(stream)
        answer = await pair.client.put(url, headers=TEXT | {"Stream-TTL": "3600"}, content=b"1")
        assert answer.status_code == 201, answer.text
    await asyncio.to_thread(pair.other.kill)

    async def taken_over() -> bool:
        answer = await pair.client.get(f"{pair.cut_off.url}/v1/cluster")
        return [node["shards"] for node in answer.json()["nodes"]] == [32]

    await until(taken_over)
    for stream in brief:
        assert (await pair.client.get(pair.cut_off.stream_url(stream))).content == b"1"


def test_no_lease_depends_on_the_time_of_day() -> None:
    """Clocks that jump, or that differ between machines, give nobody a shard."""
    root = Path(headwater.__file__).parent
    modules = [*root.glob("cluster/*.py"), root / "core" / "cluster.py"]
    names = ("clock", "ownership", "membership")
    modules += [root / "store" / "postgresql" / f"{name}.py" for name in names]
    assert len(modules) >= 4
    for module in modules:
        used = {
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute | ast.Name)
        }
        assert not used & {"time_ns", "wall_clock_ms", "datetime", "utcnow"}, module
        # `time.monotonic` and `time.sleep` are fine.
        assert "time.time(" not in module.read_text(encoding="utf-8")
