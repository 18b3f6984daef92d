"""Servers that mean no good: the client fails with its own errors, soon, and tells them nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from headwater.client import (
    AsyncHeadwater,
    ConnectionFailed,
    HeadwaterError,
    InvalidMessage,
    RateLimited,
    RetryPolicy,
    ServerUnavailable,
    Timeouts,
    UnexpectedAnswer,
)
from headwater.client.protocol.refusals import retry_after_s
from headwater.client.protocol.streams import ProducerTag, Request
from tests.support.nesting import TOO_DEEP

PATIENCE_S = 60
SOON = RetryPolicy(base_delay_s=0.01, max_delay_s=0.02, give_up_after_s=0.3)
DIGITS = "9" * 5000


@asynccontextmanager
async def hostile(
    answer: bytes,
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers every request in the same way, and hangs up."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            seen.append(head)
            writer.write(answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", seen


def http(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


JSON = "application/json"
ANSWERS = {
    "a web page": http("200 OK", b"<html>", Content_Type="text/html"),
    "no type": http("200 OK", b"[1]"),
    "half a value": http("200 OK", b"[1, 2", Content_Type=JSON, Stream_Next_Offset="0_1"),
    "no offset": http("200 OK", b"[1]", Content_Type=JSON),
    "endless numbers": http(
        "200 OK", b"[1]", Content_Type=JSON, Stream_Next_Offset=f"{DIGITS}_{DIGITS}"
    ),
    "cut short": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[1",
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200_000,
    "one endless header": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 2_000_000,
    "no HTTP": b"SSH-2.0-OpenSSH_9.9\r\n",
    "nothing": b"",
    "a bomb of nesting": http(
        "200 OK", b"[" * 100_000, Content_Type=JSON, Stream_Next_Offset="0_1"
    ),
    "bad chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "teapot": http("418 I'm a teapot", b"\xff\xfe", Content_Type=JSON),
    "a bomb of nesting in a refusal": http(
        "404 No", b'{"error":' * 100_000, Content_Type=JSON, Stream_Next_Offset="0_1"
    ),
    "odd error": http("500 No", b'{"error": [[[]]]}', Content_Type=JSON),
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_nonsense_is_an_error_of_the_client(kind: str) -> None:
    async with (
        hostile(ANSWERS[kind]) as (url, _),
        AsyncHeadwater(url, retry=SOON, timeouts=Timeouts(answer_s=5)) as client,
        asyncio.timeout(PATIENCE_S),
    ):
        stream = client.stream("s", content_type=JSON)
        with pytest.raises(HeadwaterError):
            await stream.read_json()
        with pytest.raises(HeadwaterError):
            await stream.group("g").fetch()
        # What an answer with an offset says besides does not matter.
        with suppress(HeadwaterError):
            await stream.append(1)


@pytest.mark.parametrize("kind", ["a web page", "no type", "no offset"])
async def test_a_web_server_stores_nothing(kind: str) -> None:
    """It answers everything with 200, which is no receipt, and no stream that exists."""
    async with (
        hostile(ANSWERS[kind]) as (url, _),
        AsyncHeadwater(url, retry=SOON) as client,
        asyncio.timeout(PATIENCE_S),
    ):
        stream = client.stream("s", content_type=JSON)
        for attempt in (
            lambda: stream.append(1),
            lambda: stream.append_tagged([1], ProducerTag("p", 0, 0)),
            lambda: stream.create(),
            lambda: stream.ensure(),
            lambda: stream.head(),
        ):
            with pytest.raises(UnexpectedAnswer, match="Stream-Next-Offset"):
                await attempt()
        with pytest.raises(HeadwaterError):
            async with stream.producer("p", epoch=0) as producer:
                await producer.append(1)


async def test_only_what_changes_something_can_be_in_doubt() -> None:
    async with hostile(ANSWERS["nothing"]) as (url, _), AsyncHeadwater(url, retry=SOON) as client:
        stream = client.stream("s", content_type=JSON)
        for ask in (stream.read_json, stream.head):
            with pytest.raises(ConnectionFailed) as asked:
                await ask()
            assert not asked.value.in_doubt
        with pytest.raises(ConnectionFailed) as sent:
            await stream.append(1)
        assert sent.value.in_doubt


@pytest.mark.parametrize("later", [DIGITS, "-5", "soon", "1e400", "Mon, 16 Nov 9" + DIGITS])
@pytest.mark.parametrize(
    "status, kind", [("429 Slow", RateLimited), ("503 Busy", ServerUnavailable)]
)
async def test_nonsense_to_wait_for_is_not_waited_for(
    status: str, kind: type[HeadwaterError], later: str
) -> None:
    async with hostile(http(status, Retry_After=later)) as (url, seen):
        async with AsyncHeadwater(url, retry=SOON) as client, asyncio.timeout(PATIENCE_S):
            with pytest.raises(kind):
                await client.stream("s").read_json()
        assert len(seen) > 1


def test_a_wait_has_a_bound() -> None:
    now = time.time()
    assert retry_after_s("86400", now=now) == 86_400
    for absurd in ("86401", DIGITS, "Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 16 Nov 9" + DIGITS):
        assert retry_after_s(absurd, now=now) is None


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
async def test_a_redirect_to_another_host_gets_no_credentials(status: str) -> None:
    async with hostile(http("200 OK", b"[]", Content_Type=JSON)) as (elsewhere, stolen):
        moved = http(status, Location=f"{elsewhere}/v1/stream/s")
        async with (
            hostile(moved) as (url, _),
            AsyncHeadwater(url, "secret", retry=SOON) as client,
        ):
            with pytest.raises(HeadwaterError):
                await client.stream("s", content_type=JSON).read_json()
            with pytest.raises(HeadwaterError):
                await client.stream("s", content_type=JSON).append(1)
        assert stolen == []


@pytest.mark.parametrize(
    "page", [b'{"streams": [], "next": ""}', b'{"subscriptions": [], "next": ""}']
)
async def test_pages_that_lead_nowhere_have_an_end(page: bytes) -> None:
    async with (
        hostile(http("200 OK", page, Content_Type=JSON)) as (url, seen),
        AsyncHeadwater(url, retry=SOON) as client,
        asyncio.timeout(PATIENCE_S),
    ):
        with pytest.raises(UnexpectedAnswer, match="leads back"):
            await (client.streams() if b"streams" in page else client.subscriptions())
    assert len(seen) == 1


async def test_records_that_get_no_further_have_an_end() -> None:
    answer = http("200 OK", Content_Type="application/x-ndjson", Stream_Next_Offset="0_1")
    async with (
        hostile(answer) as (url, seen),
        AsyncHeadwater(url, retry=SOON) as client,
        asyncio.timeout(PATIENCE_S),
    ):
        with pytest.raises(UnexpectedAnswer, match="no further"):
            async for _ in client.stream("s").records("0_1"):
                pass
    assert len(seen) == 1


async def test_what_are_no_keys_is_an_error_of_the_client() -> None:
    async with (
        hostile(http("200 OK", b'{"keys": 1}', Content_Type=JSON)) as (url, _),
        AsyncHeadwater(url, retry=SOON) as client,
    ):
        with pytest.raises(UnexpectedAnswer, match="no keys"):
            await client.webhook_keys()


async def test_a_message_that_is_nested_too_deeply_is_an_error_of_the_client() -> None:
    deep = b"[" * TOO_DEEP + b"]" * TOO_DEEP
    async with (
        hostile(http("200 OK", deep, Content_Type=JSON, Stream_Next_Offset="0_1")) as (url, _),
        AsyncHeadwater(url, retry=SOON) as client,
    ):
        with pytest.raises(InvalidMessage, match="unreadable"):
            await client.stream("s", content_type=JSON).read_json()


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "GZIP,br", "x"])
async def test_only_encodings_that_were_asked_for_are_unpacked(encoding: str) -> None:
    """A kilobyte of the others can be gigabytes of memory."""
    answer = http("200 OK", b"", Content_Type=JSON, Content_Encoding=encoding)
    async with (
        hostile(answer) as (url, seen),
        AsyncHeadwater(url, retry=SOON) as client,
        asyncio.timeout(PATIENCE_S),
    ):
        with pytest.raises(UnexpectedAnswer, match="nobody asked"):
            await client.stream("s").read_json()
        with pytest.raises(UnexpectedAnswer, match="nobody asked"):
            await client._sender.open(Request("GET", f"{url}/v1/stream/s"))
    assert not any(
        b"br" in line
        for head in seen
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"accept-encoding")
    )
