"""A driver to be killed: one stream into another, an archive and tables.

Every task fails once, after its work is done. It ends when it has caught up, or never.

python -m tests.spark.chaos_child URL SOURCE SINK DIRECTORY follow|end
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame

from pyspark_headwater.pipelines import archive, merging
from pyspark_headwater.pipelines.delta import WrittenFile, write_files
from pyspark_headwater.pipelines.layout import Layout
from pyspark_headwater.pipelines.running import Pipeline, messages_for, start
from tests.spark.failing_source import FailingSource
from tests.spark.world import local_session


def failing(marks: Path) -> Any:
    """The writing of files, by tasks that are lost when they have all rows."""

    def write(frame: DataFrame, layout: Layout) -> list[WrittenFile]:
        def lose(batches: Iterator[Any]) -> Iterator[Any]:
            yield from batches
            lose_once(marks, layout.partition)

        return write_files(frame.mapInArrow(lose, frame.schema), layout)

    return write


def failing_merge(marks: Path) -> Any:
    """The writing of parts of tables, by tasks that are lost when they have written them."""
    merge = merging.merge

    def write(rewrites: Any) -> Any:
        merged = merge(rewrites)

        def lose(batches: Iterator[Any]) -> Iterator[Any]:
            yield from merged(batches)
            lose_once(marks, merging.PARTITION)

        return lose

    return write


def lose_once(marks: Path, part: str) -> None:
    """Lose a task, the first of a batch that comes here."""
    task = TaskContext.get()
    assert task is not None
    mark = marks / f"{part}-{task.getLocalProperty('streaming.sql.batchId')}"
    if not mark.exists():
        mark.touch()
        raise OSError("the task is lost with its files")


def main(url: str, source: str, sink: str, directory: str, until: str) -> None:
    follow = until == "follow"
    spark = local_session("local[2,4]")
    spark.dataSource.register(FailingSource)
    marks = Path(directory) / "marks"
    marks.mkdir(exist_ok=True)
    setattr(archive, "write_files", failing(marks))  # noqa: B010 - it is not theirs to export
    merging.merge = failing_merge(marks)
    reading = {"endpoint": url, "stream": source, "minPartitions": "2"}
    lake = f"{directory}/lake"
    messages = (
        spark.readStream.format("headwater")
        .options(**reading, startingOffsets="earliest", maxOffsetsPerTrigger="40")
        .load()
    )
    writing = (
        messages.selectExpr("get_json_object(value, '$.value.n') AS value")
        .writeStream.format("failing_headwater")
        .options(endpoint=url, stream=sink, rowsPerRequest="7", marks=str(marks))
        .option("checkpointLocation", f"{directory}/checkpoint")
    )
    if not follow:
        writing = writing.trigger(availableNow=True)
    limit = {"maxOffsetsPerTrigger": "60"}
    pipelines = [
        Pipeline("archive", lake, reading | limit, follow=follow),
        Pipeline("materialize", lake, reading | limit, follow=follow),
    ]
    queries = [writing.start(), *(start(one, messages_for(spark, one)) for one in pipelines)]
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
