"""HTTP/1.1 itself: bodies, connections, versions, and requests that are none."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.http.client import TEXT, Client, check_error_body, check_every_response, fresh
from tests.http.wire import EndedError, Wire, chunked, request_bytes

HEALTH = request_bytes("GET", "/healthz")


def still_works(wire: Wire) -> bool:
    return wire.request("GET", "/healthz").status == 200


# ── Bodies ───────────────────────────────────────────────────────────────────────────────────


def test_expect_100_continue(client: Client) -> None:
    path = client.create(TEXT)
    head = request_bytes(
        "POST", f"/v1/stream/{path}", TEXT | {"Expect": "100-continue", "Content-Length": "5"}
    )
    with client.wire() as wire:
        wire.send(head)
        assert wire.head().status == 100
        wire.send(b"hello")
        assert wire.reply().status == 204
        assert still_works(wire)
    assert client.get(path).body == b"hello"


def test_expect_100_continue_with_chunks(client: Client) -> None:
    path = client.create(TEXT)
    headers = TEXT | {"Expect": "100-Continue", "Transfer-Encoding": "chunked"}
    with client.wire() as wire:
        wire.send(request_bytes("POST", f"/v1/stream/{path}", headers))
        assert wire.head().status == 100
        wire.send(chunked(b"hel", b"lo"))
        assert wire.reply().status == 204
    assert client.get(path).body == b"hello"


def test_expect_100_continue_while_an_earlier_request_is_under_way(client: Client) -> None:
    path, polled = client.create(TEXT), client.create(TEXT)
    head = request_bytes(
        "POST", f"/v1/stream/{path}", TEXT | {"Expect": "100-continue", "Content-Length": "5"}
    )
    with client.long_poll(polled, "offset=now") as wire:
        wire.send(head)
        client.post(polled, b"news", TEXT)
        assert wire.reply().body == b"news"
        assert wire.head().status == 100
        wire.send(b"hello")
        assert wire.reply().status == 204


def test_a_request_in_tiny_pieces(client: Client) -> None:
    path = client.create(TEXT)
    request = request_bytes("POST", f"/v1/stream/{path}", TEXT, b"hello")
    with client.wire() as wire:
        for index in range(len(request)):
            wire.send(request[index : index + 1])
        assert wire.reply().status == 204
        assert still_works(wire)
    assert client.get(path).body == b"hello"


@pytest.mark.parametrize("size", [1_000, 15_000, 17_000, 100_000, 1_000_000])
def test_a_body_does_not_count_as_a_head(client: Client, size: int) -> None:
    """However much comes at once, the connection goes on behind it."""
    path = client.create(TEXT)
    append = request_bytes("POST", f"/v1/stream/{path}", TEXT, b"x" * size)
    refused = request_bytes("POST", "/healthz", TEXT, b"x" * size)
    with client.wire() as wire:
        for request, status in [(append, 204), (refused, 405), (append, 204), (refused, 405)]:
            wire.send(request)
            assert wire.reply().status == status
        assert wire.request("GET", "/healthz", {"X-Filler": "y" * 4000}).status == 200


def test_a_head_in_pieces_may_be_as_large_as_one_at_once(client: Client) -> None:
    request = request_bytes("GET", "/healthz", {f"X-{n}": "y" * 1000 for n in range(14)})
    with client.wire() as wire:
        wire.send(request)
        assert wire.reply().status == 200
        for index in range(0, len(request), 500):
            wire.send(request[index : index + 500])
        assert wire.reply().status == 200


def test_a_body_where_none_is_expected(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.wire() as wire:
        assert wire.request("GET", f"/v1/stream/{path}", body=b"ignored").body == b"one"
        assert wire.request("DELETE", f"/v1/stream/{path}", body=b"ignored").status == 204
        assert still_works(wire)


@pytest.mark.parametrize(
    "body",
    [
        b"5;name=value\r\nhello\r\n0\r\n\r\n",
        b"05\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
        b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    ],
)
def test_forms_of_chunks(client: Client, body: bytes) -> None:
    path = client.create(TEXT)
    headers = TEXT | {"Transfer-Encoding": "chunked"}
    with client.wire() as wire:
        assert wire.request("POST", f"/v1/stream/{path}", headers, body).status == 204
        assert still_works(wire)
    assert client.get(path).body == b"hello"


# ── Connections ──────────────────────────────────────────────────────────────────────────────


def test_a_connection_is_kept(client: Client) -> None:
    path = client.create(TEXT)
    with client.wire() as wire:
        for _ in range(50):
            assert wire.request("POST", f"/v1/stream/{path}", TEXT, b"x").status == 204
            assert wire.request("GET", "/nowhere").status == 404


def test_a_connection_is_closed_on_request(client: Client) -> None:
    with client.wire() as wire:
        reply = wire.request("GET", "/healthz", {"Connection": "close"})
        assert reply.headers["Connection"] == "close"
        assert wire.is_at_end()


def test_pipelined_requests_are_answered_in_order(client: Client) -> None:
    path = client.create(TEXT)
    target = f"/v1/stream/{path}"
    with client.wire() as wire:
        wire.send(
            b"".join(
                request_bytes("POST", target, TEXT, str(n).encode()) + request_bytes("GET", target)
                for n in range(10)
            )
        )
        for n in range(10):
            assert wire.reply().status == 204
            assert wire.reply().body == b"".join(str(k).encode() for k in range(n + 1))


def test_a_long_queue_behind_a_request_that_takes_its_time(client: Client) -> None:
    path = client.create(TEXT)
    append = request_bytes("POST", f"/v1/stream/{path}", TEXT, b"x")
    with client.wire() as wire:
        wire.send(append + HEALTH * 3000 + append)
        assert wire.reply().status == 204
        assert {wire.reply().status for _ in range(3000)} == {200}
        assert wire.reply().status == 204


def test_what_is_pipelined_behind_nonsense_is_not_answered(client: Client) -> None:
    path = client.create(TEXT)
    append = request_bytes("POST", f"/v1/stream/{path}", TEXT, b"x")
    with client.wire() as wire:
        wire.send_if_open(append + b"nonsense\r\n\r\n" + append)
        assert wire.reply().status == 204
        wire.receive_all()
    assert client.get(path).body == b"x"


@pytest.mark.parametrize("refused", [b"nonsense\r\n\r\n", b"GET /" + b"y" * 20_000])
def test_appends_before_what_is_refused_are_answered(client: Client, refused: bytes) -> None:
    """Every answer before the refusal goes out, and only the last response ends the connection."""
    path = client.create(TEXT)
    append = request_bytes("POST", f"/v1/stream/{path}", TEXT, b"x")
    with client.wire() as wire:
        wire.send_if_open(append * 3 + refused)
        replies = [wire.reply() for _ in range(3)]
        assert [reply.status for reply in replies] == [204] * 3
        assert not any("Connection" in reply.headers for reply in replies[:2])
    assert client.get(path).body == b"xxx"


def test_nothing_is_done_behind_the_end_of_a_connection(client: Client) -> None:
    path = client.create(TEXT)
    target = f"/v1/stream/{path}"
    last = request_bytes("POST", target, TEXT | {"Connection": "close"}, b"last")
    with client.wire() as wire:
        wire.send_if_open(last + request_bytes("POST", target, TEXT, b"not this") * 3)
        assert wire.reply().headers["Connection"] == "close"
        assert wire.is_at_end()
    assert client.get(path).body == b"last"


def test_the_answers_before_nonsense_arrive(client: Client) -> None:
    with client.wire() as wire:
        wire.send(HEALTH * 3 + b"nonsense\r\n\r\n")
        assert [wire.reply().status for _ in range(3)] == [200] * 3
        assert wire.reply().status == 400
        assert wire.is_at_end()


def test_a_client_that_has_said_all_still_gets_its_answer(client: Client) -> None:
    path = client.create(TEXT)
    target = f"/v1/stream/{path}"
    with client.wire() as wire:
        wire.send(request_bytes("POST", target, TEXT, b"hello"))
        wire.finish_sending()
        assert wire.reply().status == 204
        assert wire.is_at_end()


def test_a_client_that_has_said_all_still_gets_all_its_answers(client: Client) -> None:
    path = client.create(TEXT)
    target = f"/v1/stream/{path}"
    with client.wire() as wire:
        wire.send(request_bytes("POST", target, TEXT, b"x") * 3 + request_bytes("GET", target))
        wire.finish_sending()
        assert [wire.reply().status for _ in range(4)] == [204, 204, 204, 200]
        assert wire.is_at_end()


@pytest.mark.parametrize("header", ["close", "keep-alive"])
def test_http_1_0(client: Client, header: str) -> None:
    with client.wire() as wire:
        wire.send(request_bytes("GET", "/healthz", {"Connection": header}, version="1.0"))
        reply = wire.reply()
        check_every_response(reply)
        assert reply.body == b'{"status":"ok"}'
        if reply.headers.get("Connection") == "keep-alive":
            assert still_works(wire)


def test_http_1_0_closes_by_default(client: Client) -> None:
    path = client.create(TEXT)
    with client.wire() as wire:
        target = f"/v1/stream/{path}"
        wire.send(request_bytes("POST", target, TEXT, b"hello", version="1.0"))
        assert wire.reply().status == 204
        assert wire.is_at_end()
    assert client.get(path).body == b"hello"


@pytest.mark.parametrize("more", [b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"])
def test_http_1_0_without_a_host(client: Client, more: bytes) -> None:
    with client.wire() as wire:
        wire.send(b"GET /healthz HTTP/1.0\r\n%b\r\n" % more)
        assert wire.reply().status == 200
        assert wire.is_at_end()


# ── Upgrades ─────────────────────────────────────────────────────────────────────────────────

UPGRADE = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_offer_to_upgrade_is_declined(client: Client, method: str) -> None:
    """The request is answered in HTTP/1.1; so is the next one, or the connection ends."""
    path = client.create(TEXT, b"one")
    body = b"two" if method == "POST" else b""
    with client.wire() as wire:
        reply = wire.request(method, f"/v1/stream/{path}", TEXT | UPGRADE, body)
        assert reply.status == (204 if method == "POST" else 200)
        if reply.headers.get("Connection") == "close":
            assert wire.is_at_end()
        else:
            assert still_works(wire)


def test_what_is_pipelined_behind_an_upgrade_does_not_hang(client: Client) -> None:
    with client.wire() as wire:
        wire.send(request_bytes("GET", "/healthz", UPGRADE) + HEALTH)
        assert wire.reply().status == 200
        with suppress(EndedError):
            assert wire.reply().status == 200


def test_connect_is_no_method_of_ours(client: Client) -> None:
    with client.wire() as wire:
        wire.send(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n")
        reply = wire.reply()
        check_every_response(reply)
        assert 400 <= reply.status < 500


# ── Requests that are none ───────────────────────────────────────────────────────────────────

NONSENSE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS handshake
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /healthz HTTP/9.9\r\n\r\n",
    b"get /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"BREW /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /health z HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nNo colon\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nBad name: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nBad : x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 5x\r\n\r\nhello",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\n"
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\n"
    b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nhello",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: "
    b"chunked\r\n\r\n0\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nX-Host: a\r\n\r\n",
    b"GET http://localhost/healthz HTTP/1.1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: other.example\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nhello",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"f" * 20
    + b"\r\nx\r\n",
]


@pytest.mark.parametrize("data", NONSENSE, ids=lambda data: repr(data)[:60])
def test_nonsense_is_refused_and_the_connection_ends(client: Client, data: bytes) -> None:
    with client.wire() as wire:
        wire.send_if_open(data)
        reply = wire.reply()
        check_every_response(reply)
        check_error_body(reply)
        assert reply.status in (400, 413)
        assert reply.headers["Connection"] == "close"
        assert wire.is_at_end()


def test_a_request_that_stops_half_way_does_no_harm(client: Client) -> None:
    path = client.create(TEXT)
    request = request_bytes("POST", f"/v1/stream/{path}", TEXT, b"hello")
    for size in range(0, len(request), 7):
        with client.wire() as wire:
            wire.send(request[:size])
    with client.wire() as wire:
        assert still_works(wire)
    assert client.get(path).body == b""


def test_smuggling_needs_a_parser_that_is_fooled(client: Client) -> None:
    """A body that looks like a request stays a body."""
    path, target = client.create(TEXT), fresh("smuggled")
    inner = request_bytes("PUT", f"/v1/stream/{target}")
    assert client.post(path, inner, TEXT).status == 204
    assert client.get(path).body == inner
    assert client.get(target).status == 404
