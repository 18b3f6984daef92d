"""Requests that are passed on over a connection that is there already, without a task."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, cast

import pytest

from headwater.cluster.frames import Frames, OutOfStep, frame
from headwater.core.cluster import NodeSeen
from headwater.core.errors import OutcomeUnknown
from headwater.http.messages import Answer, Peer, Request, Response
from headwater.http.nodes.links import Link, LinkBroken, Links
from headwater.http.nodes.liveness import Liveness
from headwater.http.nodes.passing import Passing
from headwater.http.routes.matching import locate
from headwater.http.wire.known_heads import KnownHeads
from headwater.http.wire.outcomes import abandon
from headwater.service.replies import Reply

PATIENCE_S = 60
ANSWER_BYTES_MAX = 1_000
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
OWNER = NodeSeen(2, "owner", "http://127.0.0.1:1", 1, 1, 3000, draining=False)


class Wire:
    """Stands in for a transport."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_open = True

    def write(self, data: bytes) -> None:
        self.sent += data

    def abort(self) -> None:
        self.is_open = False

    close = abort

    def get_extra_info(self, name: str) -> None:
        return None


class Bench:
    """A connection to the owner, and what becomes of requests."""

    def __init__(self) -> None:
        self.passing = Passing(1, b"secret", ANSWER_BYTES_MAX, Liveness(0.2, 0.1))
        links = self.passing._links_to(OWNER)
        self.wire, self.link = Wire(), Link(links._take_back)
        self.link.connection_made(cast("Any", self.wire))
        self.link.rested_s = monotonic()
        links._take_back(self.link)
        self.repeated: list[LinkBroken] = []

    def send(self, request: Request) -> Reply[Answer]:
        request.peer = Peer("192.0.2.7")
        answer = self.passing.pass_at_once(request, OWNER, self._again)
        assert answer is not None
        return answer

    async def _again(self, broken: LinkBroken) -> Answer:
        self.repeated.append(broken)
        return Response(200, body=b"from the next owner")


def a_read() -> Request:
    return Request("GET", b"/v1/stream/s", b"", {})


async def test_the_answer_is_there_in_the_same_turn_and_the_next_may_follow() -> None:
    bench = Bench()
    for number in range(3):
        answer = bench.send(a_read())
        # One at a time: meanwhile the connection is nobody else's.
        assert bench.passing.pass_at_once(a_read(), OWNER, bench._again) is None
        bench.link.data_received(b"HTTP/1.1 200 OK\r\nDate: now\r\nStream-Up-To-Date: true\r\n")
        assert not answer.done()
        bench.link.data_received(b"content-length: 3\r\n\r\n[%d]" % number)
        found = answer.result()
        assert isinstance(found, Response)
        assert (found.status, found.body) == (200, b"[%d]" % number)
        assert found.lines == b"Stream-Up-To-Date: true\r\n"


@pytest.mark.parametrize("said", [{}, {b"host": b"there"}])
async def test_the_owner_is_told_one_host(said: dict[bytes, bytes]) -> None:
    """What came in HTTP/1.0 need not name one; what is passed on is HTTP/1.1."""
    bench = Bench()
    bench.send(Request("GET", b"/v1/stream/s", b"", said))
    hosts = [line for line in bench.wire.sent.split(b"\r\n") if line.startswith(b"host:")]
    assert hosts == [b"host: " + said.get(b"host", b"localhost")]


async def test_chunks_are_waited_for() -> None:
    bench = Bench()
    answer = bench.send(a_read())
    bench.link.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    await asyncio.sleep(0)
    assert not answer.done()
    bench.link.data_received(b"2\r\nde\r\n0\r\n\r\n")
    found = await answer
    assert isinstance(found, Response)
    assert found.body == b"abcde"
    assert not bench.send(a_read()).done()


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"SMTP ready\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[1",
        b"HTTP/1.1 200 OK\r\nContent-Length: -9\r\n\r\n[1]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n[1]",
        b"HTTP/1.1 999 What\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        CHUNKED + b"2\r\n[1\r\n",
        CHUNKED + b"-6\r\n",
        CHUNKED + b"3e9\r\n",
        CHUNKED + b"x" * 40,
        CHUNKED + b"12c\r\n%b\r\n" % (b"x" * 300) * 4,
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000,
    ],
)
async def test_an_owner_that_is_gone_or_mad_is_not_the_last_word(said: bytes) -> None:
    bench = Bench()
    bench.link.answer_bytes_max = ANSWER_BYTES_MAX
    answer = bench.send(a_read())
    if said:
        bench.link.data_received(said)
    if bench.wire.is_open:
        await asyncio.sleep(0)
        bench.link.connection_lost(None)
    found = await answer
    assert isinstance(found, Response)
    assert found.body == b"from the next owner"
    assert [broken.sent for broken in bench.repeated] == [True]
    assert bench.passing.pass_at_once(a_read(), OWNER, bench._again) is None


