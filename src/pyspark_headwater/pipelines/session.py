"""A Spark session for pipelines started from a prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.java import prepare_environment

_QUIET: Final = Path(__file__).with_name("log4j2-quiet.properties")
# Spark parses long errors with regular expressions, and a stopped query ends with one.
_DEEP_STACK: Final = "-Xss8m"
_MASTER: Final = re.compile(r"local(-cluster)?(\[[^\]]+\])?|yarn|(spark|k8s)://.+")


def check_master(master: str) -> None:
    """Refuse what Spark would refuse some seconds later."""
    if not _MASTER.fullmatch(master):
        raise InvalidOption(
            f"{master!r} is no master of Spark: take local[2], spark://host:7077, yarn or k8s://…"
        )


def session(
    master: str | None = None,
    name: str = "headwater",
    more: Mapping[str, str] | None = None,
    *,
    quiet: bool = False,
) -> SparkSession:
    """The running session, or a new one: on this machine unless a master is named.

    Under `spark-submit` all settings come from there and none are made here. A quiet session logs
    only errors, from the beginning.
    """
    prepare_environment()
    builder = SparkSession.Builder().appName(name)
    if master is not None:
        builder = builder.master(master)
    java_options = [_DEEP_STACK]
    if quiet:
        java_options.append(f"-Dlog4j2.configurationFile={_QUIET.as_uri()}")
    settings = {
        "spark.driver.defaultJavaOptions": " ".join(java_options),
        "spark.python.daemon.module": "pyspark_headwater.daemon",
        # A busy machine may need longer than the 15 s that Spark gives a worker to connect.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    for key, value in {**settings, **(more or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
