"""The project for Spark Declarative Pipelines, which run on Spark Connect."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from pyspark_headwater.java import prepare_environment
from tests.spark.world import ROOT, World, run_to_end

SPARK_HOME = Path(pyspark.__path__[0])


@pytest.mark.slow
def test_the_project(world: World) -> None:
    prepare_environment()
    orders = [{"id": n, "item": "tea" if n % 2 else "cake", "price": n} for n in range(10)]
    world.stream("orders", orders)
    project = world.directory / "project"
    shutil.copytree(ROOT / "pipelines", project)
    spec = project / "spark-pipeline.yml"
    here = {
        "/tmp/headwater-shop": str(world.directory / "kept"),
        "http://127.0.0.1:4437": world.url,
        "shop/orders": world.name("orders"),
    }
    text = spec.read_text()
    for there, instead in here.items():
        assert there in text
        text = text.replace(there, instead)
    spec.write_text(text)
    settings = ("spark.sql.catalogImplementation=hive", "spark.ui.enabled=false")
    launcher = str(SPARK_HOME / "bin" / "spark-pipelines")
    environment = {
        "PYTHONPATH": str(ROOT / "src"),
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # Has Spark Connect listen on any port that is free.
        "SPARK_TESTING": "1",
    }
    confs = [word for setting in settings for word in ("--conf", setting)]
    run_to_end([launcher, "run", *confs], project, environment)
    stored = project / "spark-warehouse"
    assert pq.read_table(stored / "orders").num_rows == 10
    sales = {row["item"]: row["sum"] for row in pq.read_table(stored / "sales").to_pylist()}
    assert sales == {"tea": 25.0, "cake": 20.0}
