"""A Spark session for pipelines that are started from a prompt."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from pyspark_headwater.java import prepare_environment


def session(
    master: str | None = None, name: str = "headwater", more: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one: on this machine unless a master is named.

    Under `spark-submit` everything comes from there and nothing is named here.
    """
    prepare_environment()
    builder = SparkSession.Builder().appName(name)
    if master is not None:
        builder = builder.master(master)
    settings = {
        "spark.python.daemon.module": "pyspark_headwater.daemon",
        # A busy machine may need longer than the 15 s that Spark gives a worker to shake hands.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    for key, value in {**settings, **(more or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
