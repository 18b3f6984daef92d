"""Durable responses through the client, and generators as durable streams."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any

import pytest

from headwater.client import (
    AsyncHeadwater,
    Headwater,
    ResponseIncomplete,
    StreamNotFound,
    UpstreamRefused,
)
from headwater.client.asgi import durable
from tests.support.server import ServerProcess
from tests.support.upstream import Peer, Upstream

PATIENCE_S = 60
TOKENS = [f"token {n} \u2713\n" for n in range(400)]


@pytest.fixture(scope="module")
def proxy() -> Iterator[ServerProcess]:
    """A server that ends event streams all the time, so that readers have to come back."""
    arguments = ("--proxy-allow", "http://127.0.0.1:*", "--sse-lifetime-ms", "100")
    with ServerProcess("--memory", *arguments) as server:
        yield server


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def client(proxy: ServerProcess) -> AsyncIterator[AsyncHeadwater]:
    async with AsyncHeadwater(proxy.url, token="for-headwater") as client:
        yield client


def slowly(peer: Peer) -> None:
    """About half a second of tokens, cut inside of characters."""

    def parts() -> Iterator[bytes]:
        body = "".join(TOKENS).encode()
        for at in range(0, len(body), 97):
            peer.upstream.over.wait(0.005)
            yield body[at : at + 97]

    peer.chunked(parts(), "Content-Type: text/plain; charset=utf-8")


async def test_the_body_arrives_whole_through_lost_connections(
    client: AsyncHeadwater, upstream: Upstream
) -> None:
    answer = await client.durable_request(
        upstream.on("/tokens", slowly),
        json={"question": "why"},
        headers={"Authorization": "Bearer for-upstream", "X-Model": "m"},
    )
    assert answer.content_type == "text/plain; charset=utf-8"
    reader = answer.follow()
    text = "".join([piece async for piece in reader.text()])
    assert text == "".join(TOKENS)
    assert (reader.closed, reader.close_reason) == (True, None)
    (seen,) = upstream.seen
    assert json.loads(seen.body) == {"question": "why"}
    assert seen.values("authorization") == ["Bearer for-upstream"]
    assert seen.values("content-type") == ["application/json"]
    assert seen.values("x-model") == ["m"]


@pytest.mark.parametrize("live", ["sse", "long-poll"])
async def test_a_saved_position_and_address_are_enough_to_go_on(
    client: AsyncHeadwater, proxy: ServerProcess, upstream: Upstream, live: Any
) -> None:
    answer = await client.durable_request(upstream.on("/tokens", slowly), method="GET")
    reader = answer.follow(live=live)
    first = await anext(reader.bytes())
    address, position = answer.url, str(reader.position)
    await reader.aclose()
    async with AsyncHeadwater(proxy.url) as elsewhere:
        again = elsewhere.durable_response(address)
        assert again.content_type is None
        rest = b"".join([piece async for piece in again.follow(position, live=live).bytes()])
    assert (first + rest).decode() == "".join(TOKENS)


async def test_an_abort_is_seen_by_readers(client: AsyncHeadwater, upstream: Upstream) -> None:
    def script(peer: Peer) -> None:
        peer.chunked([b"so far"], end=False)
        peer.wait_for_hangup()

    answer = await client.durable_request(upstream.on("/x", script))
    reader = answer.follow()
    pieces = reader.bytes()
    assert await anext(pieces) == b"so far"
    assert reader.close_reason is None
    await answer.abort()
    await answer.abort()
    assert [piece async for piece in pieces] == []
    assert reader.close_reason == "aborted"
    with pytest.raises(ResponseIncomplete) as caught:
        await answer.read()
    assert (caught.value.reason, caught.value.body) == ("aborted", b"so far")
    await answer.delete()
    with pytest.raises(StreamNotFound):
        await answer.read()


async def test_an_error_of_the_upstream_is_raised(
    client: AsyncHeadwater, upstream: Upstream
) -> None:
    body = b'{"error": {"message": "no credit", "code": "quota"}}'
    url = upstream.on(
        "/e", lambda peer: peer.answer(body, "Content-Type: application/json", status="402 Pay")
    )
    with pytest.raises(UpstreamRefused, match="no credit") as caught:
        await client.durable_request(url)
    assert (caught.value.status, caught.value.upstream_status) == (502, 402)
    assert len(upstream.seen) == 1


async def test_the_signature_is_not_shown(client: AsyncHeadwater, upstream: Upstream) -> None:
    answer = await client.durable_request(upstream.on("/a", lambda peer: peer.answer(b"x")))
    assert "signature=" in answer.url
    assert "signature" not in repr(answer)
    assert await answer.read() == b"x"


def test_the_blocking_client_does_the_same(proxy: ServerProcess, upstream: Upstream) -> None:
    with Headwater(proxy.url) as client:
        answer = client.durable_request(upstream.on("/tokens", slowly), body=b"hello")
        assert "".join(answer.text()) == "".join(TOKENS)
        assert answer.read().decode() == "".join(TOKENS)
        assert client.durable_response(answer.url).follow().closed is False
        answer.abort()
        assert upstream.seen[0].body == b"hello"


# ── Generators ───────────────────────────────────────────────────────────────────────────────


async def call(app: Any) -> tuple[int, dict[str, str], bytes]:
    """Ask an ASGI application once."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({"type": "http", "method": "POST", "path": "/"}, receive, send)
    start, body = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], headers, body["body"]


