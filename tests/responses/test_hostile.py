"""Upstreams that mean harm, or are just broken: each is bounded, and nobody else notices."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import AsyncIterator

import pytest

from headwater.core.decisions import Create, CreateReply
from headwater.core.responses.allow_list import parse_networks, parse_patterns
from headwater.core.responses.errors import UpstreamFailed, UpstreamNotAllowed
from headwater.core.responses.policy import ResponsePolicy
from headwater.core.responses.upstream import Opened, UpstreamRequest, parse_request
from headwater.responses.responses import Responses
from headwater.service.log import Log
from headwater.store.memory.engine import MemoryEngine
from tests.responses.reader import Proxy, code
from tests.support.logs import until
from tests.support.upstream import Peer, Upstream

PATIENCE_S = 60
BYTES_MAX = 300_000


def endless(peer: Peer) -> None:
    peer.head("Transfer-Encoding: chunked")
    while not peer.upstream.over.is_set():
        peer.send(b"1000\r\n%b\r\n" % (b"x" * 4096))


def test_an_endless_answer_is_cut_at_the_limit(small: Proxy, upstream: Upstream) -> None:
    ended = small.follow(small.open(upstream.on("/endless", endless)))
    assert (len(ended.body), ended.reason) == (BYTES_MAX, "too_large")


def test_a_response_may_be_as_large_as_the_limit(small: Proxy, upstream: Upstream) -> None:
    ended = small.follow(small.open(upstream.on("/a", lambda peer: peer.answer(b"x" * BYTES_MAX))))
    assert (len(ended.body), ended.reason) == (BYTES_MAX, None)


def test_a_head_that_does_not_come_is_a_timeout(hasty: Proxy, upstream: Upstream) -> None:
    asked, gone = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        asked.set()
        if peer.wait_for_hangup():
            gone.set()

    url = upstream.on("/mute", script)
    # On a busy machine the time may be over before anything was asked.
    while not asked.is_set():
        assert code(hasty.make(url)) == (504, "UPSTREAM_TIMEOUT")
    assert gone.wait(PATIENCE_S)


def test_a_head_that_trickles_is_a_timeout(hasty: Proxy, upstream: Upstream) -> None:
    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\n")
        while not peer.upstream.over.wait(0.05):
            peer.send(b"X-More: x\r\n")

    assert code(hasty.make(upstream.on("/slow", script))) == (504, "UPSTREAM_TIMEOUT")


def test_a_body_that_stops_is_ended_and_kept(restless: Proxy, upstream: Upstream) -> None:
    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nso far\r\n")
        peer.wait_for_hangup()

    ended = restless.follow(restless.open(upstream.on("/stops", script)))
    assert (ended.body, ended.reason) == (b"so far", "idle")


def test_an_error_whose_body_does_not_end_is_shown(hasty: Proxy, upstream: Upstream) -> None:
    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 500 Broken\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nwhy\r\n")
        peer.wait_for_hangup()

    url = upstream.on("/error", script)
    answer = hasty.make(url)
    while answer.status_code == 504:  # on a busy machine its head may be late as well
        answer = hasty.make(url)
    assert (answer.status_code, answer.headers["Upstream-Status"]) == (502, "500")
    assert answer.content == b"why"


def test_a_large_error_is_shown_in_part(small: Proxy, upstream: Upstream) -> None:
    body = b"e" * 10_000_000
    answer = small.make(upstream.on("/e", lambda peer: peer.answer(body, status="500 Broken")))
    assert answer.status_code == 502
    assert answer.content == body[: 64 * 1024]


@pytest.mark.parametrize(
    "script",
    [
        lambda peer: (peer.head("Content-Length: 1000"), peer.send(b"so far")),
        lambda peer: peer.chunked([b"so far"], end=False),
        lambda peer: (peer.chunked([b"so far"], end=False), peer.send(b"nonsense\r\n")),
        lambda peer: (peer.chunked([b"so far"], end=False), peer.send(b"-1\r\nx\r\n")),
        lambda peer: (peer.chunked([b"so far"], end=False), peer.send(b"f" * 100_000)),
    ],
    ids=["shorter than announced", "no last chunk", "no length", "negative", "endless length"],
)
def test_a_body_that_breaks_off_is_kept_with_the_reason(
    small: Proxy, upstream: Upstream, script: object
) -> None:
    location = small.open(upstream.on("/lies", script))  # type: ignore[arg-type]
    ended = small.follow(location)
    assert (ended.body, ended.reason) == (b"so far", "upstream_failed")


def test_what_follows_the_announced_length_is_not_part_of_it(
    small: Proxy, upstream: Upstream
) -> None:
    def script(peer: Peer) -> None:
        peer.head("Content-Length: 4")
        peer.send(b"bodyHTTP/1.1 200 OK\r\n\r\nsmuggled")

    ended = small.follow(small.open(upstream.on("/more", script)))
    assert (ended.body, ended.reason) == (b"body", None)


def test_a_body_without_a_length_ends_with_the_connection(small: Proxy, upstream: Upstream) -> None:
    def script(peer: Peer) -> None:
        peer.head("Connection: close")
        peer.send(b"all of it")

    ended = small.follow(small.open(upstream.on("/close", script)))
    assert (ended.body, ended.reason) == (b"all of it", None)


def test_a_bomb_is_not_unpacked(small: Proxy, upstream: Upstream) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    url = upstream.on("/bomb", lambda peer: peer.answer(bomb, "Content-Encoding: gzip"))
    assert code(small.make(url)) == (502, "UPSTREAM_ERROR")
    url = upstream.on(
        "/e", lambda peer: peer.answer(bomb, "Content-Encoding: gzip", status="500 x")
    )
    answer = small.make(url)
    assert (answer.status_code, answer.content) == (502, b"")


@pytest.mark.parametrize(
    "script",
    [
        lambda peer: peer.head(*[f"X-{n}: {'x' * 100}" for n in range(10_000)]),
        lambda peer: peer.head(f"X: {'x' * 1_000_000}"),
        lambda peer: peer.send(b"\0" * 1_000_000),
        lambda peer: peer.send(b"SSH-2.0-OpenSSH_9.6\r\n"),
        lambda peer: peer.head("Content-Length: 5", "Content-Length: 6"),
        lambda peer: peer.head("Content-Length: -1"),
        lambda peer: peer.head("Transfer-Encoding: gzip"),
        lambda peer: None,
    ],
    ids=[
        *("header flood", "long header", "zeros", "other protocol", "two lengths"),
        *("negative length", "strange encoding", "hangs up"),
    ],
)
def test_what_is_no_answer_is_an_error(small: Proxy, upstream: Upstream, script: object) -> None:
    url = upstream.on("/flood", script)  # type: ignore[arg-type]
    assert code(small.make(url)) == (502, "UPSTREAM_ERROR")


def test_informational_answers_without_end_are_a_timeout(hasty: Proxy, upstream: Upstream) -> None:
    def script(peer: Peer) -> None:
        while not peer.upstream.over.wait(0.02):
            peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")

    assert code(hasty.make(upstream.on("/hints", script))) == (504, "UPSTREAM_TIMEOUT")


@pytest.mark.parametrize(
    "content_type", ["text/plain\tx", "x" * 300, "text/\xe9", "text/html\x7f", ""]
)
def test_a_strange_type_is_not_passed_on(
    small: Proxy, upstream: Upstream, content_type: str
) -> None:
    line = f"Content-Type: {content_type}\r\n".encode("latin-1")
    url = upstream.on(
        "/t", lambda peer: peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n" + line + b"\r\nx")
    )
    answer = small.make(url)
    if answer.status_code == 201:
        assert answer.headers["Upstream-Content-Type"] == "application/octet-stream"
    else:
        assert code(answer) == (502, "UPSTREAM_ERROR")


def test_one_caller_has_only_so_many_under_way(small: Proxy, upstream: Upstream) -> None:
    release = threading.Event()

    def script(peer: Peer) -> None:
        peer.head("Transfer-Encoding: chunked")
        while not release.wait(0.2):
            peer.send(b"1\r\n.\r\n")
        peer.send(b"0\r\n\r\n")

    url = upstream.on("/busy", script)
    held = [small.open(url) for _ in range(3)]
    refused = small.make(url)
    assert code(refused) == (429, "TOO_MANY_RESPONSES")
    assert "Retry-After" in refused.headers
    assert small.http.patch(f"{held[0]}&action=abort").status_code == 204
    held.append(small.open(url))
    release.set()
    assert [small.follow(one).reason for one in held] == ["aborted", None, None, None]


def test_whoever_hangs_up_before_the_head_leaves_nothing_behind(
    proxy: Proxy, upstream: Upstream
) -> None:
    asked, gone = threading.Event(), threading.Event()

    def script(peer: Peer) -> None:
        asked.set()
        if peer.wait_for_hangup():
            gone.set()

    url = upstream.on("/wait", script)
    address = proxy.http.base_url
    head = f"POST /v1/proxy HTTP/1.1\r\nHost: {address.netloc.decode()}\r\nUpstream-Method: GET\r\n"
    with socket.create_connection((address.host, address.port or 80), PATIENCE_S) as impatient:
        impatient.sendall(f"{head}Upstream-URL: {url}\r\n\r\n".encode())
        assert asked.wait(PATIENCE_S)
    assert gone.wait(PATIENCE_S)


# ── Names ────────────────────────────────────────────────────────────────────────────────────


class Names:
    """Stands for another answer each time it is asked."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return self.answers.pop(0)


