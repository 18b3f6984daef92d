"""Pipelines that are paused, resumed and reset by orders in a stream, and what they report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from headwater.core.pipelines import CONTROL
from pyspark_headwater.errors import InvalidOption, Paused
from pyspark_headwater.pipelines import running as starting
from pyspark_headwater.pipelines.checkpoints import begin_at
from pyspark_headwater.pipelines.running import Pipeline, Runner, messages_for, run
from tests.spark.world import PATIENCE_S, World, rows_of


def order(world: World, pipeline: Pipeline, do: str, **more: object) -> None:
    control = world.client.stream(CONTROL)
    control.ensure(content_type="application/json")
    control.append_all(["nonsense", {"pipeline": "another", "do": do}])
    control.append({"pipeline": pipeline.name, "do": do, **more})


def report(world: World, pipeline: Pipeline) -> dict[str, Any]:
    """What the server knows of a pipeline."""
    found = httpx.get(f"{world.url}/v1/pipelines").json()["pipelines"]
    (one,) = (one for one in found if one["name"] == pipeline.name)
    return dict(one)


@contextmanager
def running(spark: SparkSession, pipeline: Pipeline) -> Iterator[Runner]:
    runner = Runner(pipeline, lambda one: messages_for(spark, one))
    try:
        yield runner
    finally:
        runner.stop()


def turn_until(runner: Runner, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        runner.turn()
        time.sleep(0.2)


def archived(world: World, pipeline: Pipeline) -> list[str]:
    uri = f"{pipeline.root}/archive/{world.table()}"
    return sorted((row["value"] for row in rows_of(uri)), key=int)


@pytest.mark.slow
def test_paused_resumed_and_reset_without_a_double(spark: SparkSession, world: World) -> None:
    stream = world.stream("events", [0, 1], [2])
    one = Pipeline("archive", str(world.directory / "lake"), world.options(), follow=True)
    order(world, one, "reset", to="latest")  # before it began, so it is not for this one
    with running(spark, one) as runner:
        turn_until(runner, lambda: report_of(world, one).get("rows") == 3)
        assert archived(world, one) == ["0", "1", "2"]
        order(world, one, "pause")
        turn_until(runner, lambda: runner.query is None)
        stream.append_all([3, 4])
        turn_until(runner, lambda: report(world, one)["lag_messages"] == 2)
        assert report(world, one)["state"] == "paused"
        assert has_obeyed(world, one)

    # It is still paused when it is started again; one that is to run once says so.
    with pytest.raises(Paused, match="headwater pipeline resume"):
        run(spark, Pipeline("archive", one.root, one.options))

    with running(spark, one) as runner:
        runner.turn()
        assert runner.query is None
        order(world, one, "resume")
        turn_until(runner, lambda: report(world, one)["lag_messages"] == 0)
        assert archived(world, one) == ["0", "1", "2", "3", "4"]
        assert report(world, one)["state"] == "running"
        assert report(world, one)["maintenance_in"] > 0

        # Back: everything is read again, and nothing is there twice.
        order(world, one, "reset", to={world.name(): "earliest"})
        turn_until(runner, lambda: report(world, one)["rows"] >= 5)
        stream.append(5)
        turn_until(runner, lambda: report(world, one)["rows"] == 1)
        assert archived(world, one) == ["0", "1", "2", "3", "4", "5"]

        # Nonsense is said and passed over; forward, what is skipped stays out.
        order(world, one, "reset", to={world.name(): "nonsense"})
        turn_until(runner, lambda: "is no offset of" in (report(world, one)["last_error"] or ""))
        order(world, one, "pause")
        turn_until(runner, lambda: runner.query is None)
        stream.append_all([6, 7])
        order(world, one, "reset", to="latest")
        order(world, one, "resume")
        turn_until(runner, lambda: has_obeyed(world, one))
        stream.append(8)
        turn_until(runner, lambda: "8" in archived(world, one))
        assert archived(world, one) == ["0", "1", "2", "3", "4", "5", "8"]


def has_obeyed(world: World, pipeline: Pipeline) -> bool:
    told = world.client.stream(CONTROL).head().next_offset
    return bool(report(world, pipeline)["obeyed"] == told)


def report_of(world: World, pipeline: Pipeline) -> dict[str, Any]:
    """The same, or nothing if it has not reported yet."""
    try:
        return report(world, pipeline)
    except ValueError:
        return {}


@pytest.mark.slow
def test_a_rollup_that_begins_again_counts_nothing_twice(spark: SparkSession, world: World) -> None:
    first = world.stream("a", [1, 2], [3])
    world.stream("b", [4])
    pattern = {"endpoint": world.url, "streamPattern": f"{world.prefix}/*"}
    one = Pipeline("rollup", str(world.directory / "lake"), pattern)
    run(spark, one)
    begin_at(one.root, one.directory, {})
    first.append(5)
    run(spark, one)
    counted = {"a": 0, "b": 0}
    for row in rows_of(f"{one.root}/rollup"):
        counted[row["stream"].removeprefix(f"{world.prefix}/")] += row["messages"]
    assert counted == {"a": 4, "b": 1}


def change(key: str, n: int) -> dict[str, object]:
    return {"type": "thing", "key": key, "value": {"n": n}, "headers": {"operation": "upsert"}}


def state(world: World, pipeline: Pipeline, name: str = "events") -> dict[str, int]:
    rows = rows_of(f"{pipeline.root}/state/{world.table(name)}/thing")
    return {row["key"]: row["n"] for row in rows}


@pytest.mark.slow
def test_what_does_not_fit_is_quarantined_once(spark: SparkSession, world: World) -> None:
    misfits = [{"no": "change"}, "grüße"]
    stream = world.stream("events", [misfits[0], change("a", 1), misfits[1]], [change("b", 2)])
    root = str(world.directory / "lake")
    strict = Pipeline("materialize", root, world.options())
    with pytest.raises(PySparkException, match="index 0"):
        run(spark, strict)
    assert report(world, strict)["state"] == "failing"
    assert f"{world.name()} at 0000000000000000_0000000000000000" in report(world, strict)["error"]

    one = Pipeline("materialize", root, world.options(), on_error="quarantine")
    run(spark, one)
    assert state(world, one) == {"a": 1, "b": 2}
    seen = report(world, one)
    assert (seen["state"], seen["error"], seen["quarantined"]) == ("ended", None, 2)
    assert "not a State Protocol message" in seen["last_error"]
    apart = world.client.stream(f"quarantine/{one.name}")
    found = apart.read_json()
    assert [(m["stream"], m["index"], m["raw"]) for m in found] == [
        (world.name(), 0, '{"no":"change"}'),
        (world.name(), 2, '"grüße"'),
    ]
    assert all("not a State Protocol message" in m["reason"] and m["offset"] for m in found)

    # As if the last commit had been lost, and everything were taken in again.
    again = Pipeline("materialize", f"{root}-2", world.options(), on_error="quarantine")
    stream.append_all([change("a", 3), {"no": "change"}])
    run(spark, again)
    assert state(world, again) == {"a": 3, "b": 2}
    assert [m["index"] for m in apart.read_json()] == [0, 2, 1]


@pytest.mark.slow
def test_many_streams_with_misfits(spark: SparkSession, world: World) -> None:
    world.stream("good", [change("a", 1), ["misfit"], change("a", 2)])
    world.stream("other", [{"no": "state"}, {"at": "all"}])
    pattern = {"endpoint": world.url, "streamPattern": f"{world.prefix}/*"}
    root = str(world.directory / "lake")
    one = Pipeline("materialize", root, pattern, on_error="quarantine")
    run(spark, one)
    assert state(world, one, "good") == {"a": 2}
    found = world.client.stream(f"quarantine/{one.name}").read_json()
    assert [(m["stream"], m["raw"]) for m in found] == [(world.name("good"), '["misfit"]')]


@pytest.mark.parametrize("kind", ["archive", "rollup", "snapshot"])
def test_others_have_no_quarantine(kind: Any) -> None:
    with pytest.raises(InvalidOption, match="leave out onError"):
        Pipeline(kind, "lake", on_error="quarantine")
    with pytest.raises(InvalidOption, match="fail or quarantine"):
        Pipeline(kind, "lake", on_error="panic")  # type: ignore[arg-type]


class SlowQuery:
    """A query that ends as Spark ends it when its Python process is not up in time."""

    name = "archive-busy"
    isActive = False
    recentProgress: tuple[()] = ()

    def __init__(self, failure: str | None) -> None:
        self._failure = failure

    def exception(self) -> Exception | None:
        return None if self._failure is None else StreamingQueryException(self._failure)

    def awaitTermination(self, at_most_s: int) -> bool:
        return True

    def stop(self) -> None:
        """It has ended."""


SLOW = "Python worker failed to connect back.\n=== Streaming Query ==="


@pytest.mark.parametrize(
    "ends, started, failed",
    [
        ([SLOW, SLOW, None], 3, False),
        ([SLOW] * 6, 6, True),
        (["another reason"], 1, True),
    ],
    ids=["in the end", "never", "for another reason"],
)
def test_a_query_that_a_busy_machine_could_not_start_is_started_again(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    ends: list[str | None],
    started: int,
    failed: bool,
) -> None:
    queries: list[SlowQuery] = []

    def start(*_: object) -> SlowQuery:
        queries.append(SlowQuery(ends[len(queries)]))
        return queries[-1]

    monkeypatch.setattr(starting, "start", start)
    pipeline = Pipeline("archive", str(world.directory), world.options())
    runner = Runner(pipeline, lambda _: Mock())
    with pytest.raises(StreamingQueryException) if failed else nullcontext():
        while not runner.is_over:
            runner.turn()
    assert len(queries) == started
    assert report(world, pipeline)["state"] == ("failing" if failed else "ended")
