"""Starting, watching and resuming pipelines.

A pipeline has a name, and below the root of the tables a directory of that name with Spark's
checkpoint and a note of how far it got. Stopping it, in whatever way, loses nothing: the next run
continues from the checkpoint.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.client.errors import HeadwaterError
from headwater.core import pipelines
from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.options import read_options
from pyspark_headwater.pipelines.delta import Commit, filesystem
from pyspark_headwater.pipelines.jobs import Archive, Job, Rollup, with_patience
from pyspark_headwater.pipelines.many_states import Speaking
from pyspark_headwater.pipelines.snapshots import take_snapshot
from pyspark_headwater.pipelines.state import Materialize
from pyspark_headwater.selection import Selection
from pyspark_headwater.wire import BEGINNING, Wire, wire_to

_POLL_S: Final = 1


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What to run.

    Attributes:
        kind: which of the pipelines.
        root: where the tables are: a directory, or an address that all workers can reach.
        options: options of the format, above all `endpoint` and `stream` or `streamPattern`.
        minutes: the length of the windows of a rollup.
        follow: keep running; otherwise end when everything that is there has been read.
        every_s: when following, the least time from one micro-batch to the next.
    """

    kind: pipelines.Pipeline
    root: str
    options: dict[str, str] = field(default_factory=dict)
    minutes: int = 1
    follow: bool = False
    every_s: int = 0

    @property
    def name(self) -> str:
        """The name of the pipeline, made of what it does."""
        what = self.options.get("stream") or self.options.get("streamPattern") or "streams"
        return f"{self.kind}-{re.sub(r'[^A-Za-z0-9]+', '-', what).strip('-') or 'all'}"

    @property
    def directory(self) -> str:
        return f"{self.root}/{pipelines.PROGRESS}/{self.name}"

    def job(self) -> Job:
        match self.kind:
            case "archive":
                return Archive(self.root)
            case "materialize":
                if "streamPattern" in self.options:
                    return Materialize(self.root, Speaking(self.directory, self._is_first))
                self._one_stream()
                return Materialize(self.root)
            case "rollup":
                return Rollup(self.root, self.minutes)
        raise InvalidOption(f"{self.kind} has no micro-batches")

    def _is_first(self, stream: str, offset: str) -> bool:
        """Whether the server has nothing of a stream before an offset."""
        wire = wire_to(read_options(self.options, "stream read").server)
        kept = wire.ranges(stream, BEGINNING, offset, 1)
        return not any(one.messages for one in kept)

    def _one_stream(self) -> str:
        if "stream" not in self.options:
            raise InvalidOption(f"{self.kind} takes one stream: a state is that of one stream")
        return self.options["stream"]


class Progress(msgspec.Struct, frozen=True):
    """How far a pipeline is: after a micro-batch, or as it was noted then."""

    name: str
    kind: str
    batch: int
    rows: int
    rows_per_s: float
    batch_ms: int
    at_ms: int
    offsets: dict[str, str]
    lag_messages: int | None = None
    lag_s: float | None = None


Watch = Callable[[Progress], None]


def run(spark: SparkSession, pipeline: Pipeline, watch: Watch = lambda _: None) -> None:
    """Run a pipeline until it has caught up, or until it is stopped."""
    if pipeline.kind == "snapshot":
        _run_snapshot(spark, pipeline, watch)
        return
    query = start(pipeline, messages_for(spark, pipeline))
    try:
        _watch(query, pipeline, watch)
        query.awaitTermination()
    finally:
        query.stop()


