"""From an append to its row in a micro-batch."""

import json
import queue
import time
from pathlib import Path

import httpx
from pyspark.sql import DataFrame, SparkSession

from benchmarks.errors import LoadFailed
from benchmarks.spark.job import SparkJob
from headwater.cli.bench.generator import percentile

_STREAM = "spark-latency"
_JSON = {"Content-Type": "application/json"}
_WARMUP = 5
_SEEN_SECONDS_MAX = 60.0
# Not in step with anything in the query.
_PAUSES = (0.02, 0.11, 0.23, 0.37)


def measure_latency(spark: SparkSession, job: SparkJob) -> dict[str, float]:
    """One message at a time, so that each has its own micro-batch."""
    seen: queue.Queue[float] = queue.Queue()

    def note(batch: DataFrame, _: int) -> None:
        rows = batch.select("value").collect()
        now = time.monotonic()
        for row in rows:
            seen.put(now - json.loads(row.value)["sent"])

    url = f"{job.endpoint}/v1/stream/{_STREAM}"
    with httpx.Client(timeout=60) as http:
        http.put(url, headers=_JSON).raise_for_status()
        reader = spark.readStream.format("headwater")
        # From the beginning: the first message may arrive before the query starts.
        options = {"endpoint": job.endpoint, "stream": _STREAM, "startingOffsets": "earliest"}
        frame = reader.options(**options).load()
        checkpoint = str(Path(job.directory) / "latency")
        query = (
            frame.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint).start()
        )
        try:
            times = [_one(http, url, number, seen) for number in range(job.latency_samples)]
        finally:
            query.stop()
    ordered = sorted(1000 * seconds for seconds in times[_WARMUP:])
    return {"p50_ms": percentile(ordered, 50), "p99_ms": percentile(ordered, 99)}


def _one(http: httpx.Client, url: str, number: int, seen: "queue.Queue[float]") -> float:
    time.sleep(_PAUSES[number % len(_PAUSES)])
    http.post(url, json={"sent": time.monotonic()}).raise_for_status()
    try:
        return seen.get(timeout=_SEEN_SECONDS_MAX)
    except queue.Empty:
        raise LoadFailed("a message did not reach the query") from None
