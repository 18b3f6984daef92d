"""The current state of many streams, whichever of them have one."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_headwater.pipelines.many_states import left_out
from pyspark_headwater.pipelines.running import Pipeline, run
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
    mine = [one.name for one in states.iterdir()]
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
    assert "index 1" in left_out(job.directory)[world.name("bad")]
    assert len(rows_of(f"{job.root}/state/{world.table('bad')}/user")) == 1
