"""Nodes that die, sleep or leave: nothing acknowledged is lost, nothing old is shown."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.support.cluster import PATIENCE_S, SHORT_LEASE_MS, Cluster, until
from tests.support.postgresql import EngineDatabase
from tests.support.server import ServerProcess

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=PATIENCE_S) as client:
        yield client


def prepared(client: httpx.Client, cluster: Cluster, count: int) -> list[str]:
    paths = [f"s{number}" for number in range(count)]
    for path in paths:
        answer = client.put(cluster.any().stream_url(path), headers=JSON)
        assert answer.status_code == 201, answer.text
    return paths


def read(client: httpx.Client, node: ServerProcess, path: str) -> list[int]:
    answer = client.get(node.stream_url(path), params={"offset": "-1"})
    assert answer.status_code == 200, answer.text
    found: list[int] = answer.json()
    return found


class Writer(threading.Thread):
    """Appends numbers to a stream as a producer, through nodes in turn, until it is told to end."""

    def __init__(self, nodes: list[ServerProcess], path: str) -> None:
        super().__init__(daemon=True)
        self._nodes = nodes
        self._path = path
        self._end = threading.Event()
        self.acknowledged: list[int] = []
        self.statuses: list[int] = []

    def run(self) -> None:
        number = 0
        with httpx.Client(timeout=PATIENCE_S) as client:
            while not self._end.is_set():
                node = self._nodes[number % len(self._nodes)]
                stamp = {"Producer-Id": "w", "Producer-Epoch": "0", "Producer-Seq": str(number)}
                answer = client.post(
                    node.stream_url(self._path), json=[number], headers=JSON | stamp
                )
                self.statuses.append(answer.status_code)
                if answer.status_code < 300:
                    self.acknowledged.append(number)
                    number += 1

    def stop(self) -> None:
        self._end.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


def test_a_node_that_is_killed_is_replaced(database: EngineDatabase, client: httpx.Client) -> None:
    with Cluster(database, lease_ms=SHORT_LEASE_MS) as cluster:
        paths = prepared(client, cluster, 8)
        victim = cluster.owner_of(paths[0])
        writers = [Writer(cluster.others(victim), path) for path in paths]
        for writer in writers:
            writer.start()
        until(lambda: all(len(writer.acknowledged) > 3 for writer in writers))
        victim.kill()
        cluster.balanced(2)
        marks = [len(writer.acknowledged) for writer in writers]
        until(lambda: all(len(w.acknowledged) > m for w, m in zip(writers, marks, strict=True)))
        for writer in writers:
            writer.stop()
            for node in cluster.running:
                # Each once, in order, and none that was acknowledged is missing.
                assert read(client, node, writer._path) == writer.acknowledged
        # It comes back, and has its share again.
        victim.start()
        cluster.balanced(3)
        assert read(client, victim, paths[0]) == writers[0].acknowledged


def test_a_node_that_was_asleep_shows_nothing_old_and_writes_nothing(
    database: EngineDatabase, client: httpx.Client
) -> None:
    with Cluster(database, lease_ms=SHORT_LEASE_MS) as cluster:
        (path,) = prepared(client, cluster, 1)
        sleeper = cluster.owner_of(path)
        awake = cluster.others(sleeper)
        client.post(sleeper.stream_url(path), json=[0], headers=JSON)
        assert read(client, sleeper, path) == [0]
        os.kill(sleeper.pid, signal.SIGSTOP)
        try:
            # Asked while it sleeps, and answered when it wakes.
            asked: list[httpx.Response] = []

            def ask(work: str) -> None:
                with httpx.Client(timeout=PATIENCE_S) as own:
                    if work == "read":
                        asked.append(own.get(sleeper.stream_url(path), params={"offset": "-1"}))
                    else:
                        asked.append(own.post(sleeper.stream_url(path), json=[7], headers=JSON))

            threads = [threading.Thread(target=ask, args=(w,)) for w in ("read", "write")]
            for thread in threads:
                thread.start()
            # The others find out, and take over. A read through them waits for that.
            assert read(client, awake[0], path) == [0]
            assert client.post(awake[1].stream_url(path), json=[1], headers=JSON).status_code == 204
            assert cluster.owner_of(path) in awake
        finally:
            os.kill(sleeper.pid, signal.SIGCONT)
        for thread in threads:
            thread.join(PATIENCE_S)
        read_then = next(answer for answer in asked if answer.request.method == "GET")
        wrote_then = next(answer for answer in asked if answer.request.method == "POST")
        assert read_then.status_code == 503 or read_then.json()[:2] == [0, 1]
        # It joins again as a new node, and answers like the others.
        cluster.balanced(3)
        expected = [0, 1, 7] if wrote_then.status_code == 204 else [0, 1]
        assert [read(client, node, path) for node in cluster.nodes] == [expected] * 3


def test_draining_a_node_and_stopping_it_shows_no_error(
    database: EngineDatabase, client: httpx.Client
) -> None:
    with Cluster(database) as cluster:
        paths = prepared(client, cluster, 9)
        leaver = cluster.owner_of(paths[0])
        writers = [Writer(cluster.others(leaver), path) for path in paths]
        for writer in writers:
            writer.start()
        until(lambda: all(len(writer.acknowledged) > 3 for writer in writers))
        status = cluster.status()
        (number,) = [n["id"] for n in status["nodes"] if n["address"] == leaver.url]
        other = cluster.others(leaver)[0]
        answer = client.post(f"{other.url}/v1/cluster/drain", json={"node": number})
        assert answer.status_code == 204, answer.text
        until(lambda: cluster.counts()[leaver.url] == 0)
        # It still answers, with what the others have.
        assert read(client, leaver, paths[0])[:3] == [0, 1, 2]
        assert leaver.stop() == 0
        cluster.balanced(2)
        # And one that was not drained before hands over as it stops.
        second = cluster.running[0]
        last = cluster.others(second)[0]
        for writer in writers:
            writer._nodes = [last]
        marks = [len(writer.acknowledged) for writer in writers]
        until(lambda: all(len(w.acknowledged) > m + 2 for w, m in zip(writers, marks, strict=True)))
        assert second.stop() == 0
        marks = [len(writer.acknowledged) for writer in writers]
        until(lambda: all(len(w.acknowledged) > m + 2 for w, m in zip(writers, marks, strict=True)))
        for writer in writers:
            writer.stop()
            assert set(writer.statuses) == {200}, writer.statuses
            assert read(client, last, writer._path) == writer.acknowledged


def test_a_node_that_wants_the_database_for_itself_is_refused(
    database: EngineDatabase, client: httpx.Client
) -> None:
    with Cluster(database, nodes=1) as cluster:
        alone = ServerProcess("--engine", database.url)
        with pytest.raises(Exception, match="in use by another node"):
            alone.start()
        same = ServerProcess("--engine", database.url, "--advertise", cluster.nodes[0].url)
        with pytest.raises(Exception, match="give each its own"):
            same.start()
        assert cluster.status()["nodes"][0]["shards"] == 32
