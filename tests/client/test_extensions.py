"""What Headwater has beyond the public protocol, in both flavours, and other servers without it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
import pytest

from headwater.client import (
    AsyncHeadwater,
    AsyncStream,
    BadRequest,
    Conflict,
    NotSupported,
    ProducerTag,
    ResponseError,
    StreamNotFound,
    StreamSummary,
    UnexpectedAnswer,
)
from headwater.client.protocol.extensions import list_request
from headwater.client.protocol.streams import Response
from tests.client.conftest import IMPATIENT
from tests.client.fake_transport import FakeTransport, lost, refused, script


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


async def test_a_deleted_stream_is_listed_and_comes_back(json_stream: AsyncStream) -> None:
    await json_stream.append([1, 2])
    await json_stream.delete()
    with pytest.raises(StreamNotFound):
        await json_stream.head()
    await json_stream.undelete()
    assert await json_stream.read_json() == [1, 2]
    await json_stream.append(3)
    with pytest.raises(StreamNotFound):
        await json_stream.undelete()
    assert await json_stream.read_json() == [1, 2, 3]


async def test_the_list_of_deleted_streams(client: AsyncHeadwater, new_path: str) -> None:
    for number in range(3):
        await client.stream(f"{new_path}/{number}").create()
    for number in (0, 2):
        await client.stream(f"{new_path}/{number}").delete()
    found = await client.streams(f"{new_path}/", deleted=True)
    assert [stream.name[-1] for stream in found] == ["0", "2"]
    assert all(0 < (one.deleted_at or 0) < (one.kept_until or 0) for one in found)
    page = await client.stream_page(f"{new_path}/", limit=1, deleted=True)
    assert [stream.name[-1] for stream in page.streams] == ["0"]
    page = await client.stream_page(f"{new_path}/", after=page.next or "", deleted=True)
    assert [stream.name[-1] for stream in page.streams] == ["2"]
    (left,) = await client.streams(f"{new_path}/")
    assert (left.name[-1], left.deleted_at, left.kept_until) == ("1", None, None)


async def test_a_list_of_live_streams_is_not_taken_for_one_of_deleted_ones() -> None:
    """A server that does not know the parameter leaves it aside."""
    answer = Response(200, {}, b'{"streams": [{"name": "alive"}], "next": null}')
    client = AsyncHeadwater("http://server", transport=FakeTransport(script(answer)))
    with pytest.raises(NotSupported):
        await client.streams(deleted=True)


async def test_what_is_purged_does_not_come_back(json_stream: AsyncStream) -> None:
    await json_stream.delete()
    await json_stream.create()
    await json_stream.delete(purge=True)
    with pytest.raises(StreamNotFound):
        await json_stream.undelete()
    with pytest.raises(StreamNotFound):
        await json_stream.delete(purge=True)


async def test_a_stream_does_not_come_back_over_another(json_stream: AsyncStream) -> None:
    await json_stream.delete()
    await json_stream.create()
    with pytest.raises(Conflict) as caught:
        await json_stream.undelete()
    assert caught.value.code == "undelete_conflict"


@pytest.mark.parametrize("there", [True, False])
async def test_an_undelete_whose_answer_was_lost(there: bool) -> None:
    """The next attempt finds nothing that is deleted. Whether the stream is there decides."""
    absent = refused(404, "stream_not_found")
    head = Response(200, {"stream-next-offset": "0_0"}) if there else absent
    transport = FakeTransport(script(lost(), absent, head))
    stream = AsyncHeadwater("http://server", transport=transport, retry=IMPATIENT).stream("s")
    if there:
        await stream.undelete()
    else:
        with pytest.raises(StreamNotFound):
            await stream.undelete()
    assert [request.method for request in transport.requests] == ["POST", "POST", "HEAD"]


async def test_clear_drops_messages_and_keeps_the_stream(json_stream: AsyncStream) -> None:
    await json_stream.append([1, 2])
    end = (await json_stream.head()).next_offset
    assert await json_stream.clear() == end
    info = await json_stream.head()
    assert (info.next_offset, info.earliest_offset) == (end, end)
    assert await json_stream.read_json() == []
    await json_stream.append(3)
    assert await json_stream.read_json() == [3]


async def test_clear_and_undelete_of_nothing(stream: AsyncStream) -> None:
    with pytest.raises(StreamNotFound):
        await stream.clear()
    with pytest.raises(StreamNotFound):
        await stream.undelete()


@pytest.mark.parametrize(
    "answer", [Response(404, {"content-type": "text/plain"}, b"no"), Response(204, {})]
)
async def test_other_servers_neither_clear_nor_undelete(answer: Response) -> None:
    transport = FakeTransport(script(*[answer] * 3))
    stream = AsyncHeadwater("http://server", transport=transport).stream("s")
    with pytest.raises(NotSupported):
        await stream.clear()
    with pytest.raises(NotSupported):
        await stream.undelete()
    with pytest.raises(NotSupported):
        await stream.bulk("0_0", "0_1")


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


async def test_a_moment_is_asked_for_to_the_millisecond() -> None:
    """Seconds as a float would lose one now and then, and a read would begin too early."""
    transport = FakeTransport(script(*[Response(200, {}, b'{"offset": "0_0"}')] * 1_000))
    stream = AsyncHeadwater("http://server", transport=transport).stream("s")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for ms in range(1_000):
        await stream.position(time=start + timedelta(milliseconds=ms))
    asked = [int(request.params["at"]) for request in transport.requests]
    assert asked == [1_767_225_600_000 + ms for ms in range(1_000)]


async def test_how_far_a_read_gets(json_stream: AsyncStream) -> None:
    await json_stream.append([1, 2, 3])
    whole = await json_stream.reach()
    assert (whole.messages, whole.offset) == (3, whole.tail)
    await json_stream.append(4)
    first = await json_stream.reach(messages=1)
    assert await json_stream.reach(first.offset, size_bytes=1 << 20) == await json_stream.reach(
        first.offset
    )
    with pytest.raises(BadRequest):
        await json_stream.reach("nonsense")


async def test_ranges_and_bulk(json_stream: AsyncStream) -> None:
    for number in range(20):
        await json_stream.append({"n": number, "text": "x" * 100_000})
    tail = (await json_stream.head()).next_offset or ""
    cut = (await json_stream.ranges(max_bytes=300_000, files=False)).ranges
    assert len(cut) > 1
    assert sum(one.messages for one in cut) == 20
    assert [one.until for one in cut[:-1]] == [one.offset for one in cut[1:]]
    assert cut[-1].until == tail
    rows: list[str] = []
    offset = cut[0].offset
    while offset != tail:
        part = await json_stream.bulk(offset, tail, max_bytes=300_000)
        with pa.ipc.open_stream(part.data) as reader:
            rows += reader.read_all()["value"].to_pylist()
        offset = part.next_offset
    assert [msgspec.json.decode(row)["n"] for row in rows] == list(range(20))


async def test_waiting_for_news(json_stream: AsyncStream) -> None:
    tail = (await json_stream.append(1)).next_offset or ""
    assert not await json_stream.wait(tail, 0.05)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(json_stream.wait(tail, 60))
        await asyncio.sleep(0.05)
        await json_stream.append(2)
    assert waiting.result()
    assert await json_stream.wait(tail, 60)


async def test_an_id_is_taken_once(client: AsyncHeadwater, new_path: str) -> None:
    stream = client.stream(new_path)
    await stream.create(headers={"Stream-Unique-Ids": "succeed"})
    for _ in range(3):
        await stream.append([[1, 2]], id="first")
    assert await stream.read_json() == [[1, 2]]


async def test_an_append_with_an_id_is_sent_again() -> None:
    transport = FakeTransport(script(lost(), Response(200, {"stream-next-offset": "0_9"})))
    client = AsyncHeadwater("http://server", transport=transport)
    await client.stream("s", content_type="application/json").append(1, id="a")
    assert [request.headers["Message-Id"] for request in transport.requests] == ["a", "a"]


async def test_an_answer_about_another_append_is_not_believed() -> None:
    other = Response(200, {"producer-epoch": "1", "producer-seq": "9"})
    ours = Response(200, {"producer-epoch": "2", "producer-seq": "0"})
    transport = FakeTransport(script(other, ours))
    client = AsyncHeadwater("http://server", transport=transport)
    stream = client.stream("dir/s", content_type="application/json")
    await stream.append_tagged([1], ProducerTag("p", 2, 0))
    assert transport.distrusted == 1
    client = AsyncHeadwater("http://server", transport=FakeTransport(script(*[other] * 20)))
    stream = client.stream("dir/s", content_type="application/json")
    with pytest.raises(UnexpectedAnswer, match=r"/v1/stream/dir/s: .*epoch 1"):
        await stream.append_tagged([1], ProducerTag("p", 2, 0))


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
