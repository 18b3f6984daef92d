"""Runs one job: JSON in, JSON out."""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.spark.job import LATENCY, SparkJob
from benchmarks.spark.latency import measure_latency
from benchmarks.spark.readers import measure
from benchmarks.spark.records import fill
from pyspark_headwater.java import prepare_environment

_PROJECT_DIR = Path(__file__).parent.parent.parent
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    "spark.python.daemon.module": "pyspark_headwater.daemon",
    "spark.python.unix.domain.socket.enabled": "true",
}


def main() -> None:
    job = SparkJob.from_json(sys.stdin.read())
    prepare_environment()
    # Workers import their code from here too.
    paths = [str(_PROJECT_DIR), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    builder = SparkSession.Builder().master("local[2]").appName("headwater-bench")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        fill(job)
        figures = measure(spark, job, os.getpid())
        figures[LATENCY] = measure_latency(spark, job)
    finally:
        spark.stop()
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
