"""A year of history goes into a stream while others append to it and a pipeline follows."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from itertools import count

import pytest
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import SparkSession

from pyspark_headwater.pipelines.archive import Archive
from pyspark_headwater.pipelines.delta import Commit
from pyspark_headwater.pipelines.replay import replay
from pyspark_headwater.pipelines.running import Pipeline
from tests.spark.arrow_frames import batch_of, without_spark
from tests.spark.test_steering import running, turn_until
from tests.spark.world import PATIENCE_S, Fate, Gateway, World, rows_of

TIMES, EVERY_S = 36, 10 * 24 * 3600
"""A year: something happens every ten days."""


def test_without_a_gap_or_a_double(spark: SparkSession, world: World) -> None:
    """Also when answers are lost on the way, and the whole job is run again."""
    lake = str(world.directory / "lake")
    # It begins with a message that is not the first one of its stream.
    year = {time: [{"day": time, "n": n} for n in range(20)] for time in range(TIMES)}
    with pytest.MonkeyPatch.context() as patch:
        without_spark(patch)
        Archive(f"{lake}-of-last-year")(batch_of("events", year, EVERY_S), Commit("q", 0))
    source = f"{lake}-of-last-year/archive/events"

    stream = world.stream("events", [{"live": 0}])
    following = Pipeline("archive", lake, world.options(maxOffsetsPerTrigger=500), follow=True)
    uri = f"{lake}/archive/{world.table()}"
    over, came, sent = threading.Event(), threading.Event(), count(1)

    def append_live() -> None:
        while not over.is_set():
            stream.append({"live": next(sent)})
            came.set()
            over.wait(0.1)

    def after_a_live_one(number: int, method: str, _: Mapping[str, str]) -> Fate:
        if method == "POST":
            came.clear()
            came.wait(PATIENCE_S)
        return "lose answer" if number % 5 == 4 else "pass"

    appending = threading.Thread(target=append_live)
    losing = Gateway(world.url, after_a_live_one)
    with running(spark, following) as runner, losing.running():
        turn_until(runner, lambda: archived(uri) > 0)
        appending.start()
        try:
            # Small requests, each of which finds a live message that came in between.
            options = {**world.options(rowsPerRequest=90), "endpoint": losing.url}
            replay(spark, source, options, name=world.prefix, version=1)
            replay(spark, source, world.options(rowsPerRequest=90), name=world.prefix, version=1)
        finally:
            over.set()
            appending.join()
        total = len(world.read("events"))
        turn_until(runner, lambda: archived(uri) >= total)
    rows = sorted(rows_of(uri), key=lambda row: (row["offset"], row["index"]))
    messages = [json.loads(row["value"]) for row in rows]
    assert messages == world.read("events")
    live = [one["live"] for one in messages if "live" in one]
    assert live == [*range(next(sent))]
    assert [one for one in messages if "day" in one] == [
        one for day in year.values() for one in day
    ]
    among = [index for index, one in enumerate(messages) if "day" in one]
    assert among[-1] - among[0] >= len(among), "no live message came in between"


def archived(uri: str) -> int:
    try:
        return len(rows_of(uri))
    except TableNotFoundError:
        return 0
