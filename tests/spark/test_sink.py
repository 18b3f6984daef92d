"""`df.write` and `df.writeStream`: everything once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.failing_source import FailingSource
from tests.spark.world import Fate, Gateway, World, values


def test_rows_become_messages(spark: SparkSession, world: World) -> None:
    frame = spark.range(5).selectExpr("id AS n", "named_struct('x', id) AS inner")
    options = world.options("sink", createStream="true")
    frame.write.format("headwater").mode("append").options(**options).save()
    assert sorted(world.read(), key=lambda row: int(row["n"])) == [
        {"n": n, "inner": {"x": n}} for n in range(5)
    ]


def test_a_job_that_is_run_again_writes_nothing_twice(spark: SparkSession, world: World) -> None:
    world.stream("sink")

    def write(version: int, rows: int) -> None:
        options = world.options("sink", producerId="job", txnVersion=version, rowsPerRequest=2)
        frame = spark.range(0, rows, 1, 2).selectExpr("id AS n")
        frame.write.format("headwater").mode("append").options(**options).save()

    write(1, 7)
    write(1, 7)
    assert sorted(row["n"] for row in world.read()) == [*range(7)]
    write(2, 3)
    write(2, 3)
    assert len(world.read()) == 10
    with pytest.raises(PySparkException, match="a later batch or run than 1"):
        write(1, 7)


def test_one_order_for_all(spark: SparkSession, world: World) -> None:
    world.stream("sink")
    options = world.options(
        "sink", ordering="global", producerId="job", txnVersion=1, rowsPerRequest=3
    )
    for _ in range(2):
        frame = spark.range(0, 20, 1, 4).selectExpr("id AS n")
        frame.write.format("headwater").mode("append").options(**options).save()
    assert [row["n"] for row in world.read()] == [*range(20)]


def test_changes_and_streams_by_column(spark: SparkSession, world: World) -> None:
    frame = spark.createDataFrame(
        [(world.name("a"), 1, "x"), (world.name("b"), 2, "y")], "stream string, id int, v string"
    )
    options = world.options(None, createStream="true", keyColumn="id", entityType="thing")
    frame.write.format("headwater").mode("append").options(**options).save()
    assert world.read("a") == [
        {
            "type": "thing",
            "key": "1",
            "headers": {"operation": "upsert"},
            "value": {"id": 1, "v": "x"},
        }
    ]
    assert world.read("b")[0]["key"] == "2"


def test_ids_make_messages_unique(spark: SparkSession, world: World) -> None:
    frame = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], "id string, n int").coalesce(1)
    options = world.options("sink", createStream="true", messageIdColumn="id")
    for _ in range(2):
        frame.write.format("headwater").mode("append").options(**options).save()
    assert [row["n"] for row in world.read()] == [1, 2]
    world.stream("plain")
    with pytest.raises(PySparkException, match="does not"):
        frame.write.format("headwater").mode("append").options(
            **world.options("plain", messageIdColumn="id")
        ).save()


def test_tasks_that_fail_after_their_append(spark: SparkSession, world: World) -> None:
    spark.dataSource.register(FailingSource)
    world.stream("events", *[[n, n + 1000] for n in range(20)])
    world.stream("sink")
    marks = world.directory / "marks"
    marks.mkdir()
    frame = world.live(spark, maxOffsetsPerTrigger=10).select("value")
    world.run(frame, form="failing_headwater", marks=marks, rowsPerRequest=2)
    assert len([*marks.iterdir()]) >= 4
    assert sorted(world.read()) == sorted([*range(20), *range(1000, 1020)])


def test_answers_that_are_lost(spark: SparkSession, world: World) -> None:
    world.stream("events", [*range(30)])
    world.stream("sink")

    def fate(number: int, method: str, headers: Any) -> Fate:
        return ("lose answer", "unavailable", "pass")[number % 3] if method == "POST" else "pass"

    with Gateway(world.url, fate).running() as gateway:
        frame = world.live(spark).select("value")
        world.run(frame, endpoint=gateway.url, rowsPerRequest=4)
        assert ("POST", "lose answer") in gateway.seen
        assert ("POST", "unavailable") in gateway.seen
    assert world.read() == [*range(30)]


def test_a_batch_that_is_run_again_from_its_checkpoint(spark: SparkSession, world: World) -> None:
    """As after a crash between the append and Spark's own note of it."""
    world.stream("events", *[[n] for n in range(9)])
    world.stream("sink")
    frame = world.live(spark, maxOffsetsPerTrigger=3).select("value")
    world.run(frame)
    commits = Path(world.checkpoint()) / "commits"
    for file in commits.iterdir():
        if file.name.lstrip(".").split(".")[0] == "2":
            file.unlink()
    world.client.stream(world.name()).append(9)
    assert sum(world.run(frame)) == 4
    assert sorted(world.read()) == [*range(10)]


def test_one_order_for_a_streaming_query(spark: SparkSession, world: World) -> None:
    world.stream("events", *[["x" * 30_000, n] for n in range(10)])
    world.stream("sink")
    frame = world.live(spark, minPartitions=4).select("value")
    world.run(frame, ordering="global")
    assert world.read() == values(world.batch(spark))


def test_what_the_server_does_not_take(spark: SparkSession, world: World) -> None:
    world.stream("events", ["not json at all"])
    closed = world.stream("closed")
    closed.close()
    frame = world.live(spark)

    def refusal(name: str, expression: str) -> str:
        query = world.to_stream(frame.selectExpr(expression), name, checkpoint=name)
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination()
        return str(caught.value)

    assert "it is closed" in refusal("closed", "value")
    world.stream("open")
    assert "the server refuses it" in refusal("open", "'{' AS value")
    assert "a row has no value" in refusal("open", "nullif(value, value) AS value")
    assert "createStream" in refusal("missing", "value")
    overwriting = spark.range(1).write.format("headwater").mode("overwrite")
    with pytest.raises(AnalysisException, match="only ever appended to"):
        overwriting.options(**world.options("open")).save()


def test_a_sink_created_anew_takes_the_next_batch(spark: SparkSession, world: World) -> None:
    source = world.stream("events", [1])
    sink = world.stream("sink")
    frame = world.live(spark).select("value")
    world.run(frame)
    sink.delete()
    world.stream("sink")
    source.append(2)
    world.run(frame)
    assert Counter(world.read()) == Counter([2])