async def test_a_generator_becomes_a_stream(client: AsyncHeadwater) -> None:
    more = asyncio.Event()

    async def tokens() -> AsyncIterator[dict[str, int]]:
        yield {"n": 1}
        await more.wait()
        yield {"n": 2}

    stream = client.stream("generated/1")
    status, headers, body = await call(durable(tokens(), stream))
    assert status == 201
    assert headers["location"] == stream.url
    assert json.loads(body) == {"streamUrl": stream.url}
    messages = stream.follow(live="sse").messages()
    assert await anext(messages) == {"n": 1}
    more.set()
    assert [message async for message in messages] == [{"n": 2}]


async def test_a_generator_of_text_with_an_address_of_its_own(client: AsyncHeadwater) -> None:
    async def words() -> AsyncIterator[str]:
        for word in ("one ", "two ", "three"):
            yield word

    stream = client.stream("generated/2")
    app = durable(words(), stream, content_type="text/plain", read_url="/read/2", ttl_s=60)
    _, headers, _ = await call(app)
    assert headers["location"] == "/read/2"
    assert "".join([piece async for piece in stream.follow().text()]) == "one two three"


async def test_a_generator_that_fails_ends_its_stream(client: AsyncHeadwater) -> None:
    async def tokens() -> AsyncIterator[dict[str, str]]:
        yield {"text": "so far"}
        raise RuntimeError("out of ideas")

    stream = client.stream("generated/3")
    await call(durable(tokens(), stream, on_error=lambda error: {"error": str(error)}))
    messages = [message async for message in stream.follow().messages()]
    assert messages == [{"text": "so far"}, {"error": "out of ideas"}]


async def test_under_starlette_the_answer_is_one_of_its_responses(
    client: AsyncHeadwater, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As FastAPI checks for: whatever is not such a response is turned into JSON."""

    class Response:
        def __init__(self, status_code: int) -> None:
            self.status_code = status_code
            self.background: Any = None

    module = ModuleType("starlette.responses")
    module.Response = Response  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "starlette.responses", module)

    async def tokens() -> AsyncIterator[int]:
        yield 1

    stream = client.stream("generated/4")
    answer = durable(tokens(), stream)
    assert isinstance(answer, Response)
    assert answer.status_code == 201
    done = threading.Event()

    async def background() -> None:
        done.set()

    answer.background = background
    status, _, _ = await call(answer)
    assert (status, done.is_set()) == (201, True)
    assert [message async for message in stream.follow().messages()] == [1]
