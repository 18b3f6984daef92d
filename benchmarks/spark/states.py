"""Many state streams at a steady pace: how long does a micro-batch of `materialize` take?

    python -m benchmarks.spark.states --streams 200

Every stream gets one change per second, from a separate process that keeps its pace whatever else
happens. The pipeline runs as `headwater pipeline materialize --follow` runs it, on `local[2]`. The
first batches warm up the JVM and the Python workers, and do not count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks import procfs
from benchmarks.errors import LoadFailed
from benchmarks.servers import running
from benchmarks.subjects import headwater
from pyspark_headwater.pipelines.running import Pipeline, Runner, messages_for
from pyspark_headwater.pipelines.session import session

KEYS: Final = 50
_JSON: Final = {"Content-Type": "application/json"}
_POLL_S: Final = 1
_SECONDS_MAX: Final = 600.0
_PHASES: Final = ("latestOffset", "addBatch")


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch: how many changes it had, how long each phase took, and the CPU time so far."""

    rows: int
    seconds: float
    phases: dict[str, float]


def change(stream: int, number: int) -> bytes:
    value = {"n": number, "item": f"item {number % 7}", "price": number % 1000 / 100}
    key = f"k{(number * 7 + stream) % KEYS}"
    record = {"type": "order", "key": key, "value": value, "headers": {"operation": "upsert"}}
    return json.dumps(record, separators=(",", ":")).encode()


def keep_pace(port: int, streams: int) -> None:
    """Append one change per second to every stream, evenly spread, until terminated."""
    connection = HTTPConnection("127.0.0.1", port)
    began, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * streams)
        for one in range(sent, due):
            number, stream = divmod(one, streams)
            _ask(connection, "POST", stream, change(stream, number))
        sent = due
        time.sleep(0.01)


def _ask(connection: HTTPConnection, method: str, stream: int, body: bytes | None = None) -> None:
    connection.request(method, f"/v1/stream/states/{stream}", body, _JSON)
    answer = connection.getresponse()
    answer.read()
    if answer.status >= 300:
        raise LoadFailed(f"{method} was answered {answer.status}")


@contextmanager
def changing(port: int, streams: int) -> Iterator[None]:
    connection = HTTPConnection("127.0.0.1", port)
    for stream in range(streams):
        _ask(connection, "PUT", stream)
        _ask(connection, "POST", stream, change(stream, 0))
    process = multiprocessing.get_context("spawn").Process(
        target=keep_pace, args=(port, streams), daemon=True
    )
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


class Follower:
    """A running pipeline, with the batches it has processed so far."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._runner = Runner(pipeline, lambda one: messages_for(spark, one))
        self._found: dict[int, Batch] = {}

    def take_in(self, batches: int) -> list[Batch]:
        """Wait for a number of non-empty batches."""
        deadline = time.monotonic() + _SECONDS_MAX
        known = len(self._found)
        while len(self._found) < known + batches:
            if time.monotonic() > deadline:
                raise LoadFailed(f"{len(self._found) - known} batches in {_SECONDS_MAX:.0f} s")
            self._runner.turn()
            if self._runner.query is not None:
                for one in self._runner.query.recentProgress:
                    if one["numInputRows"]:
                        self._found[one["batchId"]] = _batch(one)
            self._runner.rest(_POLL_S)
        return [*self._found.values()][known : known + batches]

    def close(self) -> None:
        self._runner.stop()


def _batch(progress: Any) -> Batch:
    took = {name: ms / 1000 for name, ms in progress["durationMs"].items()}
    phases = {name: took.get(name, 0.0) for name in _PHASES}
    return Batch(progress["numInputRows"], took.get("triggerExecution", 0.0), phases)


def measure(streams: int, warmup: int, batches: int, every_s: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "server"
        with running(headwater(sys.executable), data) as server:
            server.await_ready()
            options = {
                "endpoint": f"http://127.0.0.1:{server.port}",
                "streamPattern": "states/*",
                "onlyJson": "true",
            }
            lake = str(Path(directory) / "lake")
            pipeline = Pipeline("materialize", lake, options, follow=True, every_s=every_s)
            spark = session("local[2]", "headwater-bench", quiet=True)
            try:
                with changing(server.port, streams), closing(Follower(spark, pipeline)) as follower:
                    follower.take_in(warmup)
                    before = _cpu(server.pid)
                    began, busy = time.monotonic(), procfs.busy_seconds()
                    found = follower.take_in(batches)
                    took_s, busy_s = time.monotonic() - began, procfs.busy_seconds() - busy
                    after = _cpu(server.pid)
            finally:
                spark.stop()
    ours = {name: after[name] - before[name] for name in after}
    _show(streams, found, ours, took_s, busy_s - sum(ours.values()))


def _cpu(server_pid: int) -> dict[str, float]:
    """CPU time so far, by what spent it, without the load generator."""
    found = {"the server": 0.0, "the driver": 0.0, "the JVM": 0.0, "Python workers": 0.0}
    (jvm,) = [pid for pid in procfs.process_tree(os.getpid()) if _command(pid) == "java"]
    workers = procfs.process_tree(jvm)
    for pid, seconds in procfs.cpu_by_process(os.getpid()).items():
        if pid == jvm:
            found["the JVM"] += seconds
        elif pid in workers:
            found["Python workers"] += seconds
        elif pid == server_pid:
            found["the server"] += seconds
        elif pid == os.getpid():
            found["the driver"] += seconds
    return found


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _show(
    streams: int, found: Sequence[Batch], ours: dict[str, float], took_s: float, others_s: float
) -> None:
    seconds = [one.seconds for one in found]
    rows = statistics.mean(one.rows for one in found)
    print(f"{streams} streams, a change a second each; {len(found)} batches of {rows:.0f} changes")
    print(f"a batch: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    for name in _PHASES:
        print(f"  {name}: median {statistics.median(one.phases[name] for one in found):.2f} s")
    for name, cpu_s in ours.items():
        print(f"CPU of {name}: {cpu_s / len(found):.2f} s a batch")
    print(f"others took {others_s / took_s:.2f} of {os.cpu_count()} cores meanwhile")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=8, help="batches that do not count")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--every", type=int, default=0, metavar="SECONDS")
    asked = parser.parse_args()
    measure(asked.streams, asked.warmup, asked.batches, asked.every)


if __name__ == "__main__":
    main()