@pytest.fixture
async def log() -> AsyncIterator[Log]:
    log = await Log.start(MemoryEngine())
    yield log
    await log.stop()


def request_to(url: str) -> UpstreamRequest:
    return parse_request({b"upstream-url": url.encode(), b"upstream-method": b"GET"}, b"")


async def attempt(log: Log, allow: str, url: str, names: Names, networks: str = "") -> str:
    policy = ResponsePolicy(parse_patterns(allow), parse_networks(networks))
    responses = Responses(log, policy, b"s" * 32, resolve=names)
    try:
        outcome = await responses.open(request_to(url), "me")
        return outcome.content_type if isinstance(outcome, Opened) else str(outcome.status)
    finally:
        await responses.stop()


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.1", "100.64.0.1"],
)
async def test_a_name_that_leads_to_a_private_place_is_refused(log: Log, address: str) -> None:
    for found in ([address], ["93.184.216.34", address]):
        with pytest.raises(UpstreamNotAllowed):
            await attempt(log, "http://evil.example:*", "http://evil.example:9/", Names(found))


async def test_a_name_that_changes_is_looked_up_once(log: Log, upstream: Upstream) -> None:
    """What was checked is what is connected to: a second answer is never asked for."""
    upstream.on("/x", lambda peer: peer.answer(b"x", "Content-Type: text/plain"))
    url = f"http://model.example:{upstream.port}/x"
    names = Names(["127.0.0.1"], ["10.0.0.1"])
    kind = await attempt(log, "http://*.example:*", url, names, "127.0.0.0/8")
    assert (kind, names.asked) == ("text/plain", 1)
    assert upstream.seen[0].values("host") == [f"model.example:{upstream.port}"]


