"""What tests of Spark say often, in few words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Literal

import httpx
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.client import Headwater, Stream
from pyspark_headwater.errors import is_slow_start
from pyspark_headwater.pipelines.layout import safe_path

ROOT: Final = Path(__file__).parent.parent.parent
PATIENCE_S: Final = 1_200
Fate = Literal["pass", "unavailable", "lose answer"]


def local_session(master: str) -> SparkSession:
    """A session that starts quickly and says little."""
    builder = SparkSession.Builder().master(master).appName("headwater-tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.log.level": "OFF",
        "spark.python.daemon.module": "pyspark_headwater.daemon",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def up_and_running(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query; again if the machine was too busy for it, as `is_slow_start` explains."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        query = start()
        while query.isActive and not _is_reading(query):
            assert time.monotonic() < deadline, query.status
            time.sleep(0.02)
        failure = query.exception()
        if failure is None or not is_slow_start(failure) or time.monotonic() > deadline:
            return query


def _is_reading(query: StreamingQuery) -> bool:
    """Whether a query has heard from its sources."""
    status = query.status
    return bool(status["isDataAvailable"]) or str(status["message"]).startswith("Waiting")


@dataclass
class World:
    client: Headwater
    url: str
    prefix: str
    directory: Path

    def name(self, name: str = "events") -> str:
        return f"{self.prefix}/{name}"

    def table(self, name: str = "events") -> str:
        """What the table of a stream is called."""
        return safe_path(self.name(name))

    def stream(
        self, name: str = "events", *appends: Iterable[Any], content_type: str = "application/json"
    ) -> Stream:
        """A new stream, with one append for each of the lists."""
        stream = self.client.stream(self.name(name))
        stream.ensure(content_type=content_type)
        for messages in appends:
            stream.append_all(messages)
        return stream

    def options(self, name: str | None = "events", **options: object) -> dict[str, str]:
        named = {} if name is None else {"stream": self.name(name)}
        return {"endpoint": self.url, **named, **{k: str(v) for k, v in options.items()}}

    def batch(
        self, spark: SparkSession, name: str | None = "events", **options: object
    ) -> DataFrame:
        return spark.read.format("headwater").options(**self.options(name, **options)).load()

    def live(
        self, spark: SparkSession, name: str | None = "events", **options: object
    ) -> DataFrame:
        options = {"startingOffsets": "earliest", **options}
        return spark.readStream.format("headwater").options(**self.options(name, **options)).load()

    def checkpoint(self, name: str = "checkpoint") -> str:
        return str(self.directory / name)

    def to_stream(
        self,
        frame: DataFrame,
        name: str | None = "sink",
        *,
        form: str = "headwater",
        checkpoint: str = "checkpoint",
        **options: object,
    ) -> StreamingQuery:
        """Start a query that takes in what is there now and then ends."""
        return (
            frame.writeStream.format(form)
            .options(**self.options(name, **options))
            .option("checkpointLocation", self.checkpoint(checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def run(self, frame: DataFrame, name: str | None = "sink", **options: Any) -> list[int]:
        """The same, and wait: how many rows each micro-batch had."""
        query = self.to_stream(frame, name, **options)
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress]

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}/v1/stream/{path}")

    def read(self, name: str = "sink") -> list[Any]:
        return [*self.client.stream(self.name(name)).read_json()]


def run_to_end(
    command: list[str],
    directory: Path,
    environment: Mapping[str, str],
    patience_s: float = PATIENCE_S,
) -> str:
    """Run a command to its good end; what it printed. Nothing of it outlives a bad end."""
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=os.environ | dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, said = process.communicate(timeout=patience_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, said[-3000:] + printed[-3000:]
    return printed


def values(frame: DataFrame) -> list[Any]:
    """The messages of a DataFrame in the order of the stream."""
    rows = frame.select("stream", "offset", "index", "value").collect()
    return [json.loads(row.value) for row in sorted(rows)]


def rows_of(uri: str) -> list[dict[str, Any]]:
    """A table as any other reader of Delta sees it."""
    return [*pa.table(DeltaTable(uri).to_pyarrow_table()).to_pylist()]


class Gateway:
    """Passes requests on to a server, except those that a test has other plans for."""

    def __init__(self, target: str, fate: Callable[[int, str, Mapping[str, str]], Fate]) -> None:
        self.seen: list[tuple[str, Fate]] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                chosen = fate(len(gateway.seen), self.command, dict(self.headers))
                gateway.seen.append((self.command, chosen))
                if chosen == "unavailable":
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                passed = {k: v for k, v in self.headers.items() if k.lower() != "host"}
                answer = httpx.request(
                    self.command, target + self.path, headers=passed, content=body, timeout=60
                )
                if chosen == "lose answer":
                    self.close_connection = True
                    return
                self.send_response(answer.status_code)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.content)

            do_GET = do_HEAD = do_POST = do_PUT = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                """Tests read `seen`."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[Gateway]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
