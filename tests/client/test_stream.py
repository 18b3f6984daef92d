"""Everything that a stream handle can do, in both flavours, against a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headwater.client import (
    NOW,
    AsyncHeadwater,
    AsyncStream,
    BadRequest,
    ConfigConflict,
    InvalidMessage,
    Position,
    ProducerTag,
    SequenceConflict,
    StaleEpoch,
    StreamClosed,
    StreamExists,
    StreamGone,
    StreamNotFound,
)

# --- Life cycle ----------------------------------------------------------------------------------


async def test_create_and_head(stream: AsyncStream) -> None:
    created = await stream.create(content_type="text/plain", ttl_s=3600)
    assert stream.content_type == "text/plain"
    info = await stream.head()
    assert info.content_type == "text/plain"
    assert info.next_offset == created.next_offset
    assert info.ttl_s == 3600
    assert not info.closed


async def test_create_twice(json_stream: AsyncStream) -> None:
    with pytest.raises(StreamExists):
        await json_stream.create(content_type="application/json")
    with pytest.raises(ConfigConflict) as caught:
        await json_stream.create(content_type="text/plain")
    assert caught.value.status == 409


async def test_ensure_may_be_repeated(stream: AsyncStream) -> None:
    await stream.ensure(content_type="application/json")
    await stream.append({"n": 1})
    await stream.ensure(content_type="application/json")
    assert await stream.read_json() == [{"n": 1}]
    with pytest.raises(ConfigConflict):
        await stream.ensure(content_type="text/plain")


async def test_read_from_the_start_when_the_beginning_is_gone(stream: AsyncStream) -> None:
    await stream.create(content_type="application/json", retention_bytes=20)
    for number in range(10):
        await stream.append({"number": number})
    # It goes little by little, on a busy machine; in the end one of them is left.
    async with asyncio.timeout(60):
        while len(read := await stream.read_json()) > 1:  # noqa: ASYNC110 - of a task's doing
            await asyncio.sleep(0.05)
    earliest = (await stream.head()).earliest_offset
    assert earliest is not None
    assert read == [{"number": 9}]
    assert await stream.read_json(earliest) == read
    async with stream.follow() as reader:
        assert await anext(aiter(reader.messages())) == read[0]
    async with stream.follow(live="sse") as reader:
        assert await anext(aiter(reader.messages())) == read[0]


async def test_durability(stream: AsyncStream) -> None:
    await stream.create(durability="relaxed")
    assert (await stream.head()).durability == "relaxed"
    assert (await stream.append(1)).relaxed
    async with stream.producer() as producer:
        delivery = await producer.append(2)
    assert (await delivery).relaxed
    await stream.ensure(durability="relaxed")
    with pytest.raises(ConfigConflict):
        await stream.ensure()
    closing = await stream.close()
    assert closing.closed
    assert not closing.relaxed
    assert await stream.read_json() == [1, 2]


async def test_ensure_changes_the_durability(stream: AsyncStream) -> None:
    await stream.ensure(durability="relaxed", version=1)
    await stream.ensure(durability="synced", version=2)
    assert (await stream.head()).durability == "synced"
    assert not (await stream.append(1)).relaxed
    fork = await stream.fork(f"{stream.path}/fork", durability="relaxed")
    assert (await fork.head()).durability == "relaxed"


async def test_create_with_content_and_closed(stream: AsyncStream) -> None:
    info = await stream.create(content_type="text/plain", data="all there is", closed=True)
    assert info.closed
    assert await stream.read_text() == "all there is"
    with pytest.raises(StreamClosed):
        await stream.append("more")


async def test_expiry(stream: AsyncStream) -> None:
    await stream.create(content_type="text/plain", expires_at="2999-01-01T00:00:00Z")
    assert (await stream.head()).expires_at is not None


async def test_retention(stream: AsyncStream) -> None:
    await stream.create(content_type="text/plain", retention_s=60)
    info = await stream.head()
    assert (info.retention_s, info.retention_bytes) == (60, None)
    with pytest.raises(ConfigConflict):
        await stream.ensure(content_type="text/plain", retention_s=61)
    await stream.ensure(content_type="text/plain", retention_bytes=1_000, version=2)
    info = await stream.head()
    assert (info.retention_s, info.retention_bytes) == (None, 1_000)
    fork = await stream.fork(f"{stream.path}/fork", retention_s=5, retention_bytes=6)
    info = await fork.head()
    assert (info.retention_s, info.retention_bytes) == (5, 6)


async def test_a_stream_that_is_not_there(stream: AsyncStream) -> None:
    for attempt in (stream.head(), stream.append("x"), stream.delete(), stream.read_bytes()):
        with pytest.raises(StreamNotFound) as caught:
            await attempt
        assert caught.value.status == 404


async def test_delete(text_stream: AsyncStream) -> None:
    await text_stream.delete()
    with pytest.raises(StreamNotFound):
        await text_stream.head()


async def test_settings_that_make_no_sense(stream: AsyncStream) -> None:
    with pytest.raises(BadRequest):
        await stream.create(ttl_s=-1)


async def test_close(text_stream: AsyncStream) -> None:
    receipt = await text_stream.append("the end")
    closed = await text_stream.close()
    assert closed.closed
    assert closed.next_offset == receipt.next_offset
    assert (await text_stream.close()).closed
    assert (await text_stream.head()).closed
    with pytest.raises(StreamClosed) as caught:
        await text_stream.append("too late")
    assert caught.value.next_offset == receipt.next_offset


async def test_append_and_close_in_one_step(text_stream: AsyncStream) -> None:
    assert (await text_stream.append("bye", close=True)).closed
    assert await text_stream.read_text() == "bye"


async def test_fork(json_stream: AsyncStream, new_path: str) -> None:
    first = await json_stream.append(1)
    await json_stream.append_all([2, 3])
    whole = await json_stream.fork(f"{new_path}-whole")
    part = await json_stream.fork(f"{new_path}-part", offset=first.next_offset)
    inside = await json_stream.fork(f"{new_path}-in", offset=first.next_offset, sub_offset=1)
    await json_stream.append("only in the source")
    await part.append("only in the fork")
    assert await whole.read_json() == [1, 2, 3]
    assert await part.read_json() == [1, "only in the fork"]
    assert await inside.read_json() == [1, 2]
    await json_stream.delete()
    with pytest.raises(StreamGone):
        await json_stream.head()
    assert await whole.read_json() == [1, 2, 3]


async def test_fork_of_nothing(stream: AsyncStream, new_path: str) -> None:
    with pytest.raises(StreamNotFound):
        await stream.fork(f"{new_path}-fork")


# --- Appending -----------------------------------------------------------------------------------


async def test_json_values(json_stream: AsyncStream) -> None:
    class Order(msgspec.Struct):
        id: int

    values: list[Any] = [{"a": 1}, [1, 2], [], "text", 1.5, None, True]
    for value in values:
        await json_stream.append([value])
    await json_stream.append(Order(7))
    await json_stream.append(b'{"raw":1.0}')
    assert await json_stream.read_json() == [*values, {"id": 7}, {"raw": 1.0}]


async def test_a_list_is_several_messages_as_it_is_over_http(stream: AsyncStream) -> None:
    await stream.create(data=[0, [0]])
    assert (await stream.head()).content_type == "application/json"
    await stream.append([1, [2]])
    await stream.append(b"[3, [4]]")
    async with stream.producer() as producer:
        await producer.append([5, [6]])
        await producer.append(b"[7]")
    assert await stream.read_json() == [0, [0], 1, [2], 3, [4], 5, [6], 7]
    with pytest.raises(ValueError, match="nothing to append"):
        await stream.append([])


async def test_bytes_and_text(text_stream: AsyncStream) -> None:
    await text_stream.append("grün ")
    await text_stream.append(b"und blau")
    assert await text_stream.read_text() == "grün und blau"
    assert await text_stream.read_bytes() == "grün und blau".encode()
    with pytest.raises(TypeError, match="takes bytes or str"):
        await text_stream.append({"not": "text"})
    with pytest.raises(ValueError, match="nothing to append"):
        await text_stream.append("")


async def test_a_new_handle_finds_out_the_type(
    json_stream: AsyncStream, client: AsyncHeadwater
) -> None:
    other = client.stream(json_stream.path)
    assert other.content_type is None
    await other.append({"n": 1})
    assert other.content_type == "application/json"


async def test_a_handle_with_the_wrong_type(
    json_stream: AsyncStream, client: AsyncHeadwater
) -> None:
    with pytest.raises(ConfigConflict):
        await client.stream(json_stream.path, content_type="text/plain").append("x")


async def test_append_all(json_stream: AsyncStream) -> None:
    values = [{"n": n} for n in range(1_000)]
    receipt = await json_stream.append_all(values, max_batch_bytes=1_000)
    assert receipt is not None
    assert receipt.next_offset == (await json_stream.head()).next_offset
    assert await json_stream.read_json() == values
    assert await json_stream.append_all(iter(())) is None


async def test_append_tagged(json_stream: AsyncStream) -> None:
    first, second = (ProducerTag("reader", 7, number) for number in range(2))
    receipt = await json_stream.append_tagged([{"n": 1}, [2, 3]], first, seq="a")
    assert not receipt.duplicate
    assert (await json_stream.append_tagged([{"n": 1}, [2, 3]], first, seq="a")).duplicate
    with pytest.raises(SequenceConflict):
        await json_stream.append_tagged([4], second, seq="a")
    await json_stream.append_tagged(iter([4]), second, seq="b")
    with pytest.raises(StaleEpoch):
        await json_stream.append_tagged([5], ProducerTag("reader", 6, 0))
    assert await json_stream.read_json() == [{"n": 1}, [2, 3], 4]


async def test_append_all_says_how_far_it_came(json_stream: AsyncStream) -> None:
    with pytest.raises(BadRequest) as caught:
        await json_stream.append_all([b"1", b"2", b"3", b"not json"], max_batch_bytes=1)
    assert caught.value.__notes__ == ["3 messages had been appended before this"]


async def test_stream_seq(text_stream: AsyncStream) -> None:
    await text_stream.append("a", seq="001")
    await text_stream.append("b", seq="002")
    with pytest.raises(SequenceConflict):
        await text_stream.append("b again", seq="002")
    assert await text_stream.read_text() == "ab"


async def test_any_path(client: AsyncHeadwater, new_path: str) -> None:
    stream = client.stream(f"{new_path}/a-b_c.d~e/f:g@h")
    await stream.create(content_type="text/plain")
    await stream.append("x")
    assert await stream.read_text() == "x"
    assert stream.url.endswith("/a-b_c.d~e/f:g@h")


# --- Reading -------------------------------------------------------------------------------------


async def test_batches_have_offsets(json_stream: AsyncStream) -> None:
    first = await json_stream.append(1)
    await json_stream.append_all([2, 3])
    [batch] = [batch async for batch in json_stream.read()]
    assert batch.messages() == [1, 2, 3]
    assert batch.up_to_date
    assert not batch.closed
    assert first.next_offset is not None
    [rest] = [batch async for batch in json_stream.read(first.next_offset)]
    assert rest.messages() == [2, 3]
    assert rest.start == Position(first.next_offset)
    assert rest.next_offset == batch.next_offset


async def test_an_empty_stream(json_stream: AsyncStream) -> None:
    assert await json_stream.read_json() == []
    [batch] = [batch async for batch in json_stream.read()]
    assert not batch
    assert batch.up_to_date


async def test_from_the_end(json_stream: AsyncStream) -> None:
    await json_stream.append("before")
    reader = json_stream.read(NOW)
    assert [message async for message in reader.messages()] == []
    await json_stream.append("after")
    assert await json_stream.read_json(reader.position) == ["after"]


async def test_a_read_that_takes_many_answers(json_stream: AsyncStream) -> None:
    values = ["x" * 1_000 + str(n) for n in range(3_000)]
    await json_stream.append_all(values, max_batch_bytes=100_000)
    assert await json_stream.read_json() == values


async def test_typed_messages(json_stream: AsyncStream) -> None:
    class Order(msgspec.Struct):
        id: int

    await json_stream.append_all([{"id": 1}, {"id": 2}])
    assert await json_stream.read_json(type=Order) == [Order(1), Order(2)]
    assert [order.id async for order in json_stream.read().messages(Order)] == [1, 2]
    await json_stream.append("no order")
    reader = json_stream.read()
    with pytest.raises(InvalidMessage):
        await anext(reader.messages(Order))
    assert reader.position == Position()


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5])
async def test_resume_in_the_middle_of_a_batch(json_stream: AsyncStream, stop_after: int) -> None:
    await json_stream.append_all([1, 2, 3])
    await json_stream.append_all([4, 5])
    seen = []
    reader = json_stream.read()
    async for message in reader.messages():
        seen.append(message)
        if len(seen) == stop_after:
            break
    saved = str(reader.position)
    assert seen + await json_stream.read_json(saved) == [1, 2, 3, 4, 5]
    [*batches] = [batch.messages() async for batch in json_stream.read(saved) if batch]
    assert [m for batch in batches for m in batch] == list(range(stop_after + 1, 6))


async def test_one_reader_yields_one_kind_of_thing(json_stream: AsyncStream) -> None:
    await json_stream.append(1)
    reader = json_stream.read()
    items = reader.messages()
    assert await anext(items) == 1
    with pytest.raises(RuntimeError, match="yields items"):
        reader.text()
    with pytest.raises(RuntimeError, match="yields items"):
        await reader.next_batch()


async def test_offsets_that_are_none(json_stream: AsyncStream) -> None:
    with pytest.raises(BadRequest):
        await json_stream.read_json("nonsense")
    with pytest.raises(ValueError, match="not a position"):
        json_stream.read("")


# --- Other requests ------------------------------------------------------------------------------


async def test_any_other_request(text_stream: AsyncStream, client: AsyncHeadwater) -> None:
    await text_stream.append("x")
    answer = await client.request("GET", text_stream.url, params={"offset": "-1"})
    assert answer.body == b"x"
    with pytest.raises(StreamNotFound):
        await client.request("GET", f"{text_stream.url}-not-there")