async def test_naming_one_place_allows_no_other(log: Log) -> None:
    for allow in (
        "http://127.0.0.1:*, http://evil.example",
        "http://localhost, http://evil.example",
    ):
        with pytest.raises(UpstreamNotAllowed):
            await attempt(log, allow, "http://evil.example/", Names(["127.0.0.1"]))


async def test_a_name_that_leads_nowhere_is_an_error(log: Log) -> None:
    with pytest.raises(UpstreamFailed):
        await attempt(log, "http://a.example", "http://a.example/", Names([]))


async def test_stopping_ends_what_is_under_way_and_says_so(log: Log, upstream: Upstream) -> None:
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nso far\r\n")
        peer.wait_for_hangup()
        loop.call_soon_threadsafe(gone.set)

    policy = ResponsePolicy(parse_patterns("http://127.0.0.1:*"))
    responses = Responses(log, policy, b"s" * 32)
    opened = await responses.open(request_to(upstream.on("/x", script)), "me")
    assert isinstance(opened, Opened)
    assert responses.under_way == 1
    await responses.stop()
    assert (await responses.find(opened.id)).ended == "interrupted"
    assert responses.under_way == 0
    assert responses.ended["interrupted"] == 1
    async with asyncio.timeout(PATIENCE_S):
        await gone.wait()


async def test_what_is_being_made_is_not_taken_for_left_over(
    log: Log, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that has just started closes what a former process left, while requests come in."""
    create = log.create

    async def create_slowly(command: Create) -> CreateReply:
        reply = await create(command)
        await responses._recover()
        return reply

    monkeypatch.setattr(log, "create", create_slowly)
    responses = Responses(log, ResponsePolicy(parse_patterns("http://127.0.0.1:*")), b"s" * 32)
    url = upstream.on("/x", lambda peer: peer.answer(b"all of it"))
    opened = await responses.open(request_to(url), "me")
    assert isinstance(opened, Opened)
    await until(lambda: not responses.under_way)
    assert (await responses.find(opened.id)).ended is None
    assert responses.ended["complete"] == 1
    await responses.stop()
