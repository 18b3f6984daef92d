"""The reader without Spark around it: what it takes in, how it cuts, and what if data is gone."""

from __future__ import annotations

import threading
from typing import Any, NoReturn

import httpx
import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)

from headwater.client.protocol.extensions import Reach
from pyspark_headwater import reading, source
from pyspark_headwater.errors import DataLoss, InvalidOption, UnknownStream
from pyspark_headwater.options import read_options
from pyspark_headwater.planning import StreamRange, packed
from pyspark_headwater.selection import Selection
from pyspark_headwater.shapes import message_schema, messages_as_rows
from pyspark_headwater.source import StreamReader
from pyspark_headwater.wire import BEGINNING, Wire, wire_to
from tests.http.client import eventually
from tests.spark.world import Fate, Gateway, World

EVERYTHING: ReadLimit = ReadAllAvailable()


def reader(world: World, name: str | None = "events", **options: object) -> StreamReader:
    options = {"startingOffsets": "earliest", **options}
    chosen = read_options(world.options(name, **options), "stream read")
    return StreamReader(chosen, messages_as_rows(message_schema(json=True, headers=False)))


def rows(reader: StreamReader, start: dict[str, str], end: dict[str, str]) -> list[list[str]]:
    """The messages of each partition."""
    found = []
    for partition in reader.partitions(start, end):
        batches = [*reader.read(partition)]
        found.append([value for batch in batches for value in batch["value"].to_pylist()])
    return found


def test_from_the_beginning_to_the_end(world: World) -> None:
    world.stream("events", [1, 2], [3])
    source = reader(world)
    start = source.initialOffset()
    assert start == {world.name(): BEGINNING}
    end = source.latestOffset(start, EVERYTHING)
    assert rows(source, start, end) == [["1", "2", "3"]]
    assert source.reportLatestOffset() == end


def test_a_batch_that_is_run_again_reads_the_same(world: World) -> None:
    stream = world.stream("events", *[["x" * 20_000] * 2 for _ in range(10)])
    first = reader(world, minPartitions=3)
    start = first.initialOffset()
    end = first.latestOffset(start, EVERYTHING)
    before = rows(first, start, end)
    stream.append("later")
    again = reader(world, minPartitions=3)
    assert rows(again, start, end) == before
    assert len(before) >= 3
    assert sum(map(len, before)) == 20


