"""Values of a program's own types, and what the server knows of messages, in every flavour."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest

from headwater.client import (
    AsyncHeadwater,
    AsyncStream,
    InvalidMessage,
    NotSupported,
    Position,
    ProducerTag,
)
from headwater.client.protocol.streams import Response
from tests.client.fake_transport import FakeTransport

PATIENCE_S = 30


@dataclass
class Item:
    name: str
    price: Decimal


@dataclass
class Order:
    id: int
    due: date
    items: list[Item]


class Struct(msgspec.Struct):
    id: int
    due: date


class Line(pydantic.BaseModel):
    name: str
    price: Decimal


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    id: int = pydantic.Field(alias="orderId")
    due: date
    size: tuple[int, int] = (1, 1)
    lines: list[Line] = []


ORDER = Order(1, date(2026, 11, 16), [Item("tea", Decimal("2.50"))])
STRUCT = Struct(1, date(2026, 11, 16))
MODEL = Model(orderId=1, due=date(2026, 11, 16), lines=[Line(name="tea", price=Decimal("2.50"))])


@pytest.mark.parametrize("value", [ORDER, STRUCT, MODEL], ids=lambda value: type(value).__name__)
async def test_values_come_back_on_every_way(
    client: AsyncHeadwater, json_stream: AsyncStream, value: Any
) -> None:
    kind = type(value)
    await json_stream.append(value)
    await json_stream.append([value, value])
    await json_stream.append_all([value])
    async with json_stream.producer() as producer:
        await producer.append(value)
    async with client.transaction() as transaction:
        transaction.publish(json_stream.path, value)
    assert await json_stream.read_json(type=kind) == [value] * 6
    assert [each async for each in json_stream.read().messages(kind)] == [value] * 6
    assert [each.value async for each in json_stream.records(type=kind)] == [value] * 6
    await json_stream.group("workers").ensure()
    [message] = await json_stream.group("workers").fetch(wait_s=PATIENCE_S)
    assert message.as_(kind) == value


async def test_models_inside_of_other_values(json_stream: AsyncStream) -> None:
    await json_stream.append({"order": MODEL})
    [raw] = await json_stream.read_json()
    assert raw["order"]["orderId"] == 1
    assert await json_stream.read_json(type=dict[str, Model]) == [{"order": MODEL}]


@pytest.mark.parametrize("kind", [Order, Struct, Model])
async def test_a_misfit_is_named(json_stream: AsyncStream, kind: type) -> None:
    good = {"id": 1, "orderId": 1, "due": "2026-11-16", "items": []}
    await json_stream.append(good)
    offset = (await json_stream.head()).next_offset
    await json_stream.append([good, {**good, "due": "soon"}, good])
    where = f"{json_stream.path}: the message at {offset}/1 is not {kind.__name__}: "
    ways: list[Any] = [
        json_stream.read_json(offset or "", type=kind),
        anext(json_stream.read(Position(offset or "", 1)).messages(kind)),
        _all(json_stream.records(type=kind)),
    ]
    for way in ways:
        with pytest.raises(InvalidMessage) as caught:
            await way
        assert where in str(caught.value)
        assert "due" in str(caught.value) or "date" in str(caught.value)
    await json_stream.group("g").ensure(start=offset)
    _, misfit, _ = await json_stream.group("g").fetch(max=3, wait_s=PATIENCE_S)
    with pytest.raises(InvalidMessage, match=f"{json_stream.path}: the message at .* is not"):
        misfit.as_(kind)


async def test_what_is_no_json_value_is_refused_before_it_is_sent(json_stream: AsyncStream) -> None:
    with pytest.raises(TypeError, match="object is not a JSON value; use a dict, a dataclass"):
        await json_stream.append({"a": object()})
    await json_stream.append({})
    with pytest.raises(NotImplementedError, match="use a dataclass"):
        await json_stream.read_json(type=AsyncStream)


def test_pydantic_is_not_imported() -> None:
    code = (
        "import sys, headwater.client; from headwater.core.payloads import encode_append;"
        "encode_append({'a': 1}, 'application/json'); assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- Where to begin ------------------------------------------------------------------------------


async def test_last_and_since_on_every_way(json_stream: AsyncStream) -> None:
    await json_stream.append_all(range(5))
    boundary = (await anext(json_stream.records(last=1))).timestamp
    since = boundary + timedelta(milliseconds=1)
    # What follows has a later time: the clock is the one of this machine.
    await asyncio.sleep(max(0.002, (since - datetime.now(UTC)).total_seconds() + 0.002))
    await json_stream.append_all([5, 6])
    assert await json_stream.read_json(last=3) == [4, 5, 6]
    assert await json_stream.read_json(since=since) == [5, 6]
    assert await json_stream.read_json(since=timedelta(hours=1)) == list(range(7))
    assert [each async for each in json_stream.read(last=1).messages()] == [6]
    assert [each.value async for each in json_stream.records(since=since)] == [5, 6]
    assert [each.value async for each in json_stream.records(last=100)] == list(range(7))
    await json_stream.close()
    for live in ("long-poll", "sse"):
        reader = json_stream.follow(last=2, live=live)
        assert [each async for each in reader.messages()] == [5, 6]
    assert [each.value async for each in json_stream.records(last=2, follow=True)] == [5, 6]


async def test_last_and_since_of_text(text_stream: AsyncStream) -> None:
    for word in ("one ", "two ", "three"):
        await text_stream.append(word)
    assert await text_stream.read_text(last=2) == "two three"
    assert await text_stream.read_bytes(last=1) == b"three"
    assert await text_stream.read_text(since=timedelta(days=1)) == "one two three"
    assert [each.value async for each in text_stream.records(last=2)] == [b"two ", b"three"]


async def test_where_to_begin_is_one_thing(json_stream: AsyncStream) -> None:
    twice: list[dict[str, Any]] = [
        {"last": 1, "since": timedelta(1)},
        {"offset": "now", "last": 1},
    ]
    for both in twice:
        ways: list[Any] = [json_stream.read, json_stream.follow, json_stream.records]
        for read in ways:
            with pytest.raises(ValueError, match="one of the three"):
                read(**both)
    with pytest.raises(ValueError, match="time zone"):
        await json_stream.read_json(since=datetime.now())  # noqa: DTZ005


async def test_a_reader_that_began_by_last_goes_on_from_its_position(
    json_stream: AsyncStream,
) -> None:
    await json_stream.append_all(range(10))
    reader = json_stream.read(last=5)
    items = reader.messages()
    assert [await anext(items), await anext(items)] == [5, 6]
    assert await json_stream.read_json(reader.position) == [7, 8, 9]


# --- What is known of messages -------------------------------------------------------------------


async def test_records_have_times_ids_and_producers(json_stream: AsyncStream) -> None:
    before = datetime.now(UTC) - timedelta(seconds=60)
    await json_stream.append({"a": 1})
    await json_stream.append_tagged([2, 3], ProducerTag("me", 4, 0))
    first, second, third = await _all(json_stream.records())
    assert (first.value, first.index, first.id, first.producer) == ({"a": 1}, 0, None, None)
    assert before < first.timestamp < datetime.now(UTC) + timedelta(seconds=60)
    assert (second.producer.id, second.producer.epoch, second.producer.seq) == ("me", 4, 0)
    assert (second.offset, third.index) == (third.offset, 1)
    assert await json_stream.read_json(second.position) == [3]
    assert [each.value for each in await _all(json_stream.records(second.position))] == [3]
    assert third.position == Position((await json_stream.head()).next_offset or "")
    await json_stream.group("g").ensure()
    [message] = await json_stream.group("g").fetch(wait_s=PATIENCE_S)
    assert message.timestamp == first.timestamp


async def test_records_with_ids(client: AsyncHeadwater, new_path: str) -> None:
    stream = client.stream(new_path)
    await stream.create(unique_ids="succeed")
    assert (await stream.head()).unique_ids == "succeed"
    await stream.append(1, id="first")
    await stream.append(1, id="first")
    assert [(each.value, each.id) for each in await _all(stream.records())] == [(1, "first")]


async def test_records_from_inside_of_an_append_of_bytes(text_stream: AsyncStream) -> None:
    await text_stream.append("hello")
    await text_stream.append(" world")
    start = Position((await _all(text_stream.records()))[0].offset, 3)
    assert [each.value for each in await _all(text_stream.records(start))] == [b"lo", b" world"]
    beyond = Position(start.offset, 6)
    assert [each.value for each in await _all(text_stream.records(beyond))] == [b"world"]


async def test_records_are_followed(client: AsyncHeadwater, json_stream: AsyncStream) -> None:
    records = json_stream.records(follow=True)
    await json_stream.append(1)
    assert (await anext(records)).value == 1
    following = asyncio.ensure_future(anext(records))
    await asyncio.sleep(0.05)
    await json_stream.append(2)
    assert (await asyncio.wait_for(following, PATIENCE_S)).value == 2
    await json_stream.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(records), PATIENCE_S)


async def test_other_servers_have_no_records() -> None:
    async def answer(request: Any) -> Response:
        return Response(404, {"content-type": "text/plain"}, b"no")

    async with AsyncHeadwater("http://x", transport=FakeTransport(answer)) as client:
        for way in (client.stream("s").records(), client.stream("s").read(last=1).messages()):
            with pytest.raises(NotSupported):
                await anext(way)


async def _all(items: Any) -> list[Any]:
    return [each async for each in items]
