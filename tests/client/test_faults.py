"""Nothing lost, nothing twice, no hang: over a proxy that drops, delays, cuts and repeats."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

from headwater.client import AsyncHeadwater, AsyncStream, ProducerOptions, RetryPolicy, Timeouts
from tests.client.faulty_proxy import FATES, FaultyProxy
from tests.support import seeds

pytestmark = pytest.mark.slow

Live = Literal["long-poll", "sse"]

# More seeds, more luck: HEADWATER_FAULT_SEEDS=100 for a longer search.
SEEDS = seeds.several(int(os.environ.get("HEADWATER_FAULT_SEEDS", "4")))
MESSAGES = 400
# Far more than a healthy run takes: it only turns a hang into a failure.
HANG_S = 120.0

RESTLESS = RetryPolicy(base_delay_s=0.005, max_delay_s=0.02, give_up_after_s=None)
SHORT = Timeouts(connect_s=5.0, answer_s=0.3, long_poll_s=0.3, sse_silence_s=0.3)
SMALL_BATCHES = ProducerOptions(linger_s=0.0, max_batch_messages=3, retry=RESTLESS)


@pytest.fixture(params=SEEDS)
async def proxy(request: pytest.FixtureRequest, base_url: str) -> AsyncIterator[FaultyProxy]:
    async with FaultyProxy(base_url, seed=request.param, fault_rate=0.4) as proxy:
        yield proxy
        # The tests mean nothing if the proxy was too kind.
        assert proxy.fates.total() > proxy.fates["pass"]


@pytest.fixture
async def direct(base_url: str, new_path: str) -> AsyncIterator[AsyncStream]:
    """The stream without the proxy, to see what is really there."""
    async with AsyncHeadwater(base_url) as client:
        stream = client.stream(new_path)
        await stream.create(content_type="application/json")
        yield stream


def through(proxy: FaultyProxy) -> AsyncHeadwater:
    return AsyncHeadwater(proxy.url, retry=RESTLESS, timeouts=SHORT)


async def produce(proxy: FaultyProxy, path: str, **options: Any) -> None:
    async with through(proxy) as client:
        stream = client.stream(path, content_type="application/json")
        producer = stream.producer("p", options=SMALL_BATCHES, **options)
        for number in range(MESSAGES):
            await producer.append({"n": number, "padding": "x" * (number % 500)})
        await producer.close_stream({"n": MESSAGES})


async def follow(proxy: FaultyProxy, path: str, live: Live) -> list[int]:
    async with through(proxy) as client, client.stream(path).follow(live=live) as reader:
        return [message["n"] async for message in reader.messages()]


async def follow_in_pieces(proxy: FaultyProxy, path: str, live: Live) -> list[int]:
    """Start again from the saved position every few messages, with a new client each time."""
    position, seen, finished = "-1", list[int](), False
    while not finished:
        async with through(proxy) as client:
            reader = client.stream(path).follow(position, live=live)
            messages = reader.messages()
            for _ in range(37):
                message = await anext(messages, None)
                if message is None:
                    finished = True
                    break
                seen.append(message["n"])
            position = str(reader.position)
    return seen


async def test_a_producer_writes_exactly_once(proxy: FaultyProxy, direct: AsyncStream) -> None:
    async with asyncio.timeout(HANG_S):
        await produce(proxy, direct.path)
    assert [message["n"] for message in await direct.read_json()] == list(range(MESSAGES + 1))


@pytest.mark.parametrize("live", ["long-poll", "sse"])
async def test_followers_see_everything_once(
    proxy: FaultyProxy, direct: AsyncStream, live: Live
) -> None:
    async with asyncio.timeout(HANG_S), asyncio.TaskGroup() as group:
        group.create_task(produce(proxy, direct.path))
        steady = group.create_task(follow(proxy, direct.path, live))
        restless = group.create_task(follow_in_pieces(proxy, direct.path, live))
    assert steady.result() == list(range(MESSAGES + 1))
    assert restless.result() == list(range(MESSAGES + 1))


async def test_a_reader_reads_everything_once(proxy: FaultyProxy, direct: AsyncStream) -> None:
    values = [{"n": number, "padding": "x" * 1_000} for number in range(3_000)]
    await direct.append_all(values, max_batch_bytes=50_000)
    async with asyncio.timeout(HANG_S), through(proxy) as client:
        for _ in range(10):
            assert await client.stream(direct.path).read_json() == values


def test_the_proxy_deals_every_fate() -> None:
    proxy = FaultyProxy("http://127.0.0.1:1", seed=0, fault_rate=0.4)
    assert {proxy.next_fate() for _ in range(500)} == {*FATES, "pass"}
