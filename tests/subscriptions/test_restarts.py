"""Subscriptions across restarts, orderly ones and others: no wake is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Lock, Thread

import httpx
import pytest

from tests.subscriptions.api import Api, eventually
from tests.subscriptions.conftest import StartReceiver
from tests.subscriptions.receiver import DONE, DOWN, TAKEN, Answer, Received
from tests.support.server import ServerProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess("--data", str(tmp_path / "data")) as server:
        yield server


@pytest.fixture
def api(server: ServerProcess) -> Iterator[Api]:
    api = Api(server.url)
    yield api
    api.http.close()


def kill(server: ServerProcess) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("orderly", [True, False])
def test_everything_is_as_it_was(
    server: ServerProcess, api: Api, receive: StartReceiver, orderly: bool
) -> None:
    receiver = receive(TAKEN)
    api.create("in/old", 1)
    hooked = api.webhook(receiver.url, "in/*", streams=["named"], lease_ttl_ms=600_000)
    pulled, wakes = api.pull("in/*", lease_ttl_ms=600_000)
    api.create("in/new", 1)
    wake = receiver.next()
    eventually(lambda: api.get(hooked)["state"] == "leased")
    claimed = api.claim(pulled)
    keys = api.http.get("/__ds/jwks.json").json()
    before = [api.get(name) for name in (hooked, pulled)]
    if orderly:
        server.restart()
    else:
        kill(server)
    assert [api.get(name) for name in (hooked, pulled)] == before
    assert api.http.get("/__ds/jwks.json").json() == keys
    assert api.callback(wake, acks=wake.acks(), done=True).json()["next_wake"] is False
    assert api.proven(pulled, "ack", claimed, done=True).json()["next_wake"] is True
    eventually(lambda: [event["generation"] for event in api.read(wakes)] == [1, 2])


def test_the_schedule_of_retries_goes_on(
    server: ServerProcess, api: Api, receive: StartReceiver
) -> None:
    receiver = receive(DOWN)
    name = api.webhook(receiver.url, "in/*")
    api.create("in/a", 1)
    first = receiver.next()
    eventually(lambda: api.get(name)["failures"] >= 2)
    # Nobody waits for a failure to be noted; it goes with the next commit that somebody waits for.
    api.create("elsewhere", 1)
    kill(server)
    assert api.get(name)["failures"] >= 2
    receiver.answer = DONE
    eventually(lambda: api.get(name)["streams_pending"] == 0)
    assert api.get(name)["generation"] == first.body["generation"] == 1


def test_every_pending_stream_wakes_after_a_crash(
    server: ServerProcess, api: Api, receive: StartReceiver
) -> None:
    receiver = receive(DOWN)
    api.create("in/old", 1)
    name = api.webhook(receiver.url, "in/**")
    for number in range(20):
        api.create(f"in/{number}", 1)
    api.append("in/old", 2)
    kill(server)
    receiver.answer = DONE
    eventually(lambda: api.get(name)["streams_pending"] == 0)
    shown: set[str] = set()
    while not receiver.received.empty():
        shown.update(receiver.next().pending)
    assert shown == {"in/old", *(f"in/{number}" for number in range(20))}


class Writer(Thread):
    """Appends until the server is gone, and remembers what was acknowledged."""

    def __init__(self, url: str, path: str, acknowledged: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self._url = f"{url}/v1/stream/{path}"
        self._path = path
        self._acknowledged = acknowledged

    def run(self) -> None:
        with httpx.Client(trust_env=False) as http:
            try:
                while True:
                    headers = {"Content-Type": "application/json"}
                    answer = http.post(self._url, headers=headers, content="[1]")
                    self._acknowledged[self._path] = answer.headers["Stream-Next-Offset"]
            except httpx.TransportError:
                return


@pytest.mark.crash
def test_no_wake_is_lost_when_the_server_is_killed_at_work(
    server: ServerProcess, api: Api, receive: StartReceiver
) -> None:
    """Whatever was appended and acknowledged is covered by a wake that the receiver finished."""
    rng, lock = Random(7), Lock()
    covered: dict[str, str] = {}
    wakes: list[tuple[int, str]] = []

    def moody(received: Received) -> Answer:
        with lock:
            wakes.append((received.body["generation"], received.body["wake_id"]))
            if rng.random() < 0.1:
                return DOWN
            for path, stream in received.streams.items():
                covered[path] = max(covered.get(path, ""), stream["tail_offset"])
            return DONE

    receiver = receive(moody)
    paths = [f"in/{number}" for number in range(6)]
    name = api.webhook(receiver.url, "in/*", lease_ttl_ms=1_000)
    for path in paths:
        api.create(path)
    acknowledged: dict[str, str] = {}
    for round_number in range(3):
        writers = [Writer(server.url, path, acknowledged) for path in paths]
        for writer in writers:
            writer.start()
        seen = len(wakes) + rng.randrange(3, 12)
        eventually(lambda seen=seen: len(wakes) >= seen)  # type: ignore[misc]
        server.kill()
        for writer in writers:
            writer.join()
        server.start()
        assert api.get(name)["generation"] >= max(generation for generation, _ in wakes)
        assert len(acknowledged) == len(paths), round_number
    eventually(lambda: api.get(name)["streams_pending"] == 0)
    assert all(covered[path] >= offset for path, offset in acknowledged.items())
    generations = [generation for generation, _ in wakes]
    assert generations == sorted(generations)
    assert len(set(wakes)) == len(set(generations)), "a generation has one wake"