def messages_for(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """What a pipeline takes in."""
    options = {"startingOffsets": "earliest", **pipeline.options}
    read_options(options, "stream read")
    return spark.readStream.format("headwater").options(**options).load()


def start(pipeline: Pipeline, messages: DataFrame) -> StreamingQuery:
    """Start the query of a pipeline."""
    checkpoint = f"{pipeline.directory}/checkpoint"
    job = pipeline.job()

    def take_in(batch: DataFrame, number: int) -> None:
        with_patience(job, batch, Commit(_query_id(checkpoint), number))

    writing = messages.writeStream.foreachBatch(take_in).queryName(pipeline.name)
    writing = writing.option("checkpointLocation", checkpoint)
    if not pipeline.follow:
        writing = writing.trigger(availableNow=True)
    elif pipeline.every_s:
        writing = writing.trigger(processingTime=f"{pipeline.every_s} seconds")
    return writing.start()


def _query_id(checkpoint: str) -> str:
    """The id that Spark gave the query when its checkpoint was made."""
    where, path = filesystem(checkpoint)
    with where.open_input_stream(f"{path}/metadata") as file:
        return str(msgspec.json.decode(file.read())["id"])


def _run_snapshot(spark: SparkSession, pipeline: Pipeline, watch: Watch) -> None:
    started = time.monotonic()
    stream = pipeline.options.get("stream")
    if stream is None:
        raise InvalidOption("snapshot takes one stream: a state is that of one stream")
    offset = take_snapshot(spark, pipeline.options)
    took_ms = int((time.monotonic() - started) * 1000)
    offsets = {} if offset is None else {stream: offset}
    now_ms = time.time_ns() // 1_000_000
    watch(Progress(pipeline.name, "snapshot", 0, 0, 0.0, took_ms, now_ms, offsets))


# --- Watching ------------------------------------------------------------------------------------


def _watch(query: StreamingQuery, pipeline: Pipeline, watch: Watch) -> None:
    watcher = Watcher(query, pipeline)
    while True:
        active = query.isActive
        for found in watcher.news():
            watch(found)
        if not active:
            return
        query.awaitTermination(_POLL_S)


class Watcher:
    """What a query does, noted beside its checkpoint as it happens."""

    def __init__(self, query: StreamingQuery, pipeline: Pipeline) -> None:
        self.query = query
        self.pipeline = pipeline
        self._options = read_options(pipeline.options, "stream read")
        self._seen = -1

    def news(self) -> list[Progress]:
        """The micro-batches with something in them since the last time."""
        recent = [
            one
            for one in self.query.recentProgress
            if one["batchId"] > self._seen and one["numInputRows"]
        ]
        if not recent:
            return []
        self._seen = recent[-1]["batchId"]
        *earlier, last = [_progress(self.pipeline, one) for one in recent]
        wire = wire_to(self._options.server)
        last = with_lag(last, wire, self._tails())
        _note(self.pipeline, last)
        wire.report(last)
        return [*earlier, last]

    def _tails(self) -> dict[str, str] | None:
        """Where the streams end, to ask only about those that are not read to there."""
        try:
            return Selection(self._options, wire_to(self._options.server)).tails()
        except HeadwaterError:
            return None


def _progress(pipeline: Pipeline, one: Any) -> Progress:
    end = one["sources"][0]["endOffset"]
    offsets = end if isinstance(end, dict) else msgspec.json.decode(end)
    return Progress(
        name=pipeline.name,
        kind=pipeline.kind,
        batch=one["batchId"],
        rows=one["numInputRows"],
        rows_per_s=round(one["processedRowsPerSecond"], 1),
        batch_ms=one["durationMs"].get("triggerExecution", 0),
        at_ms=time.time_ns() // 1_000_000,
        offsets=dict(offsets),
    )


def with_lag(progress: Progress, wire: Wire, tails: Mapping[str, str] | None = None) -> Progress:
    """The same with how far behind it is now, if the server can tell."""
    messages, oldest_ms = 0, None
    now_ms = time.time_ns() // 1_000_000
    try:
        for stream, offset in progress.offsets.items():
            if tails is not None and tails.get(stream, offset) == offset:
                continue
            reach = wire.reach(stream, offset)
            messages += reach.messages
            if reach.messages:
                first_ms = wire.first_timestamp(stream, offset)
                oldest_ms = min(first_ms, oldest_ms or first_ms)
    except HeadwaterError:
        return progress
    lag_s = 0.0 if oldest_ms is None else max(0.0, (now_ms - oldest_ms) / 1000)
    return msgspec.structs.replace(progress, lag_messages=messages, lag_s=round(lag_s, 3))


def _note(pipeline: Pipeline, progress: Progress) -> None:
    where, path = filesystem(pipeline.directory)
    where.create_dir(path)
    with where.open_output_stream(f"{path}/progress.json") as file:
        file.write(msgspec.json.encode(progress))


def noted(root: str) -> list[Progress]:
    """How far the pipelines below a root are, as they noted it themselves."""
    where, path = filesystem(root)
    selector = fs.FileSelector(f"{path}/{pipelines.PROGRESS}", allow_not_found=True)
    found: list[Progress] = []
    for directory in sorted(where.get_file_info(selector), key=lambda one: str(one.path)):
        note = f"{directory.path}/progress.json"
        if where.get_file_info(note).type == fs.FileType.File:
            with where.open_input_stream(note) as file:
                found.append(msgspec.json.decode(file.read(), type=Progress))
    return found
