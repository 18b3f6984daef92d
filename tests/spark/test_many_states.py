"""The current state of many streams, whichever of them have one."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pyspark_headwater.pipelines.delta import Commit
from pyspark_headwater.pipelines.many_states import Speaking, left_out
from pyspark_headwater.pipelines.running import Pipeline, run
from pyspark_headwater.pipelines.state import Materialize
from tests.spark.test_crashes import wait_until
from tests.spark.test_pipelines import control, gone, put, tables
from tests.spark.world import World, rows_of


def every_stream(world: World) -> Pipeline:
    options = {"streamPattern": f"{world.prefix}/*", "onlyJson": "true"}
    return Pipeline("materialize", str(world.directory / "lake"), world.options(None, **options))


def keys(spark: SparkSession, world: World, name: str) -> list[str]:
    state = tables(spark, world).state(world.name(name), "user")
    return sorted(row.key for row in state.collect())


def test_those_that_have_one(spark: SparkSession, world: World) -> None:
    users = world.stream("users", [put("a", 1), put("b", 2)])
    events = world.stream("events", [{"n": 1}])
    world.stream("text", content_type="text/plain").append("no JSON at all")
    job = every_stream(world)
    run(spark, job)
    assert keys(spark, world, "users") == ["a", "b"]
    # What does not begin so is not taken for it later on, and what comes later is taken in.
    events.append(put("x", 1))
    users.append(gone("a"))
    world.stream("later", [control("reset"), put("c", 3)])
    run(spark, job)
    assert keys(spark, world, "users") == ["b"]
    assert keys(spark, world, "later") == ["c"]
    states = Path(job.root) / "state"
    mine = [one.name for one in states.iterdir() if not one.name.startswith("_")]
    assert sorted(mine) == [world.table("later"), world.table("users")]
    assert left_out(job.directory) == {}


def test_one_that_cannot_go_on_does_not_stop_the_others(spark: SparkSession, world: World) -> None:
    good = world.stream("good", [put("a", 1)])
    bad = world.stream("bad", [put("a", 1)])
    job = every_stream(world)
    run(spark, job)
    bad.append_all([put("b", 2), {"n": 1}])
    good.append(put("b", 2))
    run(spark, job)
    bad.append(put("c", 3))
    good.append(put("c", 3))
    run(spark, job)
    assert keys(spark, world, "good") == ["a", "b", "c"]
    assert keys(spark, world, "bad") == ["a"]
    assert [*left_out(job.directory)] == [world.name("bad")]
    assert "index 1" in left_out(job.directory)[world.name("bad")].why
    assert len(rows_of(f"{job.root}/state/{world.table('bad')}/user")) == 1


def jobs_for(spark: SparkSession, world: World, pattern: str) -> int:
    """How many Spark jobs it takes to take in some streams."""
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup())
    choose = Speaking(str(world.directory), lambda *_: False)
    Materialize(f"{world.directory}/{pattern}", choose)(
        world.batch(spark, None, streamPattern=f"{world.prefix}/{pattern}"), Commit("q", 0)
    )
    return len(tracker.getJobIdsForGroup()) - before


def test_many_streams_take_as_many_jobs_as_few(spark: SparkSession, world: World) -> None:
    for number in range(12):
        world.stream(f"s{number}", [put(key, {"n": number}) for key in "abc"])
    assert jobs_for(spark, world, "s0") == jobs_for(spark, world, "*")
    root = f"{world.directory}/*/state"
    for number in range(12):
        uri = f"{root}/{world.table(f's{number}')}/user"
        assert {row["key"]: row["n"] for row in rows_of(uri)} == dict.fromkeys("abc", number)
        # A small table is one file, whatever Spark does to get there.
        assert len(DeltaTable(uri).file_uris()) == 1


def size(messages: list[Any]) -> int:
    return sum(len(json.dumps(one, separators=(",", ":"))) for one in messages)


def test_a_stream_whose_beginning_is_no_longer_kept(spark: SparkSession, world: World) -> None:
    """Its first message that is kept says whether it has a state."""
    states, events = (world.client.stream(world.name(name)) for name in ("states", "events"))
    for stream in (states, events):
        stream.ensure(content_type="application/json", retention_bytes=8_000)
    filler = "x" * 500
    for number in range(100):
        states.append(put(f"k{number}", filler))
        events.append({"n": number, "filler": filler})
    for name in ("states", "events"):
        # Until no more of it goes.
        wait_until(partial(lambda name: size(world.read(name)) <= 8_000, name))
    job = every_stream(world)
    run(spark, job)
    kept = [json.loads(row.value)["key"] for row in world.batch(spark, "states").collect()]
    assert 0 < len(kept) < 100
    assert keys(spark, world, "states") == sorted(kept)
    assert left_out(job.directory) == {}
    states.append(gone("k99"))
    events.append(put("x", 1))
    run(spark, job)
    assert keys(spark, world, "states") == sorted(kept[:-1])
    assert not DeltaTable.is_deltatable(f"{job.root}/state/{world.table('events')}/user")


def test_one_that_was_left_out_comes_back(spark: SparkSession, world: World) -> None:
    """When it is created anew, or when a reset makes its past irrelevant."""
    for name in ("anew", "reset"):
        world.stream(name, [put("a", 1)], [{"n": 1}])
    job = every_stream(world)
    job = dataclasses.replace(job, options={**job.options, "failOnDataLoss": "false"})
    run(spark, job)
    assert {*left_out(job.directory)} == {world.name("anew"), world.name("reset")}
    world.client.stream(world.name("anew")).delete()
    world.stream("anew", [put("b", 1)])
    world.client.stream(world.name("reset")).append_all([control("reset"), put("c", 3)])
    run(spark, job)
    assert left_out(job.directory) == {}
    assert keys(spark, world, "anew") == ["b"]
    assert keys(spark, world, "reset") == ["c"]
