"""History over HTTP: bodies that the kernel sends, and everything else that a connection promises.

The server seals at once and keeps nothing but the last append in memory. Its chunks are larger
than a socket takes at a time.
"""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

import pytest

from headwater.http.reads import CATCH_UP_CACHE, HISTORY_CACHE
from tests.http.client import JSON, TEXT, Client, eventually, fresh
from tests.http.conftest import watched
from tests.http.wire import request_bytes
from tests.support.sealing import SEALING_AT_ONCE
from tests.support.server import HOST, ServerProcess

APPEND: Final = 512 * 1024
CHUNK: Final = 6 * 1024 * 1024
TINY_WINDOW: Final = 4096
SETTINGS: Final = (
    *SEALING_AT_ONCE,
    *("--hot-bytes-per-stream-max", "0", "--chunk-bytes-max", str(CHUNK)),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("history") / "data"


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[ServerProcess]:
    with ServerProcess("--data", str(data), *SETTINGS) as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    yield from watched(server)


def text(number: int, size: int = APPEND) -> bytes:
    line = b"%09d " % number
    return (line * (size // len(line) + 1))[:size]


def sealed(data: Path) -> int:
    return sum(path.stat().st_size for path in (data / "segments").glob("*.seg"))


def fill(client: Client, data: Path, count: int) -> tuple[str, bytes]:
    """A stream of `count` appends, all of it history."""
    before = sealed(data) if data.exists() else 0
    path, bodies = fresh("history"), [text(number) for number in range(count)]
    client.create(TEXT, *bodies, path=path)
    eventually(lambda: sealed(data) - before > count * APPEND)
    return path, b"".join(bodies)


@pytest.fixture(scope="module")
def long(server: ServerProcess, data: Path) -> tuple[str, bytes]:
    return fill(Client(server), data, 30)


def target(path: str, offset: str = "-1") -> str:
    return f"/v1/stream/{path}?offset={offset}"


def test_a_long_stream_is_read_whole(client: Client, long: tuple[str, bytes]) -> None:
    path, content = long
    assert client.read_all(path) == content


def test_one_connection_reads_chunk_after_chunk(client: Client, long: tuple[str, bytes]) -> None:
    path, content = long
    received, offset = b"", "-1"
    with client.wire() as wire:
        while len(received) < len(content):
            reply = wire.request("GET", target(path, offset))
            received, offset = received + reply.body, reply.next_offset
    assert received == content


def test_requests_that_were_sent_ahead_are_answered_in_order(
    client: Client, long: tuple[str, bytes]
) -> None:
    """Small answers through the transport and large ones past it, behind each other."""
    path, content = long
    small = request_bytes("GET", "/healthz")
    large = request_bytes("GET", target(path))
    with client.wire() as wire:
        wire.send(small + large + small + small + large + large + small)
        sizes = []
        for _ in range(7):
            reply = wire.reply()
            assert reply.status == 200
            assert reply.body in (b'{"status":"ok"}', content[:CHUNK])
            sizes.append(len(reply.body))
        assert [size > 100 for size in sizes] == [False, True, False, False, True, True, False]


def test_old_clients_get_it_and_then_the_end(client: Client, long: tuple[str, bytes]) -> None:
    path, content = long
    with client.wire() as wire:
        wire.send(request_bytes("GET", target(path), version="1.0"))
        reply = wire.reply()
        assert reply.body == content[:CHUNK]
        assert reply.headers["Connection"] == "close"
        assert wire.is_at_end()


def test_who_asks_for_the_end_gets_it_behind_the_body(
    client: Client, long: tuple[str, bytes]
) -> None:
    path, content = long
    with client.wire() as wire:
        wire.send(request_bytes("GET", target(path), {"Connection": "close"}))
        assert wire.reply().body == content[:CHUNK]
        assert wire.is_at_end()


def test_who_hangs_up_its_sending_half_is_still_answered(
    client: Client, long: tuple[str, bytes]
) -> None:
    path, content = long
    with client.wire(receive_buffer=TINY_WINDOW) as wire:
        wire.send(request_bytes("GET", target(path)))
        wire.finish_sending()
        assert wire.reply().body == content[:CHUNK]
        assert wire.is_at_end()


def test_a_head_and_a_match_have_no_body(client: Client, long: tuple[str, bytes]) -> None:
    path, content = long
    tag = client.get(path).headers["ETag"]
    with client.wire() as wire:
        assert wire.request("HEAD", target(path)).status == 200
        wire.send(request_bytes("GET", target(path), {"If-None-Match": tag}))
        assert wire.reply().status == 304
        assert wire.request("GET", target(path)).body == content[:CHUNK]


def test_those_who_read_slowly_hold_up_nobody(client: Client, long: tuple[str, bytes]) -> None:
    path, content = long
    with ExitStack() as stack:
        slow = [stack.enter_context(client.wire(receive_buffer=TINY_WINDOW)) for _ in range(20)]
        for wire in slow:
            wire.send(request_bytes("GET", target(path)))
        assert client.read_all(path) == content
        for wire in slow[:3]:
            assert wire.reply().body == content[:CHUNK]
            assert wire.request("GET", "/healthz").status == 200


def test_those_who_leave_in_the_middle_leave_nothing(
    client: Client, server: ServerProcess, long: tuple[str, bytes]
) -> None:
    path, content = long
    descriptors = Path(f"/proc/{server.pid}/fd")
    client.get(path)
    before = len([*descriptors.iterdir()])
    for _ in range(30):
        with client.wire(receive_buffer=TINY_WINDOW) as wire:
            wire.send(request_bytes("GET", target(path)) * 3)
            wire.head()
    eventually(lambda: len([*descriptors.iterdir()]) <= before + 2)
    assert client.read_all(path) == content


def test_every_json_chunk_is_an_array(client: Client, data: Path) -> None:
    random, before = Random(5), sealed(data)
    values = [{"n": n, "text": "é" * random.choice([1, 90_000])} for n in range(120)]
    path = client.create(JSON, *[json.dumps(value).encode() for value in values])
    eventually(lambda: sealed(data) - before > 5_000_000)
    found, offset, chunks = [], "-1", 0
    while True:
        reply = client.get(path, f"offset={offset}")
        found += json.loads(reply.body)
        offset, chunks = reply.next_offset, chunks + 1
        if reply.headers.get("Stream-Up-To-Date") == "true":
            break
    assert found == values
    assert chunks > 1


def test_it_is_compressed_for_who_likes_that(client: Client, long: tuple[str, bytes]) -> None:
    path, content = long
    reply = client.get(path, headers={"Accept-Encoding": "gzip"})
    assert reply.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(reply.body) == content[:CHUNK]


def test_history_may_be_kept_for_ever_if_the_offset_says_whose_it_is(
    client: Client, long: tuple[str, bytes]
) -> None:
    path, _ = long
    first = client.get(path, "offset=-1")
    assert first.headers["Cache-Control"] == CATCH_UP_CACHE, "the path could be another's one day"
    second = client.get(path, f"offset={first.next_offset}")
    assert second.headers["Cache-Control"] == HISTORY_CACHE
    last = client.get(path, f"offset={second.next_offset}")
    assert last.headers["Stream-Up-To-Date"] == "true"
    assert last.headers["Cache-Control"] == "no-cache"


def test_what_a_fork_inherits_is_not_its_own_for_ever(
    client: Client, long: tuple[str, bytes]
) -> None:
    """Another fork can come to its path one day and part from the same source elsewhere."""
    source, _ = long
    path = client.create(TEXT | {"Stream-Forked-From": f"/v1/stream/{source}"}, text(99))
    offset = client.get(source, "offset=-1").next_offset
    reply = client.get(path, f"offset={offset}")
    assert reply.headers["Cache-Control"] == CATCH_UP_CACHE
    assert reply.body == client.get(source, f"offset={offset}").body


def test_what_is_under_way_is_finished_before_the_server_ends(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess("--data", str(data), *SETTINGS) as server:
        client = Client(server)
        path, content = fill(client, data, 20)
        with client.wire(receive_buffer=TINY_WINDOW) as wire, ThreadPoolExecutor() as threads:
            wire.send(request_bytes("GET", target(path)))
            first = wire.take_through(b"\r\n\r\n")
            stopped = threads.submit(server.stop)
            # It listens no more: from here on it is stopping.
            eventually(lambda: not listens(server))
            assert f"Content-Length: {CHUNK}".encode() in first
            assert wire.take(CHUNK) == content[:CHUNK]
            assert wire.is_at_end()
            assert stopped.result() == 0
        assert "Traceback" not in server.stderr


def listens(server: ServerProcess) -> bool:
    try:
        socket.create_connection((HOST, server.port)).close()
    except ConnectionRefusedError:
        return False
    return True
