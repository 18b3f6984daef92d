"""Clients that do not read, or do not finish what they say. They must not cost others anything.

The server's memory is read from /proc and compared with bounds that are generous: without limits
each of these tests would need several times as much.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.http.client import TEXT, Client, eventually, fresh
from tests.http.conftest import watched
from tests.http.events import Event, Events
from tests.http.wire import EndedError, request_bytes
from tests.support.server import ServerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads memory from /proc")

MIB: Final = 1024 * 1024
APPEND: Final = 64 * 1024
APPENDS: Final = 240
SLOW: Final = 24
# Small, so that little of what is not read hides in the kernel.
TINY_WINDOW: Final = 4096


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = str(tmp_path_factory.mktemp("strict"))
    with ServerProcess("--data", data, "--reader-buffer-bytes-max", str(256 * 1024)) as server:
        yield server


@pytest.fixture
def client(strict_server: ServerProcess) -> Iterator[Client]:
    yield from watched(strict_server)


def resident_bytes(server: ServerProcess) -> int:
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def cpu_s(server: ServerProcess) -> float:
    """How long it has computed, which a busy machine does not change."""
    _, _, fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(") ")
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def lines(number: int) -> bytes:
    """The text of one append: numbered, so that a loss or a repeat shows."""
    line = f"{number:06d} " + "x" * 56 + "\n"
    return line.encode() * (APPEND // len(line))


def fill(client: Client, path: str, count: int = APPENDS) -> bytes:
    with client.wire() as wire:
        for number in range(count):
            reply = wire.request("POST", f"/v1/stream/{path}", TEXT, lines(number))
            assert reply.status == 204
    return b"".join(lines(number) for number in range(count))


class Following(threading.Thread):
    """A reader that keeps up, on a thread of its own."""

    def __init__(self, client: Client, path: str) -> None:
        super().__init__(daemon=True)
        self.data: list[str] = []
        self._client, self._path = client, path
        self.started = threading.Event()

    def run(self) -> None:
        with self._client.events(self._path) as events:
            self.started.set()
            while (event := events.next()) is not None:
                if event.kind == "data":
                    self.data.append(event.data)


def until_cut(events: Events) -> list[Event]:
    """Whole events up to where the server hung up on the reader."""
    seen = []
    try:
        while (event := events.next()) is not None:
            seen.append(event)
    except EndedError:
        return seen
    raise AssertionError("the stream came to an orderly end")


def test_readers_that_do_not_read_are_cut_and_resume(client: Client) -> None:
    path = client.create(TEXT)
    fast = Following(client, path)
    fast.start()
    fast.started.wait()
    with ExitStack() as stack:
        slow = [
            stack.enter_context(client.events(path, receive_buffer=TINY_WINDOW))
            for _ in range(SLOW)
        ]
        assert client.readers(path) == SLOW + 1
        before = resident_bytes(client.server)
        expected = fill(client, path)
        growth = resident_bytes(client.server) - before
        eventually(lambda: client.readers(path) == 1)
        client.close(path)
        fast.join()
        # The one that read has everything.
        assert "".join(fast.data).encode() == expected
        # Those that did not are cut off. If each were owed all, that alone would be 360 MiB.
        assert growth < 120 * MIB
        for reader in slow[:3]:
            seen = until_cut(reader)
            # Data counts once the control event behind it says where to go on.
            while seen and seen[-1].kind != "control":
                seen.pop()
            data = "".join(event.data for event in seen if event.kind == "data")
            assert len(data) < len(expected)
            with client.events(path, f"offset={seen[-1].json['streamNextOffset']}") as again:
                rest = again.rest()
            data += "".join(event.data for event in rest if event.kind == "data")
            assert data.encode() == expected
            assert rest[-1].json["streamClosed"] is True


def test_readers_that_catch_up_slowly_get_it_piece_by_piece(client: Client) -> None:
    path = client.create(TEXT)
    expected = fill(client, path)
    client.close(path)
    before = resident_bytes(client.server)
    with ExitStack() as stack:
        slow = [
            stack.enter_context(client.events(path, receive_buffer=TINY_WINDOW))
            for _ in range(SLOW)
        ]
        # Others read meanwhile, from start to end.
        with client.events(path) as fast:
            data = [event.data for event in fast.rest() if event.kind == "data"]
        assert "".join(data).encode() == expected
        assert resident_bytes(client.server) - before < 150 * MIB
        # And they go on whenever they like.
        data = [event.data for event in slow[0].rest() if event.kind == "data"]
        assert "".join(data).encode() == expected


def test_answers_that_are_not_read(client: Client) -> None:
    """Requests are sent on and on; the server stops taking them."""
    path = client.create(TEXT)
    page = fill(client, path, 12)
    request = request_bytes("GET", f"/v1/stream/{path}")
    before = resident_bytes(client.server)
    with ExitStack() as stack:
        wires = [stack.enter_context(client.wire(receive_buffer=TINY_WINDOW)) for _ in range(8)]
        for wire in wires:
            wire.send(request * 1000)
        for _ in range(20):
            assert client.send("GET", "/healthz").status == 200
            time.sleep(0.01)
        # All of them together have asked for 6 GiB.
        assert resident_bytes(client.server) - before < 120 * MIB
        for _ in range(3):
            assert wires[0].reply().body == page


def test_a_flood_of_small_requests(client: Client) -> None:
    burst = request_bytes("GET", "/healthz") * 5000
    before = resident_bytes(client.server)
    with client.wire(receive_buffer=TINY_WINDOW) as wire:
        taken, blocked = 0, 0
        while blocked < 50 and taken < 256 * MIB:
            sent = wire.send_some(burst[taken % len(burst) :])
            taken += sent
            blocked = 0 if sent else blocked + 1
            if not sent:
                time.sleep(0.01)
        assert taken < 256 * MIB
        assert resident_bytes(client.server) - before < 100 * MIB
        assert client.send("GET", "/healthz").status == 200
        assert [wire.reply().status for _ in range(1000)] == [200] * 1000


def test_a_head_that_grows_behind_a_request_under_way(client: Client) -> None:
    """Nothing may grow without bound while an earlier request is being answered."""
    path = client.create(TEXT)
    before = resident_bytes(client.server)
    with client.long_poll(path, "offset=now") as wire:
        wire.send(b"GET / HTTP/1.1\r\nX: ")
        taken, blocked = 0, 0
        while blocked < 20 and taken < 128 * MIB:
            try:
                sent = wire.send_some(b"y" * MIB)
            except (BrokenPipeError, ConnectionResetError):
                break
            taken += sent
            blocked = 0 if sent else blocked + 1
            if not sent:
                time.sleep(0.01)
        assert resident_bytes(client.server) - before < 64 * MIB
    assert client.send("GET", "/healthz").status == 200


def test_many_requests_that_never_end(client: Client) -> None:
    path = client.create(TEXT)
    head = request_bytes("POST", f"/v1/stream/{path}", TEXT | {"Content-Length": "1000"})
    with ExitStack() as stack:
        for number in range(200):
            wire = stack.enter_context(client.wire())
            wire.send((head + b"half")[: number * 2])
        assert client.post(path, b"x", TEXT).status == 204
        assert client.get(path).body == b"x"
    assert client.send("GET", "/healthz").status == 200


def test_a_body_in_many_tiny_chunks(client: Client) -> None:
    path = client.create(TEXT)
    headers = TEXT | {"Transfer-Encoding": "chunked"}
    body = b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n"
    assert client.post(path, body, headers).status == 204
    assert client.get(path).body == b"x" * 100_000


def test_writers_that_hang_up_are_still_served(client: Client) -> None:
    """A client that does not wait for the answer may have its append stored, but nothing breaks."""
    path = client.create(TEXT, path=fresh())
    for _ in range(50):
        with client.wire() as wire:
            wire.send(request_bytes("POST", f"/v1/stream/{path}", TEXT, b"x"))
    eventually(lambda: client.get(path).body == b"x" * 50)
