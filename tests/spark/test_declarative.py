"""The project for Spark Declarative Pipelines, which run on Spark Connect."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from pyspark_headwater.java import prepare_environment
from tests.spark.world import PATIENCE_S, ROOT, World

SPARK_HOME = Path(pyspark.__path__[0])


@pytest.mark.slow
def test_the_project(world: World) -> None:
    prepare_environment()
    orders = [{"id": n, "item": "tea" if n % 2 else "cake", "price": n} for n in range(10)]
    world.stream("orders", orders)
    project = world.directory / "project"
    shutil.copytree(ROOT / "pipelines", project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/headwater-shop", str(world.directory / "kept")))
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.headwater.endpoint": world.url,
        "spark.headwater.stream": world.name("orders"),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    done = subprocess.run(
        [
            str(SPARK_HOME / "bin" / "spark-pipelines"),
            "run",
            *[word for name, value in settings.items() for word in ("--conf", f"{name}={value}")],
        ],
        cwd=project,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT / "src"),
            "SPARK_HOME": str(SPARK_HOME),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    stored = project / "spark-warehouse"
    assert pq.read_table(stored / "orders").num_rows == 10
    sales = {row["item"]: row["sum"] for row in pq.read_table(stored / "sales").to_pylist()}
    assert sales == {"tea": 25.0, "cake": 20.0}
