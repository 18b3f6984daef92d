"""A driver on a cluster: copies a stream, archives it, and says who did the work.

python -m tests.spark.cluster_child MASTER URL SOURCE SINK ROOT
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from pyspark_headwater.pipelines.running import Pipeline, run
from pyspark_headwater.tables import HeadwaterTables
from tests.spark.world import local_session


def where_am_i(batches: Iterator[Any]) -> Iterator[Any]:
    """The directory of the executor, one for each task."""
    import os

    assert TaskContext.get() is not None
    for batch in batches:
        assert batch.num_rows
    yield pa.RecordBatch.from_pydict({"directory": [os.getcwd()]})


def wait_for_executors(spark: SparkSession, count: int) -> None:
    """The first one could do all the work before a slow machine has started the other."""
    context: Any = spark.sparkContext
    while context._jsc.sc().getExecutorMemoryStatus().size() <= count:  # the driver is one too
        time.sleep(0.1)


def main(master: str, url: str, source: str, sink: str, root: str) -> None:
    spark = local_session(master)
    wait_for_executors(spark, 2)
    reading = {"endpoint": url, "stream": source, "minPartitions": "4"}
    writing = {"endpoint": url, "stream": sink, "createStream": "true", "ordering": "partition"}
    run_once = {"producerId": "cluster", "txnVersion": "1"}
    messages = spark.read.format("headwater").options(**reading).load()
    messages.select("value").write.format("headwater").mode("append").options(
        **writing, **run_once
    ).save()
    run(spark, Pipeline("archive", root, {"endpoint": url, "stream": source}))
    archived = HeadwaterTables(spark, url, root).table(source).count()
    executors = messages.mapInArrow(where_am_i, "directory string").distinct().count()
    print(json.dumps({"archived": archived, "executors": executors}))


if __name__ == "__main__":
    main(*sys.argv[1:])
