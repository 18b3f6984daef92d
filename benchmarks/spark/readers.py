"""The same rows read in different ways, in turns, each into a sink that drops them."""

import time
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import procfs
from benchmarks.spark import job as names
from benchmarks.spark.job import Figures, SparkJob
from benchmarks.spark.ready import ReadySource, write_batch
from benchmarks.spark.records import SCHEMA, STREAM
from pyspark_headwater.pipelines.archive import archive_layout
from pyspark_headwater.pipelines.running import Pipeline, run
from pyspark_headwater.tables import HeadwaterTables

Reader = Callable[[], DataFrame]


def measure(spark: SparkSession, job: SparkJob, own_pid: int) -> Figures:
    """The best of several rounds: other work on the machine only ever makes it slower."""
    readers = _readers(spark, job)
    best: Figures = {}
    # The first round warms up the JVM.
    for number in range(job.rounds + 1):
        turn = number % len(readers)
        order = [*readers][turn:] + [*readers][:turn]
        for name in order:
            figures = _read(readers[name], job, own_pid)
            if number > 0:
                known = best.setdefault(name, figures)
                known["rows_per_second"] = max(known["rows_per_second"], figures["rows_per_second"])
                known["cpu_us_per_row"] = min(known["cpu_us_per_row"], figures["cpu_us_per_row"])
    return best


def _read(reader: Reader, job: SparkJob, own_pid: int) -> dict[str, float]:
    frame = reader()
    before = _cpu_by_process(job, own_pid)
    started = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    seconds = time.monotonic() - started
    after = _cpu_by_process(job, own_pid)
    # Workers that were idle for long are ended, and their CPU time with them.
    cpu = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
    return {
        "rows_per_second": job.messages / seconds,
        "cpu_us_per_row": cpu / job.messages * 1e6,
    }


def _cpu_by_process(job: SparkJob, own_pid: int) -> dict[int, float]:
    return procfs.cpu_by_process(own_pid) | procfs.cpu_by_process(job.server_pid)


def _readers(spark: SparkSession, job: SparkJob) -> dict[str, Reader]:
    """All readers, with the files and tables they need."""
    options = {"endpoint": job.endpoint, "stream": STREAM}
    lake = str(Path(job.directory) / "lake")
    parquet, text = str(Path(job.directory) / "parquet"), str(Path(job.directory) / "text")
    spark.dataSource.register(ReadySource)
    batch = Path(job.directory) / "batch.arrow"

    def source(sealed_reads: str, schema: str | None = None) -> DataFrame:
        reader = spark.read.format("headwater").options(**options, sealedReads=sealed_reads)
        return (reader if schema is None else reader.schema(schema)).load()

    source("direct").write.parquet(parquet)
    source("direct").select("value").write.text(text)
    run(spark, Pipeline("archive", lake, options))
    archive = archive_layout(lake).uri(STREAM)
    archived = DeltaTable(archive).file_uris()
    write_batch(batch, job.message_bytes)
    return {
        names.FILES: lambda: source("direct"),
        names.READY: lambda: (
            spark.read.format(ReadySource.name())
            .options(rows=str(job.messages), file=str(batch))
            .load()
        ),
        names.HTTP: lambda: source("server"),
        names.PARQUET: lambda: spark.read.parquet(parquet),
        names.TEXT: lambda: spark.read.text(text),
        names.TYPED: lambda: source("direct", SCHEMA),
        names.FROM_JSON: lambda: (
            source("direct").select(F.from_json("value", SCHEMA).alias("fields")).select("fields.*")
        ),
        names.TABLE: lambda: HeadwaterTables(spark, job.endpoint, lake).table(STREAM),
        names.TABLE_PARQUET: lambda: spark.read.option("basePath", archive).parquet(*archived),
    }
