"""Heads that were parsed before: a shorter way to the very same request."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.limits import Limits
from headwater.http.messages import Request, Response
from headwater.http.wire.body_budget import SMALL_BYTES, BodyBudget, Claim
from headwater.http.wire.known_heads import KnownHeads
from headwater.http.wire.parsing import RequestReader


class Receiver:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.refusals: list[Response] = []

    def received(self, request: Request) -> None:
        self.requests.append(request)

    def refused(self, response: Response) -> None:
        self.refusals.append(response)

    def failed(self, error: BaseException) -> None:
        raise error

    def expects_continue(self) -> None: ...

    def announced(self, request: Request) -> Response | int:
        return Limits().body_bytes_max

    def claim(self, request: Request) -> Claim:
        return BodyBudget(Limits().body_bytes_max).claim("")


def read(known: KnownHeads, *pieces: bytes) -> Receiver:
    """What one connection makes of some bytes."""
    receiver = Receiver()
    reader = RequestReader(Limits(), receiver, known)
    for piece in pieces:
        reader.feed(piece)
    reader.close()
    return receiver


def post(body: bytes, *lines: str, path: str = "/v1/stream/s") -> bytes:
    head = [f"POST {path} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join([*head, "", ""]).encode() + body


def facts(request: Request) -> tuple[object, ...]:
    return request.method, request.path, request.query, request.headers, request.body


def is_known(request: Request) -> bool:
    return request.head is not None


def test_the_second_request_with_a_head_is_not_parsed() -> None:
    known = KnownHeads()
    (first,) = read(known, post(b"one")).requests
    (second,) = read(known, post(b"two")).requests
    assert not is_known(first)
    assert is_known(second)
    assert facts(second) == (*facts(first)[:-1], b"two")


@pytest.mark.parametrize(
    "line",
    [
        "Stream-Seq: 1",
        "Message-Id: 1",
        "X-Request-Id: 1",
        "Connection: close",
        "Expect: 100-continue",
    ],
)
def test_heads_that_are_used_once_are_not_kept(line: str) -> None:
    known = KnownHeads()
    read(known, post(b"one", line))
    (again,) = read(known, post(b"two", line)).requests
    assert not is_known(again)


def test_numbers_may_differ() -> None:
    known = KnownHeads()
    read(known, post(b"one", "Producer-Seq: 1", "A: b"))
    whole = post(b"longer", "Producer-Seq: 27", "A: b")
    (other,) = read(known, whole).requests
    assert is_known(other)
    (expected,) = read(KnownHeads(), whole).requests
    assert facts(other) == facts(expected)
    assert other.headers[b"producer-seq"] == b"27"


@pytest.mark.parametrize(
    "was, now",
    [
        (b"Content-Length: 3", b"Content-Length: "),
        (b"Content-Length: 3", b"Content-Length: -3"),
        (b"Content-Length: 3", b"Content-Length: 3, 3"),
        (b"Content-Length: 3", b"Content-Length: 0x3"),
        (b"Content-Length: 3", b"Content-Length: 3\r\nContent-Length: 3"),
        (b"Content-Length: 3", b"Content-Length: 3\r\nContent-Length: 4"),
        (b"Content-Length: 3", b"Content-Length: " + b"9" * 15),
        (b"Content-Length: 3", b"Content-Length: " + b"9" * 30),
        (b"Content-Length: 3", b"Producer-Seq: 3"),
        (b"Content-Length: 3\r\n", b""),
        (b"Producer-Seq: 1", b"Producer-Seq: "),
        (b"Producer-Seq: 1", b"Producer-Seq: x"),
        (b"Producer-Seq: 1", b"Content-Length: 3"),
        (b"Producer-Seq: 1", b"Producer-Seq: 1\r\nProducer-Seq: 2"),
        (b"Host: a", b"Host: a\r\nTransfer-Encoding: chunked"),
    ],
)
def test_other_differences_mean_what_they_would_without_known_heads(was: bytes, now: bytes) -> None:
    known, usual = KnownHeads(), post(b"one", "Producer-Seq: 1")
    assert was in usual
    read(known, usual)
    odd = usual.replace(was, now)
    seen, expected = read(known, odd), read(KnownHeads(), odd)
    assert [facts(one) for one in seen.requests] == [facts(one) for one in expected.requests]
    assert [one.status for one in seen.refusals] == [one.status for one in expected.refusals]


def test_a_body_of_another_length_is_parsed() -> None:
    known = KnownHeads()
    read(known, post(b"one"))
    whole = post(b"two")
    assert read(known, whole[:-1]).requests == []
    (late,) = read(known, whole[:-1], whole[-1:]).requests
    assert not is_known(late)
    assert late.body == b"two"
    both = read(known, whole + post(b"six")).requests
    assert [request.body for request in both] == [b"two", b"six"]


def test_a_known_head_in_the_middle_of_a_body_is_body() -> None:
    known = KnownHeads()
    read(known, post(b"one"))
    inner = post(b"two")
    outer = post(b"x" * 10 + inner)
    split = outer.index(inner)
    (request,) = read(known, outer[:split], outer[split:]).requests
    assert request.body == b"x" * 10 + inner


def test_large_bodies_are_counted_and_so_not_kept() -> None:
    known, body = KnownHeads(), b"x" * (SMALL_BYTES + 1)
    read(known, post(body))
    (again,) = read(known, post(body)).requests
    assert not is_known(again)


def test_an_old_protocol_is_not_kept() -> None:
    known, old = KnownHeads(), b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    read(known, old)
    (again,) = read(known, old).requests
    assert not is_known(again)


def test_heads_are_bounded_and_those_in_use_stay() -> None:
    known = KnownHeads()
    read(known, post(b"one", path="/v1/stream/used"))
    for number in range(10_000):
        read(known, post(b"one", path=f"/v1/stream/{number}"))
        if number % 500 == 0:
            (used,) = read(known, post(b"two", path="/v1/stream/used")).requests
            assert is_known(used)
    assert known.size <= 3 * 2048


PIECES = st.lists(
    st.sampled_from([post(b"one"), post(b"two"), post(b""), post(b"two", "A: b"), post(b"long")])
)


@given(pieces=PIECES, cuts=st.lists(st.integers(0, 300), max_size=4))
@settings(max_examples=200, deadline=None)
def test_however_bytes_arrive_the_requests_are_the_same(
    pieces: list[bytes], cuts: list[int]
) -> None:
    known = KnownHeads()
    read(known, post(b"one"))
    read(known, post(b""))
    whole = b"".join(pieces)
    edges = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    parts = [whole[a:b] for a, b in pairwise(edges) if a < b]
    expected = [facts(request) for request in read(KnownHeads(), whole).requests]
    assert [facts(request) for request in read(known, *parts).requests] == expected
    assert [facts(request) for request in read(known, *pieces).requests] == expected
