"""`archive`, `materialize` and `rollup` over all JSON streams, in one session, for a supervisor.

    python -m pyspark_headwater.pipelines.together --endpoint http://127.0.0.1:4437 --root lake

It reports on stdout, one object per line:

    {"is": "running"}                                        the queries have been started
    {"is": "progress", "pipeline": …, "rows": …,             a micro-batch is in the tables
     "lag_messages": …, "lag_s": …}
    {"is": "paused", "pipeline": …}                          it reads nothing until resumed
    {"is": "resumed", "pipeline": …}                         it reads again
    {"is": "left out", "stream": …, "why": …}                a stream that cannot be materialized
    {"is": "failed", "why": …, "final": …}                   the end; final: again would not help

It stops cleanly when its stdin ends, so it never outlives its parent.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.core.pipelines import ALWAYS_ON, LOCAL_MASTER, ON_ERROR, OnError
from pyspark_headwater.errors import HeadwaterSparkError, reason
from pyspark_headwater.java import NoJava
from pyspark_headwater.pipelines.checkpoints import starting_options
from pyspark_headwater.pipelines.many_states import left_out
from pyspark_headwater.pipelines.running import Pipeline, Runner, messages_for
from pyspark_headwater.pipelines.session import session

TOKEN_VARIABLE: Final = "HEADWATER_TOKEN"
BATCH_BYTES_MAX: Final = 32 * 2**20
SETTLE_S_MAX: Final = 20.0
_POLL_S: Final = 0.5

# For a machine with other things to do: little memory, a quick start, no network listeners.
SETTINGS: Final = {
    "spark.driver.memory": "1g",
    # Idle Python workers keep the memory of their last task; a new one is just a fork.
    "spark.python.factory.idleWorkerMaxPoolSize": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


# Python workers, of which Spark keeps about twenty, release memory at once.
ENVIRONMENT: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
    "MALLOC_MMAP_THRESHOLD_": "262144",
}


def pipelines(
    endpoint: str,
    root: str,
    every_s: int,
    *,
    iceberg: bool = False,
    on_error: OnError = "fail",
) -> list[Pipeline]:
    """The pipelines, each over all present and future streams.

    On a server for experiments streams come and go, so a missing one is not a failure.
    """
    options = {
        "endpoint": endpoint,
        "streamPattern": "**",
        "onlyJson": "true",
        "failOnDataLoss": "false",
        "maxBytesPerTrigger": str(BATCH_BYTES_MAX),
    }
    if token := os.environ.get(TOKEN_VARIABLE):
        options["token"] = token
    return [
        Pipeline(
            kind,
            root,
            options,
            follow=True,
            every_s=every_s,
            iceberg=iceberg,
            on_error=on_error if kind == "materialize" else "fail",
        )
        for kind in ALWAYS_ON
    ]


def tell(what: str, **more: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode({"is": what, **more}) + b"\n")
    sys.stdout.buffer.flush()


def asked_for(given: Sequence[str] | None) -> tuple[str, list[Pipeline]]:
    """The Spark master and the pipelines, from a command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--master", default=LOCAL_MASTER)
    parser.add_argument("--every", type=int, default=2, metavar="SECONDS")
    parser.add_argument("--iceberg", action="store_true")
    parser.add_argument("--on-error", choices=[*ON_ERROR], default="fail")
    asked = parser.parse_args(given)
    return asked.master, pipelines(
        asked.endpoint, asked.root, asked.every, iceberg=asked.iceberg, on_error=asked.on_error
    )


def main(given: Sequence[str] | None = None) -> int:
    master, chosen = asked_for(given)
    stopping = _until_stdin_ends()
    os.environ |= ENVIRONMENT
    try:
        spark = session(master, "headwater", SETTINGS)
    except NoJava as error:
        tell("failed", why=str(error), final=True)
        return 1
    except PySparkException as error:
        why = f"Spark does not start: {reason(str(error))}; is JAVA_HOME a Java 17 or later?"
        tell("failed", why=why, final=True)
        return 1
    try:
        follow(spark, chosen, stopping)
    except Exception as error:
        # Whatever it was, it may be over by the next attempt.
        traceback.print_exc()
        tell("failed", why=reason(str(error)), final=False)
        return 1
    finally:
        spark.stop()
    return 0


def follow(spark: SparkSession, chosen: Sequence[Pipeline], stopping: threading.Event) -> None:
    """Run pipelines until stopped, or until one of them fails."""
    known = {stream for one in chosen for stream in left_out(one.directory)}
    messages = _Shared(spark)
    runners = [Runner(one, messages) for one in chosen]
    try:
        for runner in runners:
            runner.turn()
            if runner.query is not None:
                _let_settle(runner.query, stopping)
        tell("running")
        paused = dict.fromkeys([runner.pipeline.name for runner in runners], False)
        while not stopping.wait(_POLL_S):
            for runner in runners:
                _tell_news(runner, known)
                _tell_pause(runner, paused)
                if runner.is_over:
                    raise HeadwaterSparkError("a query has ended")
    finally:
        with ThreadPoolExecutor(len(runners)) as pool:
            list(pool.map(lambda runner: runner.stop(), runners))


class _Shared:
    """The input of the pipelines, shared because querying the server for it takes a while."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: dict[tuple[tuple[str, str], ...], DataFrame] = {}

    def __call__(self, pipeline: Pipeline) -> DataFrame:
        options = starting_options(pipeline.root, pipeline.directory, pipeline.options)
        key = tuple(sorted(options.items()))
        if key not in self._known:
            # A reset pipeline begins elsewhere, and most likely only once.
            self._known = {key: messages_for(self._spark, pipeline)}
        return self._known[key]


def _let_settle(query: StreamingQuery, stopping: threading.Event) -> None:
    """Wait until a query has found out what there is to read.

    That takes a Python process, which Spark gives up on after ten seconds. On a small machine,
    several at once might not start in time.
    """
    deadline = time.monotonic() + SETTLE_S_MAX
    while query.isActive and time.monotonic() < deadline:
        status = query.status
        found = status["isDataAvailable"] or status["message"].startswith("Waiting")
        if found or stopping.wait(_POLL_S):
            return


def _tell_pause(runner: Runner, paused: dict[str, bool]) -> None:
    one = runner.pipeline
    if runner.is_paused != paused[one.name]:
        paused[one.name] = runner.is_paused
        tell("paused" if runner.is_paused else "resumed", pipeline=one.kind)


def _tell_news(runner: Runner, known: set[str]) -> None:
    for found in runner.turn():
        tell(
            "progress",
            pipeline=found.kind,
            rows=found.rows,
            lag_messages=found.lag_messages,
            lag_s=found.lag_s,
        )
        for stream, left in left_out(runner.pipeline.directory).items():
            if stream not in known:
                known.add(stream)
                tell("left out", stream=stream, why=left.why)


def _until_stdin_ends() -> threading.Event:
    """An event that is set when stdin ends or on a signal."""
    stopping = threading.Event()

    def wait() -> None:
        while os.read(0, 1024):
            pass
        stopping.set()

    threading.Thread(target=wait, name="headwater-stdin", daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    # Ctrl-C is for the parent, which stops this process cleanly.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return stopping


if __name__ == "__main__":
    sys.exit(main())
