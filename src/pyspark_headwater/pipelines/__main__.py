"""Pipelines for `spark-submit`, and for `python -m pyspark_headwater.pipelines`.

    spark-submit --master spark://host:7077 run.py archive --stream orders --root s3://lake

where `run.py` is two lines: `from pyspark_headwater.pipelines.__main__ import main` and `main()`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import cast

from headwater.core import pipelines
from pyspark_headwater.pipelines.reporting import Progress
from pyspark_headwater.pipelines.running import Pipeline, run
from pyspark_headwater.pipelines.session import session
from pyspark_headwater.pipelines.upkeep import KEEP_REPLACED_H


def arguments(given: Sequence[str]) -> Pipeline:
    """A pipeline from a command line."""
    parser = argparse.ArgumentParser(prog="pyspark_headwater.pipelines", description=__doc__)
    parser.add_argument("kind", choices=[*pipelines.PIPELINES])
    parser.add_argument("--endpoint", default="http://127.0.0.1:4437")
    parser.add_argument("--stream")
    parser.add_argument("--pattern")
    parser.add_argument("--root", required=True)
    parser.add_argument("--minutes", type=int, default=1)
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--name", default="")
    parser.add_argument("--keep-replaced", type=int, default=KEEP_REPLACED_H, metavar="HOURS")
    parser.add_argument("--on-error", choices=[*pipelines.ON_ERROR], default="fail")
    parser.add_argument("--iceberg", action="store_true")
    parser.add_argument("--changes", action="store_true")
    parser.add_argument("--changes-to", default="", metavar="STREAM")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    found = parser.parse_args(given)
    options = {"endpoint": found.endpoint}
    if token := os.environ.get("HEADWATER_TOKEN"):
        options["token"] = token
    options |= dict(pair.split("=", 1) for pair in found.option)
    if found.stream:
        options["stream"] = found.stream
    if found.pattern:
        options["streamPattern"] = found.pattern
    return Pipeline(
        cast(pipelines.Pipeline, found.kind),
        found.root,
        options,
        found.minutes,
        found.follow,
        called=found.name,
        keep_replaced_h=found.keep_replaced,
        iceberg=found.iceberg,
        on_error=cast(pipelines.OnError, found.on_error),
        changes=found.changes,
        changes_to=found.changes_to,
    )


def line(progress: Progress) -> str:
    """Progress for people."""
    lag = "" if progress.lag_messages is None else f", {progress.lag_messages} behind"
    return (
        f"{progress.name}: batch {progress.batch}, {progress.rows} rows in "
        f"{progress.batch_ms / 1000:.1f} s ({progress.rows_per_s:.0f}/s){lag}"
    )


def main() -> None:
    pipeline = arguments(sys.argv[1:])
    run(session(), pipeline, lambda progress: print(line(progress), flush=True))


if __name__ == "__main__":
    main()
