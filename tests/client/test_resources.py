"""What Headwater has beyond the public protocol, in both flavours, and other servers without it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headwater.client import (
    AsyncHeadwater,
    AsyncStream,
    NotSupported,
    ResponseError,
    StreamNotFound,
    StreamSummary,
)
from headwater.client.protocol import Response
from headwater.client.resources import list_request
from tests.client.fake_transport import FakeTransport, refused, script


async def test_the_list_of_streams(client: AsyncHeadwater, new_path: str) -> None:
    for number in range(5):
        await client.stream(f"{new_path}/{number}").create()
    found = await client.streams(f"{new_path}/")
    assert [stream.name for stream in found] == [f"{new_path}/{number}" for number in range(5)]
    assert {stream.content_type for stream in found} == {"application/json"}
    page = await client.stream_page(f"{new_path}/", limit=2)
    assert [stream.name[-1] for stream in page.streams] == ["0", "1"]
    rest = await client.stream_page(f"{new_path}/", after=page.next or "")
    assert [stream.name[-1] for stream in rest.streams] == ["2", "3", "4"]
    assert rest.next is None
    assert await client.streams(f"{new_path}/none") == []


async def test_details(json_stream: AsyncStream) -> None:
    await json_stream.append([1, 2, 3])
    details = await json_stream.details()
    assert (details.name, details.messages, details.closed) == (json_stream.path, 3, False)
    assert details.tail == (await json_stream.head()).next_offset


async def test_no_stream_is_not_mistaken_for_another_server(stream: AsyncStream) -> None:
    with pytest.raises(StreamNotFound):
        await stream.details()
    with pytest.raises(StreamNotFound):
        await stream.position(last=1)


async def test_positions(json_stream: AsyncStream) -> None:
    await json_stream.append([1, 2, 3])
    await json_stream.append(4)
    assert await json_stream.read_json(await json_stream.position(last=2)) == [3, 4]
    an_hour = timedelta(hours=1)
    ago = await json_stream.position(time=datetime.now(UTC) - an_hour)
    assert await json_stream.read_json(ago) == [1, 2, 3, 4]
    ahead = await json_stream.position(time=datetime.now(UTC) + an_hour)
    assert await json_stream.read_json(ahead) == []


@pytest.mark.parametrize(
    "place",
    [{}, {"last": 1, "time": datetime.now(UTC)}, {"time": datetime.fromisoformat("2026-01-01")}],
)
async def test_a_position_needs_one_clear_place(place: dict[str, object]) -> None:
    stream = AsyncHeadwater("http://server", transport=FakeTransport(script())).stream("s")
    with pytest.raises(ValueError, match="time"):
        await stream.position(**place)  # type: ignore[arg-type]


async def test_snapshots(json_stream: AsyncStream) -> None:
    receipt = await json_stream.append({"n": 1})
    assert receipt.next_offset is not None
    snapshots = json_stream.snapshots
    with pytest.raises(ResponseError) as caught:
        await snapshots.get()
    assert caught.value.code == "snapshot_not_found"
    await snapshots.put(receipt.next_offset, b"[1]", content_type="application/json")
    kept = await snapshots.get()
    assert (kept.offset, kept.data) == (receipt.next_offset, b"[1]")
    assert kept.content_type == "application/json"
    assert [one.offset for one in await snapshots.list()] == [receipt.next_offset]
    await snapshots.delete(receipt.next_offset)
    assert await snapshots.list() == []


@pytest.mark.parametrize(
    "answer",
    [
        refused(404),
        refused(405),
        Response(200, {"content-type": "text/html"}, b"<html>"),
        Response(200, {"content-type": "application/json"}, b"[]"),
    ],
)
async def test_other_servers_do_not_offer_it(answer: Response) -> None:
    client = AsyncHeadwater("http://server", transport=FakeTransport(script(answer)))
    with pytest.raises(NotSupported):
        await client.stream("s").details()


def test_the_list_lies_beside_the_streams() -> None:
    assert list_request("http://x/proxy/v1/stream", "", "").url == "http://x/proxy/v1/streams"
    assert list_request("http://x/my/streams", "a", "b").url == "http://x/v1/streams"
    assert list_request("http://x/v1/stream", "a", "b", 5).params == {
        "prefix": "a",
        "after": "b",
        "limit": "5",
    }
    assert StreamSummary("s").tail == ""
