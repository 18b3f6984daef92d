"""GET, HEAD and DELETE without waiting: every answer of the contract."""

from __future__ import annotations

import re

import pytest

from tests.http import contract
from tests.http.client import JSON, TEXT, Client, error_code, fresh
from tests.http.contract import Case, rows

START = "0000000000000000_0000000000000000"
TOKEN = re.compile(r"[0-9]{16}_[0-9]{16}")
OPEN_TAIL = {
    "Stream-Next-Offset": None,
    "Stream-Up-To-Date": "true",
    "ETag": None,
    "Cache-Control": "no-cache",
}
NO_LIFETIME = ("Stream-TTL", "Stream-Expires-At")

READS = [
    Case(
        "from the start by default",
        contract.text,
        "GET",
        200,
        has=OPEN_TAIL | {"Content-Type": "text/plain"},
        lacks=("Stream-Closed", "Stream-Cursor"),
        answer=b"onetwo",
    ),
    Case("offset=-1", contract.text, "GET", 200, query="offset=-1", answer=b"onetwo"),
    Case("the start token", contract.text, "GET", 200, query=f"offset={START}", answer=b"onetwo"),
    Case("an encoded query", contract.text, "GET", 200, query="offset=%2D1", answer=b"onetwo"),
    Case("live=false", contract.text, "GET", 200, query="offset=-1&live=false", answer=b"onetwo"),
    Case(
        "unknown parameters are ignored",
        contract.text,
        "GET",
        200,
        query="offset=-1&colour=red&colour=blue&=&cursor=abc",
        answer=b"onetwo",
    ),
    Case("an empty stream", contract.empty, "GET", 200, has=OPEN_TAIL, answer=b""),
    Case("JSON", contract.json_stream, "GET", 200, has=OPEN_TAIL, answer=b'[{"n":1}]'),
    Case("bytes", contract.binary, "GET", 200, has=OPEN_TAIL, answer=b"\x00\xff"),
    Case(
        "closed",
        contract.closed,
        "GET",
        200,
        has={
            "Stream-Closed": "true",
            "Stream-Up-To-Date": "true",
            "ETag": None,
            "Cache-Control": "public, max-age=60, stale-while-revalidate=300",
        },
        answer=b"one",
    ),
    Case(
        "the tail of now",
        contract.text,
        "GET",
        200,
        query="offset=now",
        has={
            "Content-Type": "text/plain",
            "Stream-Next-Offset": None,
            "Stream-Up-To-Date": "true",
            "Cache-Control": "no-store",
        },
        lacks=("ETag", "Stream-Closed"),
        answer=b"",
    ),
    Case(
        "the tail of now, JSON",
        contract.json_stream,
        "GET",
        200,
        query="offset=now",
        has={"Content-Type": "application/json", "Cache-Control": "no-store"},
        lacks=("ETag",),
        answer=b"[]",
    ),
    Case(
        "the tail of now, closed",
        contract.closed,
        "GET",
        200,
        query="offset=now",
        has={"Stream-Closed": "true", "Stream-Up-To-Date": "true"},
        answer=b"",
    ),
]

HEADS = [
    Case(
        "HEAD",
        contract.text,
        "HEAD",
        200,
        has={"Content-Type": "text/plain", "Stream-Next-Offset": None, "Cache-Control": "no-store"},
        lacks=("Stream-Closed", *NO_LIFETIME),
    ),
    Case("HEAD, closed", contract.closed, "HEAD", 200, has={"Stream-Closed": "true"}),
    Case(
        "HEAD, TTL",
        contract.with_ttl,
        "HEAD",
        200,
        has={"Stream-TTL": "3600"},
        lacks=("Stream-Expires-At",),
    ),
    Case(
        "HEAD, expiry",
        contract.with_expiry,
        "HEAD",
        200,
        has={"Stream-Expires-At": "2100-01-01T00:00:00Z"},
        lacks=("Stream-TTL",),
    ),
]

