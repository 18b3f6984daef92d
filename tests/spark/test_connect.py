"""The format on Spark Connect, where the session is at the other end of a connection."""

from __future__ import annotations

import json
import sys

import pytest

from pyspark_headwater.java import prepare_environment
from tests.spark.world import ROOT, World, run_to_end


@pytest.mark.slow
def test_a_client_of_spark_connect(world: World) -> None:
    prepare_environment()
    world.stream("events", *[[{"n": n}] for n in range(5)])
    places = (world.url, world.name("events"), world.name("sink"), world.checkpoint())
    command = [sys.executable, "-m", "tests.spark.connect_child", *places]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "SPARK_TESTING": "1"}
    found = json.loads(run_to_end(command, world.directory, environment).splitlines()[-1])
    assert found["kind"].startswith("pyspark.sql.connect")
    assert found["total"] == sum(range(5))
    assert "did you mean stream" in found["said"]
    # Once by the job, which ran twice, and once by the query.
    assert sorted(row["n"] for row in world.read()) == sorted([*range(5)] * 2)
