"""The producers guide, command by command.

The guide shows `curl` commands and what each of them answers. Every one of them is here, sent by
`curl` itself and once more by a library, in the order of the guide. Where the guide starts from a
state that its earlier commands have left behind, so does the test; its section on gaps takes up
again where the basic flow had one message.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Final

import httpx
import pytest

from tests.http.client import Client, fresh
from tests.support.server import ServerProcess

Answer = tuple[int, dict[str, str]]
Post = Callable[[str, dict[str, str], str], Answer]

TEXT: Final = {"Content-Type": "text/plain"}


def post_with_curl(url: str, headers: dict[str, str], body: str) -> Answer:
    # A header without a value is written with a semicolon; otherwise curl leaves it out.
    fields = [f"{name}: {value}" if value else f"{name};" for name, value in headers.items()]
    options = [word for field in fields for word in ("-H", field)]
    shown = subprocess.run(
        ["curl", "-sS", "-i", "--noproxy", "*", "-X", "POST", *options, "-d", body, url],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    status_line, *lines = shown.stdout.split("\n\n")[0].splitlines()
    pairs = (line.split(":", 1) for line in lines)
    return int(status_line.split()[1]), {name.lower(): value.strip() for name, value in pairs}


def post_with_library(url: str, headers: dict[str, str], body: str) -> Answer:
    reply = httpx.post(url, headers=headers, content=body.encode(), trust_env=False)
    return reply.status_code, {name.lower(): value for name, value in reply.headers.items()}


@pytest.fixture(params=["curl", "library"])
def post(request: pytest.FixtureRequest) -> Post:
    if request.param == "library":
        return post_with_library
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    return post_with_curl


class Guide:
    """The reader of the guide, with a stream to try things on."""

    def __init__(self, server: ServerProcess, post: Post) -> None:
        self._post = post
        self._client = Client(server)
        self._path = fresh("guide")
        self.url = server.stream_url(self._path)
        assert self._client.put(self._path, TEXT).status == 201

    def send(
        self, epoch: int, seq: int, body: str, *, name: str = "my-producer", close: bool = False
    ) -> Answer:
        headers = {
            **TEXT,
            "Producer-ID": name,
            "Producer-Epoch": str(epoch),
            "Producer-Seq": str(seq),
        }
        if close:
            headers["Stream-Closed"] = "true"
        return self._post(self.url, headers, body)

    @property
    def content(self) -> bytes:
        return self._client.get(self._path).body

    @property
    def is_closed(self) -> bool:
        return self._client.head(self._path).headers.get("Stream-Closed") == "true"


@pytest.fixture
def guide(server: ServerProcess, post: Post) -> Guide:
    return Guide(server, post)


@pytest.fixture
def basic_flow(guide: Guide) -> Guide:
    """Two messages of one producer, as the guide begins."""
    for seq, body in enumerate(["message 1", "message 2"]):
        status, headers = guide.send(0, seq, body)
        assert status == 200
        assert headers["producer-epoch"] == "0"
        assert headers["producer-seq"] == str(seq)
    return guide


def test_basic_flow(basic_flow: Guide) -> None:
    assert basic_flow.content == b"message 1message 2"


def test_a_retry_is_recognised(basic_flow: Guide) -> None:
    status, headers = basic_flow.send(0, 0, "message 1")

    assert status == 204
    assert headers["producer-epoch"] == "0"
    assert headers["producer-seq"] == "1"
    assert basic_flow.content == b"message 1message 2"


def test_a_restart_fences_the_old_instance(basic_flow: Guide) -> None:
    status, headers = basic_flow.send(1, 0, "restarted")
    assert status == 200
    assert headers["producer-epoch"] == "1"

    status, headers = basic_flow.send(0, 2, "zombie")
    assert status == 403
    assert headers["producer-epoch"] == "1"
    assert basic_flow.content == b"message 1message 2restarted"


def test_a_gap_is_refused(guide: Guide) -> None:
    assert guide.send(0, 0, "message 1")[0] == 200

    status, headers = guide.send(0, 5, "skipped")

    assert status == 409
    assert headers["producer-expected-seq"] == "1"
    assert headers["producer-received-seq"] == "5"
    assert guide.content == b"message 1"


def test_producers_are_independent(guide: Guide) -> None:
    assert guide.send(0, 0, "from alice;", name="user-alice")[0] == 200
    assert guide.send(0, 0, "from bob;", name="user-bob")[0] == 200
    assert guide.content == b"from alice;from bob;"


def test_append_and_close_in_one_step(basic_flow: Guide) -> None:
    status, headers = basic_flow.send(0, 2, "final message", close=True)
    assert status == 200
    assert headers["stream-closed"] == "true"
    assert basic_flow.is_closed

    status, headers = basic_flow.send(0, 2, "final message", close=True)
    assert status == 204
    assert headers["stream-closed"] == "true"
    assert basic_flow.content == b"message 1message 2final message"


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Producer-ID": "my-producer"}, id="only the id"),
        pytest.param({"Producer-ID": "my-producer", "Producer-Epoch": "0"}, id="no sequence"),
        pytest.param(
            {"Producer-ID": "", "Producer-Epoch": "0", "Producer-Seq": "0"}, id="empty id"
        ),
        pytest.param(
            {"Producer-ID": "my-producer", "Producer-Epoch": "0", "Producer-Seq": "two"},
            id="not a number",
        ),
        pytest.param(
            {"Producer-ID": "my-producer", "Producer-Epoch": "1", "Producer-Seq": "1"},
            id="a new epoch that does not start at 0",
        ),
    ],
)
def test_malformed_headers_are_refused(
    basic_flow: Guide, post: Post, headers: dict[str, str]
) -> None:
    status, _ = post(basic_flow.url, TEXT | headers, "message 3")

    assert status == 400
    assert basic_flow.content == b"message 1message 2"
