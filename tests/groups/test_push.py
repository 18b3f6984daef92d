"""Members that messages are pushed to: turns, ends of connections, and readers that do not read."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.groups.test_http import Api, receipts, values
from tests.support.server import ServerProcess

LIFETIME_MS = 1_000


class Pushed:
    """An open event stream, read as slowly as a test likes."""

    def __init__(self, api: Api, path: str, consumer: str, buffer: int | None = None) -> None:
        url = urlsplit(str(api.http.base_url))
        self._socket = socket.socket()
        if buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._socket.connect((url.hostname, url.port))
        self._socket.settimeout(60)
        target = f"/v1/stream/{path}/_groups/g?live=sse&consumer={consumer}&max=1000"
        self._socket.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self._text = b""

    def until(self, text: bytes) -> bytes:
        """Everything up to a text, and nothing after it."""
        while text not in self._text:
            more = self._socket.recv(65_536)
            assert more, "the connection ended"
            self._text += more
        found, _, self._text = self._text.partition(text)
        return found

    def message(self) -> dict[str, Any]:
        self.until(b"event: message\ndata:")
        message: dict[str, Any] = json.loads(self.until(b"\n"))
        return message

    def ended(self) -> None:
        """Wait for the server to end it."""
        while self._socket.recv(65_536):
            pass
        self.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with ServerProcess("--memory") as server:
        api = Api(server.url)
        yield api
        api.http.close()


@pytest.fixture(scope="module")
def hasty() -> Iterator[Api]:
    """A server that ends connections soon."""
    with ServerProcess("--memory", "--sse-lifetime-ms", str(LIFETIME_MS)) as server:
        api = Api(server.url)
        yield api
        api.http.close()


@pytest.fixture
def jobs(api: Api, request: pytest.FixtureRequest) -> str:
    name = f"jobs-{abs(hash(request.node.nodeid))}"
    assert api.put(name).status_code == 201
    return name


def test_the_end_of_a_connection_by_the_server_takes_nothing_away(hasty: Api) -> None:
    jobs = "first"
    hasty.put(jobs)
    hasty.group(jobs, "g", max_deliveries=1, dead_letter=f"{jobs}-dead")
    hasty.append(jobs, "long work")
    first = Pushed(hasty, jobs, "ann")
    message = first.message()
    first.ended()
    assert hasty.info(jobs, "g")["members"] == {"ann": 1}
    again = Pushed(hasty, jobs, "ann")
    # Beyond its first lease, over as many connections as it takes.
    assert hasty.call(jobs, "g", "extend", receipts=[message["receipt"]], ms=3_600_000).json() == {
        "extended": 1,
        "stale": [],
    }
    again.ended()
    assert hasty.fetch(jobs, "g", "bob") == []
    assert hasty.call(jobs, "g", "ack", receipts=[message["receipt"]]).json()["acked"] == 1
    assert hasty.read(f"{jobs}-dead") == []


def test_what_the_server_ended_does_not_count_when_the_member_stays_away(hasty: Api) -> None:
    jobs = "second"
    hasty.put(jobs)
    hasty.group(jobs, "g", ack_timeout_ms=12_000, max_deliveries=1, dead_letter=f"{jobs}-dead")
    hasty.append(jobs, "work")
    pushed = Pushed(hasty, jobs, "ann")
    pushed.message()
    pushed.ended()
    (message,) = hasty.fetch(jobs, "g", "bob", wait_ms=30_000)
    assert message["deliveries"] == 1
    assert hasty.read(f"{jobs}-dead") == []


def test_a_member_that_closes_may_come_back_within_the_grace(api: Api, jobs: str) -> None:
    api.group(jobs, "g", ack_timeout_ms=60_000)
    api.append(jobs, "work")
    first = Pushed(api, jobs, "ann")
    message = first.message()
    first.close()
    assert api.fetch(jobs, "g", "bob", wait_ms=500) == [], "not at once"
    again = Pushed(api, jobs, "ann")
    time.sleep(0.2)
    assert api.info(jobs, "g")["members"]["ann"] == 1
    assert api.call(jobs, "g", "ack", receipts=[message["receipt"]]).json()["acked"] == 1
    again.close()


def test_after_the_grace_its_messages_go_to_others(api: Api, jobs: str) -> None:
    """The grace is 10 s, and at most the ack timeout."""
    api.group(jobs, "g", ack_timeout_ms=60_000)
    api.append(jobs, "work")
    pushed = Pushed(api, jobs, "ann")
    pushed.message()
    began = time.monotonic()
    pushed.close()
    (message,) = api.fetch(jobs, "g", "bob", wait_ms=40_000)
    assert (message["value"], message["deliveries"]) == ("work", 2)
    assert time.monotonic() - began > 8, "it was waited for"


def test_members_take_turns_message_by_message(api: Api, jobs: str) -> None:
    api.group(jobs, "g")
    members = {name: Pushed(api, jobs, name) for name in ("ann", "bob", "cem")}
    while len(api.info(jobs, "g")["members"]) < 3:
        time.sleep(0.01)
    for number in range(60):
        assert api.append(jobs, number).status_code == 204
    deadline = time.monotonic() + 60
    while api.info(jobs, "g")["in_flight"] < 60:
        assert time.monotonic() < deadline
    assert api.info(jobs, "g")["members"] == {"ann": 20, "bob": 20, "cem": 20}
    for member in members.values():
        member.close()


def test_a_member_that_does_not_read_is_given_no_more(api: Api, jobs: str) -> None:
    """Only what fits into the buffers is with it; all the rest goes to those who read."""
    api.group(jobs, "g", max_deliveries=1, dead_letter=f"{jobs}-dead")
    deaf = Pushed(api, jobs, "deaf", buffer=4_096)
    while "deaf" not in api.info(jobs, "g")["members"]:
        time.sleep(0.01)
    for number in range(30):
        api.append(jobs, *[f"{number}-{place}" + "x" * 20_000 for place in range(10)])
    while not api.info(jobs, "g")["members"]["deaf"]:
        time.sleep(0.01)
    time.sleep(0.5)  # for more than it should be given
    held = api.info(jobs, "g")["members"]["deaf"]
    assert held < 250, "6 MB do not fit into its buffers"
    taken = 0
    while messages := api.fetch(jobs, "g", "bob", max=100):
        taken += api.call(jobs, "g", "ack", receipts=receipts(messages)).json()["acked"]
    info = api.info(jobs, "g")
    assert taken + info["lag"] == 300
    assert api.read(f"{jobs}-dead") == [], "and nobody's work is lost"
    deaf.close()


def test_a_fetch_is_bounded_in_bytes(api: Api, jobs: str) -> None:
    for _ in range(20):
        api.append(jobs, "x" * 1_000_000)
    api.group(jobs, "g")
    messages = api.fetch(jobs, "g", max=1000)
    assert 1 <= len(messages) <= 8
    assert len(values(messages)) < 20
    api.call(jobs, "g", "nack", receipts=receipts(messages))
    again = api.fetch(jobs, "g", max=1000)
    assert 1 <= len(again) <= 8, "what is delivered again is bounded, too"


def test_a_message_larger_than_any_bound_is_delivered_alone(api: Api, jobs: str) -> None:
    api.append(jobs, "x" * 10_000_000)
    api.append(jobs, "y")
    api.group(jobs, "g")
    (large,) = api.fetch(jobs, "g", max=10)
    assert len(large["value"]) == 10_000_000
    assert values(api.fetch(jobs, "g", max=10)) == ["y"]
