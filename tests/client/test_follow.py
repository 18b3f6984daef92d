"""Following a stream live, in both flavours and both live modes, against a real server."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Literal

import pytest

from headwater.client import (
    NOW,
    AsyncReader,
    AsyncStream,
    MaterializedState,
    StreamNotFound,
)

LIVE = pytest.mark.parametrize("live", ["long-poll", "sse"])
Live = Literal["long-poll", "sse"]


@LIVE
async def test_follow_to_the_end(json_stream: AsyncStream, live: Live) -> None:
    await json_stream.append_all([1, 2])
    async with json_stream.follow(live=live) as reader:
        messages = reader.messages()
        seen = [await anext(messages), await anext(messages)]
        await json_stream.append(3)
        seen.append(await anext(messages))
        await json_stream.append(4, close=True)
        seen += [message async for message in messages]
    assert seen == [1, 2, 3, 4]
    assert reader.closed


@LIVE
async def test_follow_tells_when_it_has_caught_up(json_stream: AsyncStream, live: Live) -> None:
    async with json_stream.follow(live=live) as reader:
        first = await reader.next_batch()
        assert first is not None
        assert not first
        assert first.up_to_date
        assert reader.up_to_date
        await json_stream.append(1)
        second = await reader.next_batch()
        assert second is not None
        assert second.messages() == [1]
        await json_stream.close()
        last = await reader.next_batch()
        assert last is not None
        assert last.closed
        assert await reader.next_batch() is None


@LIVE
async def test_follow_from_now_skips_nothing_after_its_start(
    json_stream: AsyncStream, live: Live
) -> None:
    await json_stream.append("before")
    async with json_stream.follow(NOW, live=live) as reader:
        await reader.next_batch()
        await json_stream.append("between")
        position = reader.position
    await json_stream.append("after")
    await json_stream.close()
    async with json_stream.follow(position, live=live) as reader:
        assert [message async for message in reader.messages()] == ["between", "after"]


@LIVE
async def test_a_timeout_loses_nothing(json_stream: AsyncStream, live: Live) -> None:
    await json_stream.append(1)
    async with json_stream.follow(live=live) as reader:
        await reader.next_batch()
        position = reader.position
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await reader.next_batch(timeout_s=0.01)
        assert reader.position == position
        await json_stream.append(2)
        batch = await reader.next_batch()
        assert batch is not None
        assert batch.messages() == [2]


@LIVE
@pytest.mark.parametrize("content_type", ["application/octet-stream", "image/png"])
async def test_binary_data(stream: AsyncStream, live: Live, content_type: str) -> None:
    await stream.create(content_type=content_type)
    data = os.urandom(5_000)
    await stream.append(data)
    async with stream.follow(live=live) as reader:
        pieces = reader.bytes()
        assert await anext(pieces) == data
        await stream.append(bytes(range(256)))
        assert await anext(pieces) == bytes(range(256))
    assert await stream.read_bytes() == data + bytes(range(256))


@LIVE
async def test_text_with_line_ends(text_stream: AsyncStream, live: Live) -> None:
    async with text_stream.follow(live=live) as reader:
        assert await first_empty(reader)
        await text_stream.append("one\n\ntwo: three\nevent: data\n")
        await text_stream.close()
        seen = [batch.text async for batch in reader if batch]
    assert "".join(seen) == "one\n\ntwo: three\nevent: data\n"


async def first_empty(reader: AsyncReader) -> bool:
    batch = await reader.next_batch()
    return batch is not None and not batch


@LIVE
async def test_a_stream_that_is_deleted_while_it_is_followed(
    json_stream: AsyncStream, live: Live
) -> None:
    async with json_stream.follow(live=live) as reader:
        assert await first_empty(reader)
        waiting = asyncio.ensure_future(reader.next_batch())
        await json_stream.delete()
        with pytest.raises(StreamNotFound):
            await waiting


async def test_a_closed_stream_is_followed_to_its_end(text_stream: AsyncStream) -> None:
    await text_stream.append("all", close=True)
    pieces = text_stream.follow(live="sse").text()
    assert [piece async for piece in pieces] == ["all"]


# --- State ---------------------------------------------------------------------------------------


@LIVE
async def test_materialized_state(json_stream: AsyncStream, live: Live) -> None:
    def change(operation: str, key: str, value: Any = None) -> dict[str, Any]:
        return {"type": "user", "key": key, "value": value, "headers": {"operation": operation}}

    state = MaterializedState()
    keys: list[str] = []
    state.on_change(lambda one: keys.append(one.key))
    await json_stream.append_all([change("insert", "1", "Ada"), change("insert", "2", "Eve")])
    async with json_stream.follow(live=live) as reader:
        changes = reader.changes(state)
        assert [(await anext(changes)).key for _ in range(2)] == ["1", "2"]
        await json_stream.append_all([change("delete", "1"), change("upsert", "2", "Eva")])
        await json_stream.close()
        assert [(one.kind, one.key) async for one in changes] == [("delete", "1"), ("update", "2")]
    assert state.of_type("user") == {"2": "Eva"}
    assert keys == ["1", "2", "1", "2"]
    assert state.position == reader.position
