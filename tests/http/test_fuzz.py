"""Requests that nobody would write. No 5xx, no traceback, no hang, and life goes on.

Every run makes the same requests. `FUZZ_EXAMPLES=5000 pytest tests/http/test_fuzz.py` makes as
many other ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.http.client import Client, check_error_body, check_every_response
from tests.http.conftest import watched
from tests.http.wire import Reply, Wire
from tests.support import seeds
from tests.support.engines import serving
from tests.support.server import ServerProcess

EXAMPLES: Final = int(os.environ.get("FUZZ_EXAMPLES", "0"))
fuzz = settings(
    max_examples=EXAMPLES or 250,
    derandomize=not (EXAMPLES or seeds.EXPLORED),
    database=None,
    deadline=None,
    # The server is the same for all examples on purpose: they also meet what others left behind.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

LIMITS = {
    "--long-poll-timeout-ms": 20,
    "--producer-wait-ms": 2,
    "--body-bytes-max": 5000,
    "--header-bytes-max": 4096,
    "--chunk-bytes-max": 500,
}


@pytest.fixture(scope="module")
def fuzzed_server(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    arguments = [word for name, value in LIMITS.items() for word in (name, str(value))]
    with serving(engine, tmp_path_factory.mktemp("fuzz"), *arguments) as server:
        yield server


@pytest.fixture
def client(fuzzed_server: ServerProcess) -> Iterator[Client]:
    yield from watched(fuzzed_server)


# ── Well-framed requests with anything inside ────────────────────────────────────────────────

TOKEN = "0000000000000001_0000000000000003"
METHODS = ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND"]

# What may stand in a target without ending it; encoded bytes come on top.
plain_text = st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="?#"), max_size=20
)
encoded_text = st.binary(max_size=8).map(lambda data: "".join(f"%{byte:02x}" for byte in data))
segment = st.one_of(
    st.sampled_from(
        ["a", "b", "c", "_details", "_position", "_groups", "__ds", "..", ".", "", "%"]
    ),
    plain_text,
    encoded_text,
)
path = st.one_of(
    st.sampled_from(["a", "b", "a/b"]).map(lambda name: f"/v1/stream/{name}"),
    st.lists(segment, min_size=1, max_size=4).map(lambda parts: "/v1/stream/" + "/".join(parts)),
    st.sampled_from(["/", "/healthz", "/readyz", "/v1/streams", "/v1/stream", "http://x/v1/streams"]),
    st.lists(segment, max_size=3).map(lambda parts: "/" + "/".join(parts)),
)  # fmt: skip
query_value = st.one_of(
    st.sampled_from(
        ["", "-1", "now", TOKEN, "0", "1", "999999999999999999999", "long-poll", "false", "a", "%"]
    ),
    plain_text,
    encoded_text,
)
query_name = st.one_of(
    st.sampled_from(["offset", "live", "cursor", "prefix", "after", "limit", "last", "at"]),
    plain_text,
)
query = st.lists(st.tuples(query_name, query_value), max_size=5).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
)
target = st.builds(lambda path, query: f"{path}?{query}" if query else path, path, query)

header_name = st.sampled_from(
    [
        "Content-Type", "Accept-Encoding", "If-None-Match", "Stream-TTL", "Stream-Expires-At",
        "Stream-Closed", "Stream-Seq", "Stream-Forked-From", "Stream-Fork-Offset",
        "Stream-Fork-Sub-Offset", "Producer-Id", "Producer-Epoch", "Producer-Seq", "Origin",
        "Authorization", "Range", "Cookie", "Accept", "X-Anything",
    ]
)  # fmt: skip
header_value = st.one_of(
    st.sampled_from(
        [
            "", "text/plain", "application/json", "application/json; charset=utf-8", "true", "0",
            "1", "2", "9007199254740991", "9007199254740992", "-1", "1e5", "99999999999999999999",
            "2100-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59",
            "2020-02-30T00:00:00Z", TOKEN, "now", "a", "/v1/stream/a", "/v1/stream/a/b", "b",
            "gzip, br;q=0.5, *;q=nan", "*", 'W/"x"', ",,,;;;===",
        ]
    ),
    st.text(
        st.characters(max_codepoint=0xFF, exclude_categories=["Cc"], exclude_characters="\x7f"),
        max_size=30,
    ),
    st.integers(min_value=0, max_value=4000).map(lambda size: "y" * size),
)  # fmt: skip
headers = st.dictionaries(header_name, header_value, max_size=6)
body = st.one_of(
    st.just(b""),
    st.binary(max_size=200),
    st.sampled_from([b"[]", b"{}", b"[1,2,3]", b'"x"', b"null", b"NaN", b"[" * 4000, b"x" * 6000]),
)


class Request:
    """A request with a correct frame around whatever is in it."""

    def __init__(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.method = method
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.data = "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def __repr__(self) -> str:
        return repr(self.data)


requests = st.builds(Request, st.sampled_from(METHODS), target, headers, body)


def checked(reply: Reply, method: str) -> Reply:
    assert reply.status < 500
    check_every_response(reply)
    if reply.status >= 400 and method != "HEAD":
        check_error_body(reply)
    return reply


def is_alive(client: Client) -> bool:
    return client.send("GET", "/healthz").status == 200


@fuzz
@given(request=requests)
def test_any_request_has_an_answer(client: Client, request: Request) -> None:
    note(f"sent: {request}")
    with client.wire() as wire:
        wire.send_if_open(request.data)
        checked(wire.reply(head_only=request.method == "HEAD"), request.method)
    assert is_alive(client)


@fuzz
@given(batch=st.lists(requests, min_size=2, max_size=6), cuts=st.lists(st.integers(0, 3000)))
def test_pipelined_requests_have_their_answers_in_order(
    client: Client, batch: list[Request], cuts: list[int]
) -> None:
    data = b"".join(request.data for request in batch)
    note(f"sent: {pieces(data, cuts)}")
    with client.wire() as wire:
        for piece in pieces(data, cuts):
            wire.send_if_open(piece)
        for request in batch:
            reply = checked(wire.reply(head_only=request.method == "HEAD"), request.method)
            if reply.headers.get("Connection") == "close":
                # One of them was refused, and nothing is answered behind that. (The refusal of a
                # head that was not read to its end has a body, whatever the method was.)
                assert STATUS.search(wire.receive_all()) is None
                break
    assert is_alive(client)


@fuzz
@given(
    query=query, name=st.sampled_from(["a", "b", "a/b"]), live=st.sampled_from(["sse", "long-poll"])
)
def test_live_reads_begin_or_are_refused(client: Client, query: str, name: str, live: str) -> None:
    client.put(name, {"Content-Type": "text/plain"})
    request = Request("GET", f"/v1/stream/{name}?{query}&live={live}", {}, b"")
    note(f"sent: {request}")
    with client.wire() as wire:
        wire.send(request.data)
        checked_head = wire.head()
        assert checked_head.status < 500
        check_every_response(checked_head)
    assert is_alive(client)


# ── Anything at all ──────────────────────────────────────────────────────────────────────────

FRAGMENTS = [
    b"GET / HTTP/1.1\r\nHost: a\r\n", b"POST /v1/stream/a HTTP/1.1\r\nHost: a\r\n",
    b"PUT /v1/stream/a HTTP/1.1\r\nHost: a\r\n",
    b"GET /v1/stream/a?offset=-1&live=sse HTTP/1.1\r\nHost: a\r\n",
    b"HEAD /v1/stream/a HTTP/1.0\r\n",
    b"GET /v1/stream/a?offset=now&live=long-poll HTTP/1.1\r\nHost: a\r\n",
    b"DELETE /v1/stream/a HTTP/1.1\r\nHost: a\r\n", b"CONNECT x:1 HTTP/1.1\r\nHost: a\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n", b"GET http://[::1 HTTP/1.1\r\nHost: a\r\n",
    b"GET \xff\xfe HTTP/1.1\r\nHost: a\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /\r\n",
    b"Host: localhost\r\n", b"Content-Length: 3\r\n", b"Content-Length: 0\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 18446744073709551616\r\n", b"Content-Length: 99999\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: x\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    b"Expect: 100-continue\r\n", b"Expect: 200-ok\r\n", b"Content-Type: text/plain\r\n",
    b"Content-Type: application/json\r\n", b" folded: value\r\n", b"\tfolded\r\n", b": empty\r\n",
    b"no colon\r\n", b"X: " + b"y" * 5000 + b"\r\n", b"Stream-Closed: true\r\n", b"\xff: \xff\r\n",
    b"Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0\r\n", b"Stream-TTL: 1\r\n",
    b"\r\n", b"\n", b"\r", b"\x00", b"\r\n\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n", b"-1\r\n",
    b"ffffffffffffffff\r\n", b"3;x=y\r\nabc\r\n", b"abc", b"[1,2]", b"0\r\nTrailer: x\r\n\r\n",
]  # fmt: skip
anything = st.lists(
    st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=30)), min_size=1, max_size=12
).map(b"".join)
STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in pairwise(places)]


def exchange(wire: Wire, data: bytes, cuts: list[int]) -> list[int]:
    """Send, say that this was all, and wait for the server to say so too."""
    note(f"sent: {pieces(data, cuts)}")
    for piece in pieces(data, cuts):
        wire.send_if_open(piece)
    wire.finish_sending()
    return [int(status) for status in STATUS.findall(wire.receive_all())]


@fuzz
@given(data=anything, cuts=st.lists(st.integers(0, 500), max_size=4))
def test_anything_at_all(client: Client, data: bytes, cuts: list[int]) -> None:
    with client.wire() as wire:
        statuses = exchange(wire, data, cuts)
    assert all(status < 500 for status in statuses)
    assert is_alive(client)


@fuzz
@given(
    request=requests,
    changes=st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(max_size=3)),
        min_size=1,
        max_size=4,
    ),
)
def test_requests_with_a_few_bytes_changed(
    client: Client, request: Request, changes: list[tuple[int, int, bytes]]
) -> None:
    data = request.data
    for place, removed, added in changes:
        data = data[:place] + added + data[place + removed :]
    with client.wire() as wire:
        statuses = exchange(wire, data, [])
    assert all(status < 500 for status in statuses)
    assert is_alive(client)
