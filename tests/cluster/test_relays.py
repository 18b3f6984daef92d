"""Live readers of streams that other nodes own: the owner sends each append to a node once."""

from __future__ import annotations

import asyncio
import json
import random
import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from tests.crash.wire import EventStream, Lost
from tests.support.cluster import PATIENCE_S, Cluster, until
from tests.support.postgresql import EngineDatabase, databases
from tests.support.server import ServerProcess

JSON = {"Content-Type": "application/json"}
READERS = 500


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with databases() as database, Cluster(database) as cluster:
        yield cluster


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as client:
        yield client


def figure(node: ServerProcess, name: str) -> float:
    text = httpx.get(f"{node.url}/metrics", timeout=PATIENCE_S).text
    (found,) = re.findall(rf"^headwater_{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found)


def readers(node: ServerProcess) -> float:
    return figure(node, 'readers{kind="sse"}')


class Reader:
    """Follows a stream by events, and comes back by its offset when they end."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self._offset = "-1"
        self.messages: list[int] = []
        self.connections = 0

    async def run(self, last: int) -> None:
        while not self.messages or self.messages[-1] != last:
            self.connections += 1
            with suppress(Lost, OSError):
                await self._follow(last)
            await asyncio.sleep(0.05)

    async def _follow(self, last: int) -> None:
        pending: list[int] = []
        events = EventStream(self._port, self._path, self._offset).events()
        try:
            async for event in events:
                if event.kind == "data":
                    pending = json.loads(event.data)
                elif event.kind == "control":
                    self.messages += pending
                    pending = []
                    self._offset = json.loads(event.data)["streamNextOffset"]
                    if self.messages and self.messages[-1] == last:
                        return
        finally:
            await events.aclose()


def append(client: httpx.Client, node: ServerProcess, path: str, number: int) -> None:
    """As a producer, so that it may be sent again."""
    stamp = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(number)}

    def is_stored() -> bool:
        answer = client.post(node.stream_url(path), json=[number], headers=JSON | stamp)
        return answer.status_code < 300

    until(is_stored)


def test_however_many_readers_there_are_the_owner_has_one_and_may_die(
    database: EngineDatabase, client: httpx.Client
) -> None:
    with Cluster(database, "--sse-lifetime-ms", "600000") as cluster:
        path = "popular"
        client.put(cluster.any().stream_url(path), headers=JSON)
        owner = cluster.owner_of(path)
        edge, third = cluster.others(owner)
        append(client, third, path, 0)
        last = 40

        async def scenario() -> list[Reader]:
            crowd = [Reader(edge.port, path) for _ in range(READERS)]
            tasks = [asyncio.create_task(reader.run(last)) for reader in crowd]
            there = lambda: readers(edge) == READERS  # noqa: E731
            await asyncio.to_thread(until, there)
            assert await asyncio.to_thread(readers, owner) == 1
            assert await asyncio.to_thread(figure, edge, "cluster_relays") == 1
            for number in range(1, last + 1):
                await asyncio.to_thread(append, client, third, path, number)
                if number == last // 2:
                    owner.kill()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*tasks)
            return crowd

        crowd = asyncio.run(scenario())
        assert {tuple(reader.messages) for reader in crowd} == {tuple(range(last + 1))}
        # They did not even notice.
        assert {reader.connections for reader in crowd} == {1}


def elsewhere(client: httpx.Client, cluster: Cluster, path: str, **headers: str) -> ServerProcess:
    """Make a stream; a node that does not own it."""
    answer = client.put(cluster.any().stream_url(path), headers=JSON | headers)
    assert answer.status_code == 201, answer.text
    return cluster.others(cluster.owner_of(path))[0]


class Events:
    """What comes on an event stream, read as it is asked for."""

    def __init__(self, client: httpx.Client, node: ServerProcess, path: str, offset: str) -> None:
        params = {"offset": offset, "live": "sse"}
        self._events = client.stream("GET", node.stream_url(path), params=params)

    def __enter__(self) -> Iterator[tuple[str, str]]:
        answer = self._events.__enter__()
        assert answer.status_code == 200, answer.read()
        return self._parse(answer.iter_lines())

    def __exit__(self, *error: object) -> None:
        self._events.__exit__(None, None, None)

    def _parse(self, lines: Iterator[str]) -> Iterator[tuple[str, str]]:
        kind, data = "", ""
        for line in lines:
            if line.startswith("event:"):
                kind = line[6:].strip()
            elif line.startswith("data:"):
                data += line[5:]
            elif not line and kind:
                yield kind, data
                kind, data = "", ""


def data_of(events: Iterator[tuple[str, str]], count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        kind, data = next(events)
        if kind == "data":
            found += json.loads(data)
    return found


def test_a_reader_has_what_came_before_and_what_comes(
    client: httpx.Client, cluster: Cluster
) -> None:
    edge = elsewhere(client, cluster, "before")
    for number in range(5):
        append(client, cluster.any(), "before", number)
    with Events(client, edge, "before", "-1") as first:
        assert data_of(first, 5) == [0, 1, 2, 3, 4]
        append(client, cluster.any(), "before", 5)
        assert data_of(first, 1) == [5]
        # Some of it is in memory by now, and some is not.
        with Events(client, edge, "before", "-1") as second:
            assert data_of(second, 6) == [0, 1, 2, 3, 4, 5]
            append(client, cluster.any(), "before", 6)
            assert data_of(first, 1) == data_of(second, 1) == [6]


def test_long_polls_see_what_was_acknowledged_before_them(
    client: httpx.Client, cluster: Cluster
) -> None:
    """Through whatever node it was written: nobody waits for what is there already."""
    edge = elsewhere(client, cluster, "polled")
    offset, seen = "-1", []
    for number in range(60):
        append(client, cluster.any(), "polled", number)
        params = {"offset": offset, "live": "long-poll"}
        answer = client.get(edge.stream_url("polled"), params=params)
        assert answer.status_code == 200, answer.text
        seen += answer.json()
        assert seen == list(range(number + 1))
        assert answer.headers["Stream-Up-To-Date"] == "true"
        offset = answer.headers["Stream-Next-Offset"]
    assert figure(edge, "cluster_relays") >= 1


def test_polls_that_wait_are_answered_together(client: httpx.Client, cluster: Cluster) -> None:
    edge = elsewhere(client, cluster, "waited-for")
    owner = cluster.owner_of("waited-for")
    before = readers(owner)

    async def scenario() -> list[httpx.Response]:
        params = {"offset": "now", "live": "long-poll"}
        async with httpx.AsyncClient(timeout=PATIENCE_S) as own:
            url = edge.stream_url("waited-for")
            asked = [asyncio.create_task(own.get(url, params=params)) for _ in range(50)]
            waiting = lambda: figure(edge, 'readers{kind="long-poll"}') == 50  # noqa: E731
            await asyncio.to_thread(until, waiting)
            assert await asyncio.to_thread(readers, owner) == before + 1
            await asyncio.to_thread(append, client, owner, "waited-for", 0)
            return await asyncio.gather(*asked)

    answers = asyncio.run(scenario())
    assert {(answer.status_code, answer.text) for answer in answers} == {(200, "[0]")}


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_a_stream_that_is_deleted_and_made_anew(
    client: httpx.Client, cluster: Cluster, live: str
) -> None:
    path = f"anew-{live}"
    edge = elsewhere(client, cluster, path)
    append(client, edge, path, 0)
    with Events(client, edge, path, "-1") as events:
        assert data_of(events, 1) == [0]
        assert client.delete(cluster.any().stream_url(path)).status_code == 204
        kinds = [kind for kind, _ in events]
        assert kinds[-1] == "deleted"
    params = {"offset": "-1", "live": live}
    assert client.get(edge.stream_url(path), params=params).status_code == 404
    client.put(cluster.any().stream_url(path), headers=JSON).raise_for_status()
    append(client, edge, path, 0)
    append(client, edge, path, 1)
    with Events(client, edge, path, "-1") as events:
        assert data_of(events, 2) == [0, 1]


def test_a_stream_that_is_closed_ends_for_everyone(client: httpx.Client, cluster: Cluster) -> None:
    edge = elsewhere(client, cluster, "shut")
    with Events(client, edge, "shut", "-1") as events:
        append(client, edge, "shut", 0)
        assert data_of(events, 1) == [0]
        headers = {"Stream-Closed": "true"}
        client.post(cluster.any().stream_url("shut"), headers=headers).raise_for_status()
        *_, (kind, data) = events
        assert kind == "control"
        assert json.loads(data)["streamClosed"] is True
    for offset, status in (("-1", 200), ("now", 204)):
        params = {"offset": offset, "live": "long-poll"}
        answer = client.get(edge.stream_url("shut"), params=params)
        assert answer.status_code == status
        assert answer.headers["Stream-Closed"] == "true"


def test_bytes_arrive_as_they_were_sent(client: httpx.Client, cluster: Cluster) -> None:
    kind = {"Content-Type": "application/octet-stream"}
    client.put(cluster.any().stream_url("raw"), headers=kind).raise_for_status()
    edge = cluster.others(cluster.owner_of("raw"))[0]
    large = random.Random(3).randbytes(3_000_000)
    with Events(client, edge, "raw", "now") as events:
        for body in (b"\n1\n: \x00", large, b"end"):
            client.post(cluster.any().stream_url("raw"), content=body, headers=kind)
            received = b""
            while len(received) < len(body):
                event, data = next(events)
                received += b64decode(data) if event == "data" else b""
            assert received == body


def test_several_streams_of_several_owners_over_one_connection(
    client: httpx.Client, cluster: Cluster
) -> None:
    paths = [f"many-{number}" for number in range(12)]
    for path in paths:
        client.put(cluster.any().stream_url(path), headers=JSON).raise_for_status()
        append(client, cluster.any(), path, 0)
    assert len({cluster.owner_of(path).url for path in paths}) == 3
    body = {"streams": dict.fromkeys([*paths, "many-nowhere"], "-1")}
    for node in cluster.nodes:
        with client.stream("POST", f"{node.url}/v1/follow", json=body) as answer:
            events = Events._parse(None, answer.iter_lines())  # type: ignore[arg-type]
            kind, failed = next(events)
            assert (kind, json.loads(failed)["stream"]) == ("failed", "many-nowhere")
            assert json.loads(failed)["error"]["code"] == "stream_not_found"
            found: dict[str, list[int]] = {}
            whose = ""
            while sum(map(len, found.values())) < len(paths):
                kind, data = next(events)
                if kind == "stream":
                    whose = json.loads(data)["stream"]
                elif kind == "data":
                    found.setdefault(whose, []).extend(json.loads(data))
            assert found == {path: [0] for path in paths}


def test_readers_stay_while_the_stream_changes_hands(
    client: httpx.Client, cluster: Cluster
) -> None:
    """To other nodes, and to the very node that the readers are at."""
    edge = elsewhere(client, cluster, "moving")
    numbers = {node["address"]: node["id"] for node in cluster.status()["nodes"]}
    owners = set()
    with Events(client, edge, "moving", "-1") as events:
        for number in range(4):
            owner = cluster.owner_of("moving")
            owners.add(owner.url)
            body = {"node": numbers[owner.url], "draining": True}
            drain = f"{edge.url}/v1/cluster/drain"
            assert client.post(drain, json=body).status_code == 204
            append(client, cluster.any(), "moving", 2 * number)
            until(lambda: cluster.counts()[owner.url] == 0)  # noqa: B023
            append(client, cluster.any(), "moving", 2 * number + 1)
            assert data_of(events, 2) == [2 * number, 2 * number + 1]
            assert client.post(drain, json=body | {"draining": False}).status_code == 204
    assert len(owners) > 1
