"""Exactly once although the server is killed and started again in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from headwater.client import AsyncHeadwater, AsyncStream, ProducerOptions, Receipt, RetryPolicy
from tests.conftest import StartServer
from tests.support.server import ServerProcess

Live = Literal["long-poll", "sse"]

pytestmark = [pytest.mark.crash, pytest.mark.slow]

KILLS = 5
MESSAGES_PER_LIFE = 200
# Far more than a healthy run takes: it only turns a hang into a failure.
HANG_S = 180.0

RESTLESS = RetryPolicy(base_delay_s=0.01, max_delay_s=0.1, give_up_after_s=None)
SMALL_BATCHES = ProducerOptions(linger_s=0.0, max_batch_messages=7, retry=RESTLESS)


async def produce_across_crashes(stream: AsyncStream, server: ServerProcess) -> list[Receipt]:
    """Append for ever new messages, and kill the server while some of them are under way."""
    receipts: list[Receipt] = []
    deliveries: list[asyncio.Future[Receipt]] = []
    async with stream.producer("p", options=SMALL_BATCHES) as producer:
        for life in range(KILLS):
            first = life * MESSAGES_PER_LIFE
            deliveries = [
                await producer.append({"n": number})
                for number in range(first, first + MESSAGES_PER_LIFE)
            ]
            # Some are stored, some are under way, some have not been sent: now.
            receipts.append(await deliveries[MESSAGES_PER_LIFE // 4])
            assert not deliveries[-1].done()
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        receipts += [await delivery for delivery in deliveries]
        await producer.close_stream()
    return receipts


async def follow(client: AsyncHeadwater, path: str, live: Live) -> list[int]:
    async with client.stream(path).follow(live=live) as reader:
        return [message["n"] async for message in reader.messages()]


async def test_exactly_once(tmp_path: Path, start_server: StartServer) -> None:
    server = start_server("--data", str(tmp_path))
    async with asyncio.timeout(HANG_S), AsyncHeadwater(server.url, retry=RESTLESS) as client:
        stream = client.stream("numbers")
        await stream.create(content_type="application/json")
        async with asyncio.TaskGroup() as group:
            producing = group.create_task(produce_across_crashes(stream, server))
            following = [
                group.create_task(follow(client, "numbers", live)) for live in ("long-poll", "sse")
            ]
        expected = list(range(KILLS * MESSAGES_PER_LIFE))
        assert [message["n"] for message in await stream.read_json()] == expected
        assert [task.result() for task in following] == [expected, expected]
        assert len(producing.result()) == KILLS + MESSAGES_PER_LIFE