def test_a_small_batch_is_planned_as_the_server_would(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = world.stream("events", [1])
    one = reader(world)
    start = one.latestOffset(one.initialOffset(), EVERYTHING)
    stream.append_all([2, 3])
    stream.append(4)
    end = one.latestOffset(start, EVERYTHING)
    (asked,) = reader(world).partitions(start, end)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the server was asked")

    with monkeypatch.context() as patch:
        patch.setattr(Wire, "ranges", refuse)
        patch.setattr(Wire, "pieces", refuse)
        (known,) = one.partitions(start, end)
        assert known.value == asked.value
        assert [batch["value"].to_pylist() for batch in one.read(known)] == [["2", "3", "4"]]
        for other in (reader(world), reader(world, failOnDataLoss="false")):
            with pytest.raises(AssertionError, match="asked"):
                other.partitions(start, end)


def test_what_comes_while_a_batch_is_counted_belongs_to_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it has less than its least, and the rest waits for company."""
    stream = world.stream("events", [0])
    one = reader(world, minOffsetsPerTrigger=3, maxTriggerDelay="1h")
    start = one.latestOffset(one.initialOffset(), EVERYTHING)
    stream.append_all([1, 2])
    late, reach = [[3, 4]], Wire.reach

    def reach_later(wire: Wire, name: str, offset: str) -> Reach:
        if late:
            stream.append_all(late.pop())
        return reach(wire, name, offset)

    monkeypatch.setattr(Wire, "reach", reach_later)
    end = one.latestOffset(start, EVERYTHING)
    assert rows(one, start, end) == [["1", "2", "3", "4"]]


def test_limits(world: World) -> None:
    stream = world.stream("events", *[[n, n] for n in range(10)])
    source = reader(world, maxOffsetsPerTrigger=5)
    assert source.getDefaultReadLimit() == ReadMaxRows(5)
    start, sizes = source.initialOffset(), []
    source.prepareForTriggerAvailableNow()
    stream.append("too late")
    while (end := source.latestOffset(start, ReadMaxRows(5))) != start:
        sizes.append(sum(map(len, rows(source, start, end))))
        start = end
    assert sizes == [4, 4, 4, 4, 4]
    by_size = reader(world, maxBytesPerTrigger=9)
    assert by_size.getDefaultReadLimit() == ReadMaxBytes(9)
    start = by_size.initialOffset()
    end = by_size.latestOffset(start, ReadMaxBytes(9))
    assert rows(by_size, start, end) == [["0", "0", "1", "1"]]
    # A trigger that wants everything gets everything.
    everything = by_size.latestOffset(start, EVERYTHING)
    assert sum(map(len, rows(by_size, start, everything))) == 21


def test_a_limit_is_shared_by_what_waits(world: World) -> None:
    world.stream("big", *[[n] for n in range(90)])
    world.stream("small", *[[n] for n in range(10)])
    source = reader(
        world, None, streams=f"{world.name('big')},{world.name('small')}", maxOffsetsPerTrigger=20
    )
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(20))
    assert [*end] == sorted(end)
    wire = wire_to(read_options(world.options(), "stream read").server)
    left = {name: wire.reach(name, offset).messages for name, offset in end.items()}
    assert left == {world.name("big"): 72, world.name("small"): 8}


def test_news_end_the_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # So long that the test would not end if it were waited for.
    monkeypatch.setattr(source, "IDLE_WAIT_S", 25.0)
    stream = world.stream("events", [1])
    one = reader(world)
    start = one.latestOffset(one.initialOffset(), EVERYTHING)
    wait = Wire.wait_for_news

    def wait_while_something_is_appended(self: Wire, *arguments: Any) -> None:
        thread = threading.Thread(target=stream.append, args=(2,))
        thread.start()
        wait(self, *arguments)
        thread.join()

    monkeypatch.setattr(Wire, "wait_for_news", wait_while_something_is_appended)
    end = one.latestOffset(start, EVERYTHING)
    assert rows(one, start, end) == [["2"]]


def test_nothing_new_is_the_same_place(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "IDLE_WAIT_S", 0.3)
    world.stream("a", [1])
    world.stream("b", [1])
    for one in (reader(world, "a"), reader(world, None, streamPattern=f"{world.prefix}/*")):
        start = one.latestOffset(one.initialOffset(), EVERYTHING)
        assert one.latestOffset(start, EVERYTHING) == start
        assert one.partitions(start, start) == []


def test_streams_join_a_pattern(world: World) -> None:
    world.stream("shops/a/orders", [1])
    world.stream("shops/a/returns", [0])
    source = reader(world, None, streamPattern=f"{world.prefix}/shops/*/orders")
    start = source.initialOffset()
    assert [*start] == [world.name("shops/a/orders")]
    world.stream("shops/b/orders", [2])
    end = source.latestOffset(start, EVERYTHING)
    assert [*end] == [world.name("shops/a/orders"), world.name("shops/b/orders")]
    assert rows(source, start, end) == [["1", "2"]]


def test_a_stream_costs_a_request_if_something_is_new_in_it(world: World) -> None:
    """However many streams there are."""
    streams = [world.stream(f"s{number}", [number]) for number in range(12)]
    with Gateway(world.url, lambda *_: "pass").running() as gateway:
        options = {"streamPattern": f"{world.prefix}/*", "endpoint": gateway.url}
        one = reader(world, None, **options)
        start = one.latestOffset(one.initialOffset(), EVERYTHING)
        for stream in streams[::3]:
            stream.append("new")
        gateway.seen.clear()
        end = one.latestOffset(start, EVERYTHING)
        assert rows(one, start, end) == [['"new"'] * 4]
        assert len(gateway.seen) == 1 + 4, "the list of streams, and what is new in four of them"


def test_small_and_large_ranges_come_in_order(world: World) -> None:
    """Whichever of them are on their way at the same time."""
    large = "x" * (reading._SMALL_BYTES + 1)
    for number in range(24):
        world.stream(f"s{number:02d}", [f"{number}a"], [large if number % 5 == 2 else "small", "z"])
    one = reader(world, None, streamPattern=f"{world.prefix}/*")
    start = one.initialOffset()
    (found,) = rows(one, start, one.latestOffset(start, EVERYTHING))
    expected = [
        text
        for number in range(24)
        for text in (f"{number}a", large if number % 5 == 2 else "small", "z")
    ]
    assert found == [f'"{text}"' for text in expected]


def test_starting_places(world: World) -> None:
    stream = world.stream("events", [1, 2])
    middle = stream.head().next_offset
    stream.append(3)
    tail = stream.head().next_offset
    name = world.name()
    places = {
        "latest": tail,
        f'{{"{name}": "{middle}"}}': middle,
        f'{{"{name}": "latest"}}': tail,
        "{}": BEGINNING,
    }
    for asked, expected in places.items():
        assert reader(world, startingOffsets=asked).initialOffset() == {name: expected}
    at_once = read_options(world.options(startingTimestamp=0), "stream read")
    assert Selection(at_once, wire_to(at_once.server)).starting() == {name: BEGINNING}
    later = read_options(world.options(startingTimestamp=10**14), "stream read")
    assert Selection(later, wire_to(later.server)).starting() == {name: tail}
    strange = reader(world, startingOffsets=f'{{"{name}": "0000000000009999_0000000000000001"}}')
    with pytest.raises(InvalidOption, match="no offset of"):
        strange.initialOffset()


def test_a_stream_that_is_not_there(world: World) -> None:
    with pytest.raises(UnknownStream, match="create it first"):
        reader(world, "nothing").initialOffset()


# ── Data loss ────────────────────────────────────────────────────────────────────────────────


def recreated(world: World, one: StreamReader) -> tuple[dict[str, str], dict[str, str]]:
    """A query that has read a stream, which is then deleted and created again."""
    stream = world.stream("events", ["old", "old"])
    start = one.latestOffset(one.initialOffset(), EVERYTHING)
    stream.append("lost")
    end = one.latestOffset(start, EVERYTHING)
    stream.delete()
    world.stream("events", ["new"])
    return start, end


def test_a_stream_created_anew_is_data_loss(world: World) -> None:
    one = reader(world)
    start, end = recreated(world, one)
    with pytest.raises(DataLoss, match="created again"):
        one.latestOffset(end, EVERYTHING)
    with pytest.raises(DataLoss, match="created again"):
        one.partitions(start, end)


def test_a_stream_created_anew_can_be_read_on(world: World) -> None:
    one = reader(world, failOnDataLoss="false")
    start, end = recreated(world, one)
    assert rows(one, start, end) == []
    later = one.latestOffset(end, EVERYTHING)
    assert rows(one, end, later) == [['"new"']]


def test_a_deleted_stream_is_data_loss(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "IDLE_WAIT_S", 0.1)
    stream = world.stream("events", [1])
    one, tolerant = reader(world), reader(world, failOnDataLoss="false")
    start = one.initialOffset()
    end = one.latestOffset(start, EVERYTHING)
    (partition,) = one.partitions(start, end)
    stream.delete()
    with pytest.raises(DataLoss, match="does not exist any more"):
        one.latestOffset(end, EVERYTHING)
    with pytest.raises(DataLoss):
        one.partitions(start, end)
    with pytest.raises(DataLoss):
        [*one.read(partition)]
    assert tolerant.latestOffset(end, EVERYTHING) == end
    assert tolerant.partitions(start, end) == []
    assert [*tolerant.read(partition)] == []


def test_one_of_many_small_streams_is_deleted(world: World) -> None:
    """While a task is about to read it."""
    streams = [world.stream(f"s{number}", [number], [number]) for number in range(9)]
    options = {"streamPattern": f"{world.prefix}/*"}
    one = reader(world, None, **options)
    tolerant = reader(world, None, **options, failOnDataLoss="false")
    start = one.initialOffset()
    (partition,) = one.partitions(start, one.latestOffset(start, EVERYTHING))
    streams[4].delete()
    with pytest.raises(DataLoss, match="s4"):
        [*one.read(partition)]
    found = [value for batch in tolerant.read(partition) for value in batch["value"].to_pylist()]
    assert found == [str(number) for number in range(9) if number != 4 for _ in range(2)]


def test_what_expired_after_the_end_was_asked_for_is_data_loss(world: World) -> None:
    """The end of a stream is not asked about when there is no limit; whoever reads finds out."""
    stream = world.client.stream(world.name())
    stream.ensure(content_type="application/json", retention_bytes=30)
    first = stream.append("x" * 20).next_offset
    for _ in range(2):
        stream.append("x" * 20)
    details = f"{world.url}/v1/stream/{world.name()}/_details"
    eventually(lambda: httpx.get(details).json()["earliest"] > first)
    one, start = reader(world), {world.name(): str(first)}
    end = one.latestOffset(start, EVERYTHING)
    with pytest.raises(DataLoss, match="no longer keeps"):
        rows(one, start, end)


def test_a_stream_that_lets_go_of_its_past(world: World) -> None:
    stream = world.client.stream(world.name())
    stream.ensure(content_type="application/json", retention_bytes=30)
    offsets = [stream.append("x" * 20).next_offset for _ in range(3)]
    one, tolerant = reader(world, maxOffsetsPerTrigger=9), reader(world, failOnDataLoss="false")
    start = one.initialOffset()
    details = f"{world.url}/v1/stream/{world.name()}/_details"
    eventually(lambda: httpx.get(details).json()["earliest"] == offsets[1])
    end = one.latestOffset(start, ReadMaxRows(9))
    assert rows(one, start, end) == [['"xxxxxxxxxxxxxxxxxxxx"']], "earliest is what there is"
    behind = {world.name(): str(offsets[0])}
    with pytest.raises(DataLoss, match="no longer keeps"):
        one.partitions(behind, end)
    assert rows(tolerant, behind, end) == rows(one, start, end)


# ── A server in trouble ──────────────────────────────────────────────────────────────────────


def test_a_server_that_is_unavailable_is_waited_for(world: World) -> None:
    world.stream("events", [1, 2, 3])

    def fate(number: int, method: str, headers: Any) -> Fate:
        return ("unavailable", "lose answer", "pass")[number % 3]

    with Gateway(world.url, fate).running() as gateway:
        one = reader(world, endpoint=gateway.url)
        start = one.initialOffset()
        assert rows(one, start, one.latestOffset(start, EVERYTHING)) == [["1", "2", "3"]]
        assert {fate for _, fate in gateway.seen} == {"unavailable", "lose answer", "pass"}


# ── Pure parts ───────────────────────────────────────────────────────────────────────────────


def test_small_ranges_share_a_task() -> None:
    ranges = [StreamRange(str(n), "", "", size) for n, size in enumerate([4, 4, 4, 9, 20, 1, 1])]
    assert [[one.bytes for one in group] for group in packed(ranges, 10)] == [
        [4, 4],
        [4],
        [9],
        [20],
        [1, 1],
    ]
