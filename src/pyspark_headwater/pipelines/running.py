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
from pyspark_headwater.pipelines.checkpoints import (
    checkpoint_of,
    claim,
    read_note,
    starting_options,
    write_note,
)
from pyspark_headwater.pipelines.delta import Commit, OpenTables
from pyspark_headwater.pipelines.jobs import Archive, Job, Rollup, with_patience
from pyspark_headwater.pipelines.layout import safe_name
from pyspark_headwater.pipelines.many_states import Speaking
from pyspark_headwater.pipelines.parquet import filesystem
from pyspark_headwater.pipelines.snapshots import take_snapshot
from pyspark_headwater.pipelines.state import Materialize
from pyspark_headwater.pipelines.upkeep import KEEP_REPLACED_H
from pyspark_headwater.selection import Selection
from pyspark_headwater.wire import BEGINNING, Wire, wire_to

_POLL_S: Final = 1
_SELECTING: Final = ("stream", "streams", "streamPattern")
PROGRESS: Final = "progress.json"


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
        called: what the pipeline is called, if not by what it does.
        keep_replaced_h: how long to keep files that are no longer part of a table, in hours.
    """

    kind: pipelines.Pipeline
    root: str
    options: dict[str, str] = field(default_factory=dict)
    minutes: int = 1
    follow: bool = False
    every_s: int = 0
    called: str = ""
    keep_replaced_h: int = KEEP_REPLACED_H

    @property
    def name(self) -> str:
        """The name of the pipeline, made of what it does."""
        if self.called:
            return safe_name(self.called)
        what = self.options.get("stream") or self.options.get("streamPattern") or "streams"
        return f"{self.kind}-{re.sub(r'[^A-Za-z0-9]+', '-', what).strip('-') or 'all'}"

    @property
    def directory(self) -> str:
        return f"{self.root}/{pipelines.PROGRESS}/{self.name}"

    @property
    def selection(self) -> dict[str, str]:
        """Which streams it takes in."""
        return {name: self.options[name] for name in _SELECTING if name in self.options}

    def job(self) -> Job:
        tables = OpenTables(self.keep_replaced_h)
        match self.kind:
            case "archive":
                return Archive(self.root, tables)
            case "materialize":
                if "streamPattern" in self.options:
                    speaking = Speaking(self.directory, self._is_first)
                    return Materialize(self.root, speaking, tables=tables)
                self._one_stream()
                return Materialize(self.root, tables=tables)
            case "rollup":
                return Rollup(self.root, self.minutes, tables)
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
    read_options(pipeline.options, "stream read")
    options = starting_options(pipeline.root, pipeline.directory, pipeline.options)
    return spark.readStream.format("headwater").options(**options).load()


def start(pipeline: Pipeline, messages: DataFrame) -> StreamingQuery:
    """Start the query of a pipeline."""
    claim(pipeline.directory, {"pipeline": pipeline.kind, **pipeline.selection})
    checkpoint = checkpoint_of(pipeline.root, pipeline.directory)
    job = pipeline.job()

    def take_in(batch: DataFrame, number: int) -> None:
        with_patience(job, batch, Commit(checkpoint.query_id(), number))
        checkpoint.note(number)

    writing = messages.writeStream.foreachBatch(take_in).queryName(pipeline.name)
    writing = writing.option("checkpointLocation", checkpoint.location)
    if not pipeline.follow:
        writing = writing.trigger(availableNow=True)
    elif pipeline.every_s:
        writing = writing.trigger(processingTime=f"{pipeline.every_s} seconds")
    return writing.start()


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
    write_note(pipeline.directory, PROGRESS, progress)


def noted(root: str) -> list[Progress]:
    """How far the pipelines below a root are, as they noted it themselves."""
    where, path = filesystem(root)
    selector = fs.FileSelector(f"{path}/{pipelines.PROGRESS}", allow_not_found=True)
    found: list[Progress] = []
    for directory in sorted(where.get_file_info(selector), key=lambda one: str(one.path)):
        note = read_note(f"{root}/{pipelines.PROGRESS}/{directory.base_name}", PROGRESS)
        if note is not None:
            found.append(msgspec.json.decode(note, type=Progress))
    return found
