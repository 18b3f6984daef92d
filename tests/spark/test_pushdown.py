"""Filters that save reading, and change nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pyspark_headwater.options import read_options
from pyspark_headwater.planning import RangesPartition
from pyspark_headwater.shapes import message_schema, messages_as_rows
from pyspark_headwater.source import FilteringReader
from tests.spark.world import World, values


def read(world: World, *filters: Filter, own_schema: bool = False) -> list[str]:
    """What is read for some filters, before Spark applies them."""
    options = world.options(None, streamPattern=f"{world.prefix}/*")
    shape = messages_as_rows(message_schema(json=True, headers=False))
    reader = FilteringReader(read_options(options, "batch read"), shape, own_schema=own_schema)
    assert [*reader.pushFilters([*filters])] == [*filters]
    found: list[str] = []
    for partition in reader.partitions():
        assert isinstance(partition, RangesPartition)
        found += [one for batch in reader.read(partition) for one in batch["value"].to_pylist()]
    return found


@pytest.fixture
def offsets(world: World) -> list[str]:
    """The offsets of a stream with three appends; beside it, a stream with one."""
    stream = world.stream("a")
    found = []
    for number in range(3):
        found.append(stream.head().next_offset or "")
        stream.append_all([number, number])
    world.stream("b", [9])
    return found


def test_by_stream(world: World, offsets: list[str]) -> None:
    a, b = world.name("a"), world.name("b")
    assert read(world, EqualTo(("stream",), b)) == ["9"]
    assert read(world, In(("stream",), (a, b))) == ["0", "0", "1", "1", "2", "2", "9"]
    assert read(world, EqualTo(("stream",), "other")) == []


def test_by_offset(world: World, offsets: list[str]) -> None:
    only = EqualTo(("stream",), world.name("a"))
    _, second, third = offsets
    assert read(world, only, GreaterThanOrEqual(("offset",), second)) == ["1", "1", "2", "2"]
    assert read(world, only, EqualTo(("offset",), second)) == ["1", "1"]
    assert read(world, only, LessThanOrEqual(("offset",), second)) == ["0", "0", "1", "1"]
    assert read(world, only, GreaterThan(("offset",), third)) == ["2", "2"]
    assert len(read(world, only, GreaterThan(("offset",), "no offset"))) == 6


def test_by_time(world: World, offsets: list[str]) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    earlier = datetime(2020, 1, 1, tzinfo=UTC)
    assert read(world, GreaterThan(("timestamp",), later)) == []
    assert read(world, LessThan(("timestamp",), earlier)) == []
    assert len(read(world, LessThan(("timestamp",), later))) == 7
    assert len(read(world, GreaterThanOrEqual(("timestamp",), earlier))) == 7


def test_what_is_not_understood_is_read(world: World, offsets: list[str]) -> None:
    naive = datetime(2100, 1, 1)  # noqa: DTZ001 - that is the point
    for one in (
        Not(EqualTo(("stream",), "x")),
        EqualTo(("value",), "1"),
        EqualTo(("stream", "inner"), "x"),
        GreaterThan(("timestamp",), naive),
        GreaterThan(("stream",), "zzz"),
    ):
        assert len(read(world, one)) == 7
    fields = EqualTo(("stream",), "a field of the message")
    assert len(read(world, fields, own_schema=True)) == 7
    place = EqualTo(("_stream",), world.name("b"))
    assert read(world, place, own_schema=True) == ["9"]


def test_with_spark(spark: SparkSession, world: World, offsets: list[str]) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = world.batch(spark, None, streamPattern=f"{world.prefix}/*")
        assert values(frame) == [0, 0, 1, 1, 2, 2, 9]
        assert values(frame.where(f"offset >= '{offsets[1]}' AND index = 0")) == [1, 2]
        assert values(frame.where(f"stream = '{world.name('b')}'")) == [9]
        assert values(frame.where("timestamp > current_timestamp() + INTERVAL 1 HOUR")) == []
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
