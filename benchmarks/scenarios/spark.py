"""The Spark source compared with Spark's own readers and with one that only hands over data."""

import shutil
from collections.abc import Generator

from benchmarks.errors import LoadFailed
from benchmarks.load.process import Result, run_spark
from benchmarks.results import (
    HEADWATER,
    SPARK_FROM_JSON,
    SPARK_PARQUET,
    SPARK_READY,
    SPARK_TEXT,
)
from benchmarks.scenarios.base import Context, Step
from benchmarks.spark import job as names
from benchmarks.spark.job import Figures, SparkJob
from benchmarks.subjects import Subject, headwater_sealing

_SECONDS_MAX = 600.0
# (variant, what is measured for whom)
_COMPARED = (
    (
        "history from files",
        {
            HEADWATER: names.FILES,
            SPARK_READY: names.READY,
            SPARK_PARQUET: names.PARQUET,
            SPARK_TEXT: names.TEXT,
        },
    ),
    ("history over HTTP", {HEADWATER: names.HTTP, SPARK_READY: names.READY}),
    ("typed rows", {HEADWATER: names.TYPED, SPARK_FROM_JSON: names.FROM_JSON}),
    ("table", {HEADWATER: names.TABLE, SPARK_PARQUET: names.TABLE_PARQUET}),
    ("micro-batches", {HEADWATER: names.LATENCY}),
)


def steps(context: Context, subject: Subject) -> Generator[Step]:
    """All readers share one session, so everything is measured with the first step."""
    if subject.name != HEADWATER:
        return  # Spark reads from Headwater only
    bench = _Bench(context)
    for variant, compared in _COMPARED:
        for name, figures in compared.items():
            yield Step(variant, lambda f=figures: bench.take(f), name)  # type: ignore[misc]


class _Bench:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._figures: Figures | LoadFailed | None = None

    def take(self, name: str) -> Result:
        if self._figures is None:
            try:
                self._figures = self._measure()
            except LoadFailed as error:
                self._figures = error
        if isinstance(self._figures, LoadFailed):
            raise self._figures
        return self._figures[name]

    def _measure(self) -> Figures:
        context, plan = self._context, self._context.plan
        directory = context.work_dir / "spark-files"
        try:
            with context.fresh_server(headwater_sealing(context.python)) as server:
                job = SparkJob(
                    port=server.port,
                    server_pid=server.pid,
                    directory=str(directory),
                    messages=plan.spark_messages,
                    message_bytes=plan.spark_message_bytes,
                    batch_messages=plan.catchup_batch_messages,
                    rounds=plan.spark_rounds,
                    latency_samples=plan.spark_latency_samples,
                )
                return run_spark(context.python, job, _SECONDS_MAX)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