MALFORMED_OFFSETS = {
    "empty": "offset=",
    "blank": "offset=%20",
    "a number": "offset=0",
    "another negative number": "offset=-2",
    "another word": "offset=latest",
    "another case": "offset=NOW",
    "too short": "offset=0_0",
    "too long": f"offset={START}0",
    "wrong separator": f"offset={START.replace('_', '-')}",
    "other digits": "offset=" + "%D9%A3" * 16 + "_" + "%D9%A3" * 16,
    "a sign": f"offset=%2B{START[1:]}",
    "a path": "offset=../../etc/passwd",
    "a quote": "offset='%20OR%201=1--",
    "a NUL": "offset=now%00",
    "a line break": "offset=-1%0d%0aX-Injected:%20yes",
    "repeated": "offset=-1&offset=-1",
    "repeated, one empty": "offset=-1&offset=",
    "not UTF-8": "offset=%FF",
}
NOT_FOUND = (404, "stream_not_found")
REFUSED = [
    *(
        # A HEAD has no body, so no code either.
        Case(f"{method}, {name}", given, method, status, None if method == "HEAD" else code)
        for name, given, (status, code) in [
            ("unknown", contract.nothing, NOT_FOUND),
            ("deleted", contract.deleted, NOT_FOUND),
            ("soft-deleted", contract.soft_deleted, (410, "stream_gone")),
        ]
        for method in ("GET", "HEAD", "DELETE")
    ),
    *(
        Case(
            f"live={mode}",
            contract.text,
            "GET",
            400,
            "invalid_query",
            query=f"offset=-1&live={mode}",
        )
        for mode in ("x", "true", "SSE", "longpoll")
    ),
    *(
        Case(
            f"{mode} without an offset",
            contract.text,
            "GET",
            400,
            "invalid_offset",
            query=f"live={mode}",
        )
        for mode in ("long-poll", "sse")
    ),
    Case(
        "far too many parameters",
        contract.text,
        "GET",
        400,
        "invalid_query",
        query="&".join(f"a{n}=1" for n in range(1000)),
    ),
    Case(
        "a token past the tail",
        contract.text,
        "GET",
        400,
        "unknown_offset",
        query="offset=0000000000000001_0000000000000999",
    ),
]