async def test_what_follows_an_answer_is_no_answer_to_the_next() -> None:
    bench = Bench()
    answer = bench.send(a_read())
    bench.link.data_received(CHUNKED + b"1\r\na\r\n0\r\n\r\n4\r\nevil\r\n")
    found = await answer
    assert isinstance(found, Response)
    assert found.body == b"a"
    assert not bench.wire.is_open
    assert bench.passing.pass_at_once(a_read(), OWNER, bench._again) is None


@pytest.mark.parametrize("said", [b"-2\n", b"1001\n", b"x\n", b"y" * 40])
def test_what_is_no_frame(said: bytes) -> None:
    frames = Frames(ANSWER_BYTES_MAX)
    assert list(frames.take(frame(b"a") + b":\n" + frame(b"b" * 1000))) == [b"a", b"b" * 1000]
    with pytest.raises((OutOfStep, ValueError)):
        list(frames.take(said))


@pytest.mark.parametrize("hears", [True, False])
async def test_who_says_nothing_is_asked_whether_it_hears_anything(
    hears: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    asked = 0

    async def connect(links: Links) -> Link:
        nonlocal asked
        asked += 1
        if not hears:
            raise LinkBroken("does not answer", sent=False)
        link = Link(links._take_back)
        link.connection_made(cast("Any", Wire()))
        return link

    monkeypatch.setattr(Links, "connect", connect)
    answer = bench.send(a_read())
    async with asyncio.timeout(PATIENCE_S):
        while not (asked if hears else bench.repeated):
            bench.passing.looked([OWNER])
            await asyncio.sleep(0.01)
    assert bench.wire.is_open is hears
    if hears:
        assert not answer.done()
    else:
        await answer
    assert [(broken.sent, broken.waited) for broken in bench.repeated] == [(True, True)][hears:]
    # It is not asked again at once.
    before = asked
    bench.passing.looked([OWNER])
    await asyncio.sleep(0)
    assert asked == before
    bench.passing.stop()


async def test_nobody_waits_for_a_client_that_is_gone() -> None:
    bench = Bench()
    request = a_read()
    answer = bench.send(request)
    assert request.on_disconnect is not None
    request.on_disconnect()
    assert not bench.wire.is_open
    bench.link.connection_lost(None)
    with pytest.raises(OutcomeUnknown):
        answer.result()
    assert not bench.repeated


@pytest.mark.parametrize(
    "target, waits",
    [
        (b"/v1/stream/s/_groups/g/fetch", True),
        (b"/v1/stream/s/touch/wait", True),
        (b"/v1/stream/s/_groups/g/ack", False),
        (b"/v1/stream/s", False),
    ],
)
async def test_only_what_waits_is_given_up_with_its_client(target: bytes, waits: bool) -> None:
    """What a fetch gets after that would be kept from others. An append goes on."""
    bench = Bench()
    request = Request("POST", target, b"", {}, b"{}", match=locate(target))
    bench.send(request)
    assert (request.on_disconnect is not None) is waits
    assert bench.wire.sent.endswith(b"{}")


async def test_who_hangs_up_before_the_owner_is_found_is_not_waited_for() -> None:
    """What it sent counts: there may be receipts in it."""
    bench = Bench()
    target = b"/v1/stream/s/_groups/g/fetch"
    request = Request("POST", target, b"", {}, b"{}", match=locate(target))
    abandon(request)
    passed = asyncio.ensure_future(bench.passing.pass_on(request, OWNER))
    await asyncio.sleep(0)
    assert bench.wire.sent.endswith(b"{}")
    assert not bench.wire.is_open
    bench.link.connection_lost(None)
    await asyncio.wait([passed])
    assert passed.cancelled()


@pytest.mark.parametrize("number", [b"", b"producer-seq: %d\r\n"])
async def test_numbers_of_a_known_head_are_those_of_the_request(number: bytes) -> None:
    """Its other lines are made once."""
    bench, known = Bench(), KnownHeads()
    for turn in range(3):
        seq = number % turn if number else b""
        body = b"x" * (turn + 1)
        head = b"POST /v1/stream/s HTTP/1.1\r\nhost: h\r\n%bcontent-length: %d\r\n\r\n"
        data = head % (seq, len(body)) + body
        headers = {b"host": b"h", b"content-length": b"%d" % len(body)}
        if number:
            headers[b"producer-seq"] = b"%d" % turn
        request = known.find(data)
        assert (request is None) is (turn == 0)
        if request is None:
            request = Request("POST", b"/v1/stream/s", b"", headers, body)
            known.note(data, request)
        bench.wire.sent = b""
        bench.send(request)
        sent, _, after = bench.wire.sent.partition(b"\r\n\r\n")
        assert after == body
        lines = sent.split(b"\r\n")
        assert lines[:2] == [b"POST /v1/stream/s HTTP/1.1", b"host: h"]
        assert lines.count(b"content-length: %d" % len(body)) == 1
        assert lines.count(b"producer-seq: %d" % turn) == bool(number)
        assert lines.count(b"headwater-peer: 192.0.2.7") == 1
        bench.link.data_received(b"HTTP/1.1 204 No Content\r\n\r\n")
