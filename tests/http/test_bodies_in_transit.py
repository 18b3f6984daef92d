"""Bodies on their way: what strangers, the idle and the greedy send must not fill the memory.

Memory is read from /proc and held against bounds that are generous: without limits, each of these
would take several times as much.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.http.client import CLOSE, JSON, TEXT, Client, error_code, eventually
from tests.http.conftest import watched
from tests.http.test_slow_clients import cpu_s, resident_bytes
from tests.http.wire import Wire, chunked, request_bytes
from tests.support.server import HOST, ServerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads memory from /proc")

MIB: Final = 1024 * 1024
BODY: Final = 60 * MIB
BUDGET: Final = 8 * MIB
BODY_MAX: Final = 2 * MIB
CACHE: Final = 64 * MIB
"""Of SQLite."""


def resident_peak(server: ServerProcess) -> int:
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def send_and_hang_up(port: int, head: bytes, size: int = BODY) -> None:
    block = b"x" * MIB
    with socket.create_connection((HOST, port)) as peer, suppress(OSError):
        peer.sendall(head)
        for _ in range(size // MIB):
            peer.sendall(block)


def announcing(method: str, target: str, size: int, **headers: str) -> bytes:
    return request_bytes(method, target, TEXT | headers | {"Content-Length": str(size)})


@pytest.fixture(scope="module", params=["open", "guarded"])
def plain_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    if request.param == "open":
        with ServerProcess("--memory") as server:
            yield server
        return
    data = tmp_path_factory.mktemp("guarded")
    command = [sys.executable, "-m", "headwater", "keys", "create", "--data", str(data)]
    subprocess.run([*command, "--admin", "**"], check=True, capture_output=True)
    with ServerProcess("--data", str(data)) as server:
        yield server


@pytest.mark.parametrize(
    "method, target",
    [
        ("POST", "/healthz"),
        ("GET", "/openapi.json"),
        ("POST", "/v1/stream/a/_details"),
        ("PUT", "/nowhere"),
        ("POST", "/v1/stream/__ds/subscriptions/s/callback"),
    ],
)
def test_large_bodies_to_where_none_is_wanted(
    plain_server: ServerProcess, method: str, target: str
) -> None:
    """Ten of them would be 600 MiB."""
    before = resident_bytes(plain_server)
    for _ in range(10):
        send_and_hang_up(plain_server.port, announcing(method, target, BODY + 1))
    assert resident_peak(plain_server) - before < 100 * MIB
    assert Client(plain_server).send("GET", "/healthz").status == 200


def test_large_bodies_that_are_never_complete(plain_server: ServerProcess) -> None:
    """Each is let go of with its connection, and not when the collector comes by."""
    before = resident_bytes(plain_server)
    for _ in range(20):
        send_and_hang_up(plain_server.port, announcing("POST", "/v1/stream/a", BODY + 1))
    assert resident_peak(plain_server) - before < 4 * BODY
    eventually(lambda: resident_bytes(plain_server) - before < 100 * MIB)


def test_idle_connections_keep_nothing_of_what_they_sent(plain_server: ServerProcess) -> None:
    """Ten of them would keep 600 MiB, and a failed request as much until the collector ran."""
    before = resident_bytes(plain_server)
    messages = b"[" + b",".join([b"1"] * (BODY // 2)) + b"]"
    head = request_bytes("POST", "/v1/transaction", JSON | {"Content-Length": str(len(messages))})
    with ExitStack() as stack:
        for _ in range(10):
            wire = stack.enter_context(Wire(plain_server.port))
            wire.send_if_open(head + messages)
            assert wire.reply().status in (400, 401)
        eventually(lambda: resident_bytes(plain_server) - before < 2 * BODY)


@pytest.mark.parametrize("kind", [JSON, TEXT])
def test_nothing_is_kept_of_a_large_append(tmp_path: Path, kind: dict[str, str]) -> None:
    """Neither by the one who sent it, nor by SQLite, which keeps its cache."""
    with ServerProcess(
        "--data",
        str(tmp_path),
        "--no-seal",
        "--hot-bytes-max",
        "0",
        "--hot-bytes-per-stream-max",
        "0",
    ) as server:
        client = Client(server)
        path = client.create(kind)
        body = b'"%b"' % (b"x" * BODY)
        before = resident_bytes(server)
        for _ in range(3):
            assert client.post(path, body, kind).status == 204
        eventually(lambda: resident_bytes(server) - before < CACHE + BODY // 2)


# ── One budget for all ───────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def small_server() -> Iterator[ServerProcess]:
    sizes = ["--body-bytes-max", str(BODY_MAX), "--bodies-bytes-max", str(BUDGET)]
    with ServerProcess("--memory", *sizes) as server:
        yield server


@pytest.fixture
def small(small_server: ServerProcess) -> Iterator[Client]:
    yield from watched(small_server)


def from_address(port: int, address: str) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=60, source_address=(address, 0))


def figure(client: Client, name: str) -> float:
    reply = client.send("GET", "/metrics")
    if reply.status == 503:
        return float("nan")
    lines = reply.body.decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def test_one_caller_gets_half_and_others_what_is_left(small: Client) -> None:
    path = small.create(TEXT)
    head = announcing("POST", f"/v1/stream/{path}", BODY_MAX)
    with ExitStack() as stack:
        mine = [stack.enter_context(small.wire()) for _ in range(4)]
        for wire in mine[:2]:
            wire.send(head + b"begun")
        eventually(lambda: figure(small, "headwater_body_bytes") == 2 * BODY_MAX)
        for wire in mine[2:]:
            wire.send(head + b"begun")
            reply = wire.reply()
            assert (reply.status, error_code(reply)) == (503, "bodies_full")
            assert int(reply.headers["Retry-After"]) >= 1
            assert reply.headers["Connection"] == "close"
        # Neither small bodies nor others are concerned.
        assert small.post(path, b"small", TEXT).status == 204
        other = stack.enter_context(from_address(small.server.port, "127.0.0.2"))
        other.sendall(head + b"y" * BODY_MAX)
        assert other.recv(100).startswith(b"HTTP/1.1 204 ")
        # And those that were let in are taken in.
        mine[0].send(b"z" * (BODY_MAX - 5))
        assert mine[0].reply().status == 204
    eventually(lambda: figure(small, "headwater_body_bytes") == 0)


def test_chunks_without_a_length_count_as_they_come(small: Client) -> None:
    path = small.create(TEXT)
    head = request_bytes("POST", f"/v1/stream/{path}", TEXT | {"Transfer-Encoding": "chunked"})
    chunk = b"%x\r\n%b\r\n" % (MIB, b"x" * MIB)
    with ExitStack() as stack:
        wires = [stack.enter_context(small.wire()) for _ in range(10)]
        for wire in wires:
            wire.send_if_open(head + chunk)
        eventually(lambda: BODY_MAX < figure(small, "headwater_body_bytes") <= BUDGET // 2)
        assert small.send("GET", "/healthz").status == 200
    eventually(lambda: figure(small, "headwater_body_bytes") == 0)


def test_a_body_counts_until_its_request_is_answered(small: Client) -> None:
    """A fetch that waits keeps its body no longer than it is allowed to."""
    path = small.create(JSON)
    assert small.send("PUT", f"/v1/stream/{path}/_groups/g", JSON, b"{}").status in (200, 201)
    fetch = json.dumps({"consumer": "m", "wait_ms": 30_000}).encode() + b" " * 100_000
    with small.wire() as wire:
        wire.send(request_bytes("POST", f"/v1/stream/{path}/_groups/g/fetch", JSON, fetch))
        eventually(lambda: figure(small, "headwater_body_bytes") >= 100_000)
    eventually(lambda: figure(small, "headwater_body_bytes") == 0)


def test_bodies_that_only_say_what_to_do_are_small(plain_server: ServerProcess) -> None:
    head = announcing("POST", "/v1/stream/__ds/subscriptions/s/callback", 5 * MIB)
    with Wire(plain_server.port) as wire:
        wire.send(head)
        assert wire.reply().status == 413


# ── Bodies that nobody needs ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [MIB + 1, BODY_MAX])
def test_too_much_of_no_use_ends_the_connection_after_the_answer(small: Client, size: int) -> None:
    with small.wire() as wire:
        wire.send(announcing("POST", "/healthz", size))
        reply = wire.reply()
        assert (reply.status, reply.headers["Connection"]) == (405, "close")
        # It may go on sending and still reads the answer, which is here already.
        wire.send_if_open(b"x" * size)


def test_chunks_of_no_use_are_read_over(small: Client) -> None:
    headers = {"Transfer-Encoding": "chunked"}
    with small.wire() as wire:
        body = chunked(*[b"x" * 100_000] * 8)
        assert wire.request("POST", "/healthz", headers, body).status == 405
        assert wire.request("GET", "/healthz").status == 200
        wire.send_if_open(request_bytes("POST", "/healthz", headers))
        for _ in range(30):
            wire.send_if_open(b"%x\r\n%b\r\n" % (100_000, b"x" * 100_000))
        assert wire.reply().status == 405


def test_nobody_is_asked_for_a_body_of_no_use(small: Client) -> None:
    with small.wire() as wire:
        headers = {"Content-Length": "5", "Expect": "100-continue"}
        wire.send(request_bytes("POST", "/healthz", headers))
        assert wire.reply().status == 405


# ── Trailers and what else comes with chunks ─────────────────────────────────────────────────


def in_chunks(path: str, end: bytes) -> bytes:
    headers = TEXT | {"Transfer-Encoding": "chunked"}
    return request_bytes("POST", f"/v1/stream/{path}", headers) + b"5\r\nhello\r\n" + end


def test_trailers_are_dropped(small: Client) -> None:
    path = small.create(TEXT)
    trailers = [*(f"{name}: {value}" for name, value in CLOSE.items()), "Stream-Seq: 5"]
    with small.wire() as wire:
        wire.send(in_chunks(path, "\r\n".join(["0", *trailers, "", ""]).encode()))
        assert wire.reply().status == 204
        assert wire.request("GET", "/healthz").status == 200
    assert "Stream-Closed" not in small.head(path).headers
    assert small.get(path).body == b"hello"


TRAILERS: Final = {
    "many": b"A: b\r\n" * 101,
    "a flood": b"A: b\r\n" * 100_000,
    "large": b"A: %b\r\n" % (b"x" * 17_000),
    "large together": b"A: %b\r\n" % (b"x" * 6_000) * 3,
}


@pytest.mark.parametrize("trailers", TRAILERS.values(), ids=TRAILERS.keys())
def test_trailers_over_the_limits_of_headers(small: Client, trailers: bytes) -> None:
    path = small.create(TEXT)
    with small.wire() as wire:
        wire.send_if_open(in_chunks(path, b"0\r\n" + trailers + b"\r\n"))
        assert wire.reply().status == 431
    assert small.get(path).body == b""


@pytest.mark.parametrize(
    "start", [b"0\r\nX: ", b"0\r\nX", b"5;x=", b"5;", b"000"], ids=["value", "name", "x", ";", "0"]
)
def test_lines_that_never_end(small: Client, start: bytes) -> None:
    """A value that grows by a bit each time costs what the limit allows, and not its square."""
    path = small.create(TEXT)
    with small.wire() as wire:
        wire.send(in_chunks(path, start))
        taken = 0
        for _ in range(32):
            wire.send_if_open((b"0" if start == b"000" else b"x") * MIB)
            taken += MIB
        assert wire.reply().status == 431
    assert small.send("GET", "/healthz").status == 200


def test_many_tiny_chunks_take_no_more_than_their_size() -> None:
    """As a list of chunks this would be 350 MiB."""
    with ServerProcess("--memory") as server:
        client = Client(server)
        path = client.create(TEXT)
        before = resident_bytes(server)
        headers = TEXT | {"Transfer-Encoding": "chunked"}
        block, worst_s = b"2\r\nxy\r\n" * 20_000, 0.0
        with client.wire() as wire:
            wire.send(request_bytes("POST", f"/v1/stream/{path}", headers))
            for _ in range(300):
                wire.send(block)
                began_s = cpu_s(server)
                assert client.send("GET", "/healthz").status == 200
                worst_s = max(worst_s, cpu_s(server) - began_s)
            assert resident_bytes(server) - before < 80 * MIB
            wire.send(b"0\r\n\r\n")
            assert wire.reply().status == 204
        assert len(client.get(path).body) == 12_000_000
        # Others have their turn in between; all of it at once is seconds of work.
        assert worst_s < 2


def test_pipelined_requests_wait_as_bytes(small: Client) -> None:
    """A request takes far more room once it is one."""
    path = small.create(TEXT)
    poll = request_bytes("GET", f"/v1/stream/{path}?offset=now&live=long-poll")
    before = resident_bytes(small.server)
    with ExitStack() as stack:
        for _ in range(100):
            wire = stack.enter_context(small.wire())
            wire.send(poll)
            wire.send_some(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 9_000)
        time.sleep(0.5)
        assert small.send("GET", "/healthz").status == 200
        # As requests they would be a GiB.
        assert resident_bytes(small.server) - before < 150 * MIB
