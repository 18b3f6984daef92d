"""What one server takes on before it says no, and that it says so in the right way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.http.client import (
    CLOSE,
    TEXT,
    Client,
    check_error_body,
    check_every_response,
    error_code,
    eventually,
    fresh,
    producer,
)
from tests.http.conftest import watched
from tests.http.wire import Reply, Wire, chunked, request_bytes
from tests.support.server import ServerProcess

BODY_MAX = 50_000
HEAD_MAX = 4096
CONNECTIONS_MAX = 40
READERS_MAX = 3

LIMITS = {
    "--body-bytes-max": BODY_MAX,
    "--header-bytes-max": HEAD_MAX,
    "--connections-max": CONNECTIONS_MAX,
    "--readers-per-stream-max": READERS_MAX,
}


@pytest.fixture(scope="module")
def small_server() -> Iterator[ServerProcess]:
    arguments = [word for name, value in LIMITS.items() for word in (name, str(value))]
    with ServerProcess("--memory", *arguments) as server:
        yield server


@pytest.fixture
def small(small_server: ServerProcess) -> Iterator[Client]:
    yield from watched(small_server)


def refusal(wire: Wire) -> Reply:
    """A refusal that ends the connection."""
    reply = wire.reply()
    check_every_response(reply)
    check_error_body(reply)
    assert reply.headers["Connection"] == "close"
    return reply


# ── Bodies ───────────────────────────────────────────────────────────────────────────────────


def test_the_largest_body(small: Client) -> None:
    path = small.create(TEXT)
    assert small.post(path, b"x" * BODY_MAX, TEXT).status == 204
    body = chunked(b"y" * (BODY_MAX - 1), b"z")
    assert small.post(path, body, TEXT | {"Transfer-Encoding": "chunked"}).status == 204
    assert len(small.get(path).body) == 2 * BODY_MAX


def test_a_body_that_announces_too_much(small: Client) -> None:
    path = small.create(TEXT)
    headers = TEXT | {"Content-Length": str(BODY_MAX + 1)}
    with small.wire() as wire:
        # The answer comes although nothing of the body was sent.
        wire.send(request_bytes("POST", f"/v1/stream/{path}", headers))
        reply = refusal(wire)
    assert (reply.status, error_code(reply)) == (413, "body_too_large")
    assert small.get(path).body == b""


def test_a_body_that_announces_too_much_is_not_asked_for(small: Client) -> None:
    path = small.create(TEXT)
    headers = TEXT | {"Content-Length": str(BODY_MAX + 1), "Expect": "100-continue"}
    with small.wire() as wire:
        wire.send(request_bytes("POST", f"/v1/stream/{path}", headers))
        assert refusal(wire).status == 413


@pytest.mark.parametrize("size", [BODY_MAX + 1, 5_000_000])
def test_one_who_sends_it_all_first_hears_it_too(small: Client, size: int) -> None:
    path = small.create(TEXT)
    with small.wire() as wire:
        wire.send_if_open(request_bytes("POST", f"/v1/stream/{path}", TEXT, b"x" * size))
        assert refusal(wire).status == 413
    assert small.get(path).body == b""


@pytest.mark.parametrize("parts", [[BODY_MAX + 1], [BODY_MAX, 1], [1000] * 51, [5_000_000]])
def test_chunks_that_add_up_to_too_much(small: Client, parts: list[int]) -> None:
    path = small.create(TEXT)
    headers = TEXT | {"Transfer-Encoding": "chunked"}
    body = chunked(*[b"x" * part for part in parts])
    with small.wire() as wire:
        wire.send_if_open(request_bytes("POST", f"/v1/stream/{path}", headers, body))
        reply = refusal(wire)
    assert (reply.status, error_code(reply)) == (413, "body_too_large")
    assert small.get(path).body == b""


def test_a_refused_body_moves_nothing(small: Client) -> None:
    path = small.create(TEXT)
    headers = TEXT | CLOSE | producer(0, 0)
    with small.wire() as wire:
        wire.send_if_open(
            request_bytes("POST", f"/v1/stream/{path}", headers, b"x" * (BODY_MAX + 1))
        )
        assert refusal(wire).status == 413
    assert "Stream-Closed" not in small.head(path).headers
    assert small.post(path, b"x", TEXT | producer(0, 0)).status == 200


def test_a_stream_is_not_created_with_too_much(small: Client) -> None:
    path = fresh()
    with small.wire() as wire:
        wire.send_if_open(request_bytes("PUT", f"/v1/stream/{path}", TEXT, b"x" * (BODY_MAX + 1)))
        assert refusal(wire).status == 413
    assert small.get(path).status == 404


# ── Heads ────────────────────────────────────────────────────────────────────────────────────


def test_a_head_below_the_limit(small: Client) -> None:
    filler = "y" * (HEAD_MAX - 200)
    with small.wire() as wire:
        for _ in range(5):
            assert wire.request("GET", "/healthz", {"X-Filler": filler}).status == 200
            assert wire.request("GET", f"/healthz?{filler}").status == 200


LARGE_HEADS = {
    "one long header": {"X-Filler": "y" * HEAD_MAX},
    "one enormous header": {"X-Filler": "y" * 2_000_000},
    "many headers": {f"X-{n}": "y" * 20 for n in range(200)},
    "many enormous headers": {f"X-{n}": "y" * 2000 for n in range(500)},
    "a long name": {"X" * HEAD_MAX: "y"},
}


@pytest.mark.parametrize("headers", LARGE_HEADS.values(), ids=LARGE_HEADS.keys())
def test_a_head_that_is_too_large(small: Client, headers: dict[str, str]) -> None:
    with small.wire() as wire:
        wire.send_if_open(request_bytes("GET", "/healthz", headers))
        reply = refusal(wire)
    assert (reply.status, error_code(reply)) == (431, "headers_too_large")


@pytest.mark.parametrize("size", [HEAD_MAX, 2_000_000])
def test_a_target_that_is_too_long(small: Client, size: int) -> None:
    with small.wire() as wire:
        wire.send_if_open(request_bytes("GET", "/" + "y" * size))
        assert refusal(wire).status == 431


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\nX"])
def test_a_head_that_never_ends(small: Client, start: bytes) -> None:
    with small.wire() as wire:
        wire.send(start)
        for _ in range(3 * HEAD_MAX // 100):
            wire.send_if_open(b"y" * 100)
        assert refusal(wire).status == 431


# ── Connections ──────────────────────────────────────────────────────────────────────────────


def test_too_many_connections(small: Client) -> None:
    with ExitStack() as stack:
        wires: list[Wire] = []

        def is_full() -> bool:
            wire = stack.enter_context(small.wire())
            reply = wire.request("GET", "/healthz")
            # While connections of the test before are still there, a probe is answered, no more.
            if "Connection" not in reply.headers:
                assert reply.status == 200
                wires.append(wire)
            return len(wires) == CONNECTIONS_MAX

        eventually(is_full)
        with small.wire() as another:
            reply = refusal(another)
            assert (reply.status, error_code(reply)) == (503, "too_many_connections")
            assert int(reply.headers["Retry-After"]) >= 1
            assert another.is_at_end()
        for wire in wires:
            assert wire.request("GET", "/healthz").status == 200
        wires[0].close()
        eventually(lambda: has_room(small))
    eventually(lambda: has_room(small))


def has_room(client: Client) -> bool:
    with client.wire() as wire:
        wire.send_if_open(request_bytes("GET", "/healthz"))
        return wire.reply().status == 200


# ── Live readers ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["sse", "long-poll"])
def test_too_many_readers_of_one_stream(small: Client, mode: str) -> None:
    path, other = small.create(TEXT, b"one"), small.create(TEXT, b"one")
    with ExitStack() as stack:
        readers = [stack.enter_context(small.events(path)) for _ in range(READERS_MAX)]
        reply = small.get(path, f"offset=now&live={mode}")
        assert (reply.status, error_code(reply)) == (429, "too_many_readers")
        assert int(reply.headers["Retry-After"]) >= 1
        # Neither those who are there nor other streams nor plain reads are affected.
        assert small.get(path).body == b"one"
        stack.enter_context(small.events(other))
        small.post(path, b"two", TEXT)
        for reader in readers:
            assert reader.until_caught_up()[0] == ["one"]
            assert reader.pair()[0] == "two"
    eventually(lambda: small.readers(path) == 0)
    with small.events(path) as reader:
        assert reader.pair()[0] == "onetwo"


def test_readers_that_come_and_go_leave_no_trace(small: Client) -> None:
    path = small.create(TEXT, b"one")
    target = f"/v1/stream/{path}?offset=-1&live=sse"
    for _ in range(30):
        with small.wire() as wire:
            wire.send(request_bytes("GET", target))
    eventually(lambda: small.readers(path) == 0)
    with ExitStack() as stack:
        for _ in range(READERS_MAX):
            stack.enter_context(small.events(path))
        assert small.get(path, "offset=now&live=sse").status == 429


def test_refused_readers_do_not_count(small: Client) -> None:
    path = small.create(TEXT, b"one")
    for query in ("offset=bad&live=sse", "live=sse", "offset=-1&live=x"):
        for _ in range(2 * READERS_MAX):
            assert small.get(path, query).status == 400
    assert small.readers(path) == 0


# ── The write queue ──────────────────────────────────────────────────────────────────────────


def test_a_full_write_queue() -> None:
    body = b"0123456789" * 100
    # Commits are half a second apart, and the queue holds but a few appends in between.
    limits = {"--linger-ms": 500, "--body-bytes-max": 2000, "--queue-bytes-max": 5000}
    arguments = [word for name, value in limits.items() for word in (name, str(value))]
    with ServerProcess("--memory", *arguments) as server:
        client = Client(server)
        path = client.create(TEXT)
        with ExitStack() as stack:
            wires = [stack.enter_context(client.wire()) for _ in range(16)]
            for wire in wires:
                wire.send(request_bytes("POST", f"/v1/stream/{path}", TEXT, body))
            replies = [wire.reply() for wire in wires]
        accepted = [reply for reply in replies if reply.status == 204]
        refused = [reply for reply in replies if reply.status == 429]
        assert accepted
        assert refused
        assert len(accepted) + len(refused) == len(replies)
        for reply in refused:
            check_every_response(reply)
            assert error_code(reply) == "too_busy"
            assert int(reply.headers["Retry-After"]) >= 1
        assert client.get(path).body == body * len(accepted)
        # It was a moment's trouble.
        assert client.post(path, b"x", TEXT).status == 204
