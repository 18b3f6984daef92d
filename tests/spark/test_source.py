"""`spark.read` and `spark.readStream`."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.test_crashes import wait_until
from tests.spark.world import Fate, Gateway, World, values


def test_a_stream_as_a_table(spark: SparkSession, world: World) -> None:
    stream = world.stream("events", [{"n": 1}, {"n": 2}], [{"n": 3}])
    frame = world.batch(spark)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == [
        ("stream", "string"),
        ("offset", "string"),
        ("index", "int"),
        ("timestamp", "timestamp"),
        ("value", "string"),
    ]
    assert values(frame) == [{"n": 1}, {"n": 2}, {"n": 3}]
    rows = frame.orderBy("offset", "index").collect()
    assert [row["index"] for row in rows] == [0, 1, 0]
    assert {row.stream for row in rows} == {world.name()}
    end = f'{{"{world.name()}": "{rows[2].offset}"}}'
    assert values(world.batch(spark, endingOffsets=end)) == [{"n": 1}, {"n": 2}]
    assert values(world.batch(spark, startingOffsets=end)) == [{"n": 3}]
    stream.append({"n": 4})
    assert world.batch(spark).count() == 4


def test_several_streams_of_several_types(spark: SparkSession, world: World) -> None:
    world.stream("a", [1])
    binary = world.stream("b", content_type="application/octet-stream")
    binary.append(b"\xff\x00")
    frame = world.batch(spark, None, streamPattern=f"{world.prefix}/*")
    assert sorted(bytes(row.value) for row in frame.collect()) == [b"1", b"\xff\x00"]
    world.stream("empty")
    assert world.batch(spark, "empty").count() == 0


def test_typed_rows(spark: SparkSession, world: World) -> None:
    world.stream("events", [{"n": 1, "at": "2026-01-02T00:00:00Z"}, {"n": "x"}, {"n": 3}])
    typed = (
        spark.read.format("headwater")
        .schema("n long, at timestamp, _offset string, _corrupt string")
        .options(**world.options())
    )
    rows = typed.option("mode", "PERMISSIVE").load().orderBy("n").collect()
    assert [row.n for row in rows] == [None, 1, 3]
    assert [row._corrupt for row in rows] == ['{"n":"x"}', None, None]
    assert rows[1].at.year == 2026
    dropped = typed.option("mode", "DROPMALFORMED").load().orderBy("n").collect()
    assert [row.n for row in dropped] == [1, 3]
    with pytest.raises(PySparkException, match="does not fit the schema"):
        typed.option("mode", "FAILFAST").load().collect()


def test_micro_batches(spark: SparkSession, world: World) -> None:
    world.stream("events", *[[n] for n in range(10)])
    world.stream("sink")
    frame = world.live(spark, maxOffsetsPerTrigger=4, minPartitions=2).select("value")
    assert world.run(frame) == [4, 4, 2]
    assert sorted(world.read()) == [*range(10)]
    world.client.stream(world.name()).append_all([10, 11])
    assert world.run(frame) == [2]
    assert sorted(world.read()) == [*range(12)]


def test_producers_and_ids_as_columns(spark: SparkSession, world: World) -> None:
    world.stream("events", [1]).append({"n": 2}, id="order-2")
    world.stream("sink")
    world.run(world.live(spark).select("value"))
    row = world.batch(spark, "sink", includeHeaders="true").collect()[0]
    assert (row.producer_id[-2:], row.producer_epoch, row.producer_seq) == ("/0", 0, 0)
    plain, named = world.batch(spark, includeHeaders="true").sort("offset").collect()
    assert (plain.producer_id, plain.producer_epoch) == (None, None)
    assert (plain.message_id, named.message_id) == (None, "order-2")


def test_keys_and_headers_as_columns(spark: SparkSession, world: World) -> None:
    change = {"type": "user", "key": "u1", "headers": {"operation": "upsert", "n": 7}}
    world.stream("events", [change, {"key": 12, "headers": None}, [1], "text"])
    rows = world.batch(spark, includeHeaders="true").sort("index").collect()
    assert [row.key for row in rows] == ["u1", "12", None, None]
    assert [row.headers for row in rows] == [{"operation": "upsert", "n": "7"}, None, None, None]


def test_the_sender_beside_a_schema_of_ones_own(spark: SparkSession, world: World) -> None:
    world.stream("events", [{"n": 1}]).append({"n": 2}, id="order-2")
    schema = "n long, _message_id string, _producer_id string, _producer_seq long"
    frame = spark.read.format("headwater").schema(schema).options(**world.options()).load()
    assert [tuple(row) for row in frame.sort("n").collect()] == [
        (1, None, None, None),
        (2, "order-2", None, None),
    ]


def _sizes(world: World, frame: DataFrame, sizes: dict[int, int]) -> StreamingQuery:
    """A query that notes how many rows each of its micro-batches has.

    By number: a query that is stopped before it has noted a batch as done repeats it.
    """
    writing = frame.writeStream.foreachBatch(
        lambda batch, number: sizes.update({number: batch.count()})
    )
    return writing.option("checkpointLocation", world.checkpoint()).start()


def test_a_micro_batch_waits_for_company_but_not_for_ever(
    spark: SparkSession, world: World
) -> None:
    stream = world.stream("events", [0])
    sizes: dict[int, int] = {}
    patient = world.live(spark, minOffsetsPerTrigger=3, maxTriggerDelay="1h")
    query = _sizes(world, patient, sizes)
    try:
        wait_until(lambda: [*sizes.values()] == [1])
        stream.append_all([1])
        stream.append_all([2])
        time.sleep(1)
        assert [*sizes.values()] == [1]
        stream.append_all([3, 4])
        wait_until(lambda: [*sizes.values()] == [1, 4])
    finally:
        query.stop()
    hasty = world.live(spark, minOffsetsPerTrigger=3, maxTriggerDelay="500ms")
    query = _sizes(world, hasty, sizes)
    try:
        stream.append_all([5])
        wait_until(lambda: [*sizes.values()] == [1, 4, 1])
        stream.append_all([6])
        wait_until(lambda: [*sizes.values()] == [1, 4, 1, 1])
    finally:
        query.stop()


def test_real_time_mode_is_refused_by_spark_with_a_reason(
    spark: SparkSession, world: World
) -> None:
    """As the reference says. If Spark comes to take sources in Python, it is time to use it."""
    world.stream("events", [1])
    name = "spark.sql.streaming.realTimeMode.allowlistCheck"
    real_time: Any = {"realTime": "5 seconds"}
    spark.conf.set(name, "false")
    writing = world.live(spark).writeStream.format("noop").outputMode("update")
    writing = writing.option("checkpointLocation", world.checkpoint())
    try:
        with pytest.raises(PySparkException, match="STREAMING_REAL_TIME_MODE"):
            writing.trigger(**real_time).start().awaitTermination(120)
    finally:
        spark.conf.unset(name)
        for query in spark.streams.active:
            query.stop()


def test_wrong_input_is_said_clearly(spark: SparkSession, world: World) -> None:
    with pytest.raises(AnalysisException, match="did you mean stream"):
        world.batch(spark, None, strem="x")
    with pytest.raises(AnalysisException, match="there is no stream"):
        world.batch(spark, "nothing")
    with pytest.raises(AnalysisException, match="no server answers"):
        world.batch(spark, endpoint="http://127.0.0.1:9", retryTimeout=0)


def test_a_stream_created_anew_under_a_query(spark: SparkSession, world: World) -> None:
    stream = world.stream("events", [1, 2])
    world.stream("sink")
    world.run(world.live(spark).select("value"))
    stream.delete()
    world.stream("events", [3])
    with pytest.raises(StreamingQueryException, match=r"created again.*new checkpoint.*failOnData"):
        world.run(world.live(spark).select("value"))
    world.run(world.live(spark, failOnDataLoss="false").select("value"))
    assert sorted(world.read()) == [1, 2, 3]


def test_a_server_that_is_unavailable_for_a_while(spark: SparkSession, world: World) -> None:
    """For a hundredth of the time that a query has patience, or for longer than that."""
    world.stream("events", [1, 2])
    world.stream("sink")
    began = time.monotonic()
    patience_s = 300 / 100

    def fate(number: int, method: str, headers: Any) -> Fate:
        return "unavailable" if time.monotonic() < began + patience_s else "pass"

    with Gateway(world.url, fate).running() as gateway:
        frame = world.live(spark, endpoint=gateway.url).select("value")
        world.run(frame, endpoint=gateway.url)
        assert ("HEAD", "unavailable") in gateway.seen
    assert world.read() == [1, 2]
    never = Gateway(world.url, lambda *_: "unavailable")
    with never.running(), pytest.raises(AnalysisException, match="503"):
        world.batch(spark, endpoint=never.url, retryTimeout=0)