@pytest.mark.parametrize("case", rows(READS))
def test_read(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("case", rows(HEADS))
def test_head(case: Case, client: Client) -> None:
    assert case.run(client).body == b""


@pytest.mark.parametrize("case", rows(REFUSED))
def test_refused(case: Case, client: Client) -> None:
    case.run(client)


@pytest.mark.parametrize("query", MALFORMED_OFFSETS.values(), ids=MALFORMED_OFFSETS.keys())
@pytest.mark.parametrize("live", ["", "&live=long-poll", "&live=sse"])
def test_malformed_offset(client: Client, query: str, live: str) -> None:
    path = client.create(TEXT, b"one")
    reply = client.get(path, query + live)
    assert reply.status == 400
    assert error_code(reply) in ("invalid_offset", "invalid_query")
    assert "X-Injected" not in reply.headers


# ── Offsets ──────────────────────────────────────────────────────────────────────────────────


def test_tokens_have_one_form_and_sort_as_text(client: Client) -> None:
    path = fresh()
    tokens = [client.put(path, TEXT).next_offset]
    tokens += [client.post(path, b"x" * 999, TEXT).next_offset for _ in range(12)]
    assert all(TOKEN.fullmatch(token) for token in tokens)
    assert tokens == sorted(set(tokens))


def test_a_reader_goes_on_where_it_stopped(client: Client) -> None:
    path = client.create(TEXT, b"one", b"two")
    first = client.get(path)
    client.post(path, b"three", TEXT)
    second = client.get(path, f"offset={first.next_offset}")
    assert second.body == b"three"
    assert client.get(path, f"offset={second.next_offset}").body == b""


def test_every_append_ends_at_a_position(client: Client) -> None:
    path = client.create(TEXT)
    bodies = [b"a", b"bb", b"ccc"]
    tokens = [client.post(path, body, TEXT).next_offset for body in bodies]
    for index, token in enumerate(tokens, 1):
        assert client.get(path, f"offset={token}").body == b"".join(bodies[index:])


def shifted(token: str, by: int) -> str:
    run, _, position = token.partition("_")
    return f"{run}_{int(position) + by:0{len(position)}d}"


def test_a_token_inside_an_append_is_rounded_down(client: Client) -> None:
    path = client.create(TEXT, b"abc", b"def")
    tail = client.head(path).next_offset
    for inside, rest in ((1, b"abcdef"), (2, b"abcdef"), (4, b"def"), (5, b"def")):
        token = shifted(tail, inside - 6)
        reply = client.get(path, f"offset={token}")
        assert (reply.status, reply.body, reply.next_offset) == (200, rest, tail)
        assert client.get(path, f"offset={token}&live=long-poll").body == rest
        with client.events(path, f"offset={token}") as events:
            received, control = events.until_caught_up()
        assert ("".join(received).encode(), control["streamNextOffset"]) == (rest, tail)


def test_one_past_the_tail_is_the_tail(client: Client) -> None:
    path = client.create(TEXT, b"abc")
    tail = client.head(path).next_offset
    reply = client.get(path, f"offset={shifted(tail, 1)}")
    assert (reply.status, reply.body, reply.next_offset) == (200, b"", tail)
    with client.events(path, f"offset={shifted(tail, 1)}") as events:
        assert events.expect("control").json["streamNextOffset"] == tail
        client.post(path, b"def", TEXT)
        assert events.expect("data").data == "def"
    assert client.get(path, f"offset={shifted(tail, 1)}").body == b"def"
    assert error_code(client.get(path, f"offset={shifted(tail, 5)}")) == "unknown_offset"


def test_one_past_the_beginning_is_the_beginning(client: Client) -> None:
    path = client.create(TEXT)
    first = shifted(client.head(path).next_offset, 1)
    assert client.get(path, f"offset={first}").body == b""
    client.post(path, b"abc", TEXT)
    assert client.get(path, f"offset={first}").body == b"abc"
    assert error_code(client.get(path, f"offset={shifted(first, 1)}")) == "unknown_offset"


def test_the_offset_of_now_is_where_news_will_be(client: Client) -> None:
    path = client.create(TEXT, b"old")
    now = client.get(path, "offset=now").next_offset
    client.post(path, b"new", TEXT)
    assert client.get(path, f"offset={now}").body == b"new"


def test_head_ignores_the_body_that_a_get_would_have(client: Client) -> None:
    path = client.create(TEXT, b"one")
    with client.wire() as wire:
        # If HEAD sent a body, the next response on the connection would not begin where it should.
        for _ in range(3):
            assert wire.request("HEAD", f"/v1/stream/{path}").status == 200
            assert wire.request("HEAD", "/v1/stream/unknown").status == 404
            assert wire.request("HEAD", "/v1/streams").status == 200


# ── Delete ───────────────────────────────────────────────────────────────────────────────────


def test_delete(client: Client) -> None:
    path = client.create(TEXT, b"one")
    reply = client.delete(path)
    assert reply.status == 204
    assert reply.headers["Cache-Control"] == "no-store"
    assert client.get(path).status == 404


def test_a_stream_created_again_is_another_one(client: Client) -> None:
    path = client.create(TEXT, b"old")
    old = client.get(path)
    assert client.delete(path).status == 204
    client.create(JSON, b"1", path=path)
    assert client.get(path).body == b"[1]"
    assert error_code(client.get(path, f"offset={old.next_offset}")) == "unknown_offset"
    assert client.get(path, headers={"If-None-Match": old.headers["ETag"]}).status == 200
