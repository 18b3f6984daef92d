"""Starting, watching and resuming pipelines.

A pipeline has a name, and below the root of the tables a directory of that name with Spark's
checkpoint and a note of how far it got. Stopping it, in whatever way, loses nothing: the next run
continues from the checkpoint.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.client.errors import HeadwaterError
from headwater.core import pipelines
from headwater.core.patterns import parse_path_pattern
from headwater.core.pipelines import To
from pyspark_headwater.errors import (
    HeadwaterSparkError,
    InvalidOption,
    Paused,
    is_slow_start,
    reason,
)
from pyspark_headwater.known_options import OPTIONS
from pyspark_headwater.options import read_options, write_options
from pyspark_headwater.pipelines.archive import Archive
from pyspark_headwater.pipelines.checkpoints import checkpoint_of, claim, starting_options
from pyspark_headwater.pipelines.delta import Commit
from pyspark_headwater.pipelines.feed import Feed, feed_stream
from pyspark_headwater.pipelines.jobs import Job, Rollup, with_patience
from pyspark_headwater.pipelines.layout import safe_name
from pyspark_headwater.pipelines.many_states import Speaking
from pyspark_headwater.pipelines.open_tables import OpenTables
from pyspark_headwater.pipelines.quarantine import Quarantine
from pyspark_headwater.pipelines.reporting import Progress, Reporter, now_ms
from pyspark_headwater.pipelines.snapshots import take_snapshot
from pyspark_headwater.pipelines.state import Choice, Materialize, all_of_them, whatever_they_hold
from pyspark_headwater.pipelines.steering import Steering, reset
from pyspark_headwater.pipelines.upkeep import KEEP_REPLACED_H
from pyspark_headwater.selection import Selection
from pyspark_headwater.wire import BEGINNING, wire_to

_POLL_S: Final = 1
_HURRY_S: Final = 10.0
_SLOW_STARTS_MAX: Final = 5
_SELECTING: Final = ("stream", "streams", "streamPattern")
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What to run.

    Attributes:
        kind: which pipeline.
        root: where the tables are: a directory, or an address that all workers can reach.
        options: options of the format, above all `endpoint` and `stream` or `streamPattern`.
        minutes: the length of the windows of a rollup.
        follow: keep running; otherwise end when all existing messages have been read.
        every_s: when following, the minimum time from one micro-batch to the next.
        called: the name of the pipeline, if not derived from what it does.
        keep_replaced_h: how long to keep files that are no longer part of a table, in hours.
        iceberg: whether tables are also published as Iceberg.
        on_error: what to do about a message that does not fit; `quarantine` is for `materialize`.
        changes: whether `materialize` keeps a table of changes for each of its own.
        changes_to: the stream that it sends them to as well. `{stream}` in it stands for the
            stream that they come from, so that each of several has a stream of its own.
    """

    kind: pipelines.Pipeline
    root: str
    options: dict[str, str] = field(default_factory=dict)
    minutes: int = 1
    follow: bool = False
    every_s: int = 0
    called: str = ""
    keep_replaced_h: int = KEEP_REPLACED_H
    on_error: pipelines.OnError = "fail"
    iceberg: bool = False
    changes: bool = False
    changes_to: str = ""

    def __post_init__(self) -> None:
        if self.on_error not in pipelines.ON_ERROR:
            raise InvalidOption(f"onError is {' or '.join(pipelines.ON_ERROR)}: {self.on_error!r}")
        if self.on_error == "quarantine" and self.kind != "materialize":
            raise InvalidOption(
                f"{self.kind} has nothing to quarantine: every message fits; leave out onError"
                if self.kind != "snapshot"
                else "a snapshot of a state with gaps would mislead: leave out onError"
            )
        if (self.changes or self.changes_to) and self.kind != "materialize":
            raise InvalidOption(f"{self.kind} has no change feed: that is for materialize")

    def check(self) -> None:
        """Refuse what cannot be run, before anything is started."""
        asked = read_options(self.options, "stream read")
        Selection(asked, wire_to(asked.server))
        if self.kind == "snapshot":
            self.one_stream()
        else:
            self.job()

    @property
    def name(self) -> str:
        """The name of the pipeline, derived from what it does."""
        if self.called:
            return safe_name(self.called)
        what = self.options.get("stream") or self.options.get("streamPattern") or "streams"
        return f"{self.kind}-{re.sub(r'[^A-Za-z0-9]+', '-', what).strip('-') or 'all'}"

    @property
    def directory(self) -> str:
        return f"{self.root}/{pipelines.PROGRESS}/{self.name}"

    @property
    def selection(self) -> dict[str, str]:
        """Which streams it reads."""
        return {name: self.options[name] for name in _SELECTING if name in self.options}

    def job(self, quarantine: Quarantine | None = None) -> Job:
        tables = OpenTables(self.keep_replaced_h, iceberg=self.iceberg)
        feed = self._feed(tables)
        match self.kind:
            case "archive":
                return Archive(self.root, tables, self.options.get("stream"))
            case "materialize":
                return Materialize(self.root, self._choice(), quarantine, tables, feed)
            case "rollup":
                return Rollup(self.root, self.minutes, tables)
        raise InvalidOption(f"{self.kind} has no micro-batches")

    def quarantine(self) -> Quarantine | None:
        """Where messages that do not fit go, if anywhere."""
        if self.on_error == "fail":
            return None
        wire = wire_to(read_options(self.options, "stream read").server)
        return Quarantine(self.name, pipelines.quarantine_of(self.name), wire)

    def _choice(self) -> Choice:
        goes_on = self.on_error == "quarantine"
        if "streamPattern" in self.options:
            return Speaking(self.directory, self._is_first, goes_on)
        self.one_stream()
        return whatever_they_hold if goes_on else all_of_them

    def _feed(self, tables: OpenTables) -> Feed | None:
        """The change feed, if enabled."""
        if not self.changes and not self.changes_to:
            return None
        if not self.changes_to:
            return Feed(self.root, tables)
        self._check_changes_to()
        names = {option.name for option in OPTIONS if "batch write" in option.uses}
        options = {name: value for name, value in self.options.items() if name in names}
        options |= {"stream": self.changes_to, "createStream": "true"}
        return Feed(self.root, tables, write_options(options, "batch write"))

    def _check_changes_to(self) -> None:
        pattern = self.options.get("streamPattern")
        if pattern is None:
            if feed_stream(self.changes_to, self.one_stream()) == self.one_stream():
                raise InvalidOption("changes go to another stream than the one they come from")
            return
        if feed_stream(self.changes_to, "") == self.changes_to:
            raise InvalidOption(
                "the changes of several streams go to several streams: put {stream} into the name, "
                f"as in changes/{{stream}}, not {self.changes_to!r}"
            )
        # Any stream that it covers will do: replace its wildcards with words.
        example = re.sub(r"\*\*?|>", "x", pattern.strip("/"))
        if parse_path_pattern(pattern).covers(feed_stream(self.changes_to, example)):
            raise InvalidOption(
                f"{pattern!r} covers {self.changes_to!r} too, so that changes would have changes "
                "of their own: choose a name or a pattern that keeps them apart"
            )

    def _is_first(self, stream: str, offset: str) -> bool:
        """Whether the server has nothing of a stream before an offset."""
        wire = wire_to(read_options(self.options, "stream read").server)
        kept = wire.ranges(stream, BEGINNING, offset, 1)
        return not any(one.messages for one in kept)

    def one_stream(self) -> str:
        if "stream" not in self.options:
            raise InvalidOption(f"{self.kind} takes one stream: a state is that of one stream")
        return self.options["stream"]


Watch = Callable[[Progress], None]


def run(spark: SparkSession, pipeline: Pipeline, watch: Watch = lambda _: None) -> None:
    """Run a pipeline until it has caught up, or until it is stopped.

    It follows orders meanwhile, see `steering`.
    """
    if pipeline.kind == "snapshot":
        _run_snapshot(spark, pipeline, watch)
        return
    runner = Runner(pipeline, lambda one: messages_for(spark, one))
    try:
        while True:
            for found in runner.turn():
                watch(found)
            if runner.is_over:
                return
            runner.rest(_POLL_S)
    finally:
        runner.stop()


def messages_for(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """The input of a pipeline."""
    read_options(pipeline.options, "stream read")
    options = starting_options(pipeline.root, pipeline.directory, pipeline.options)
    return spark.readStream.format("headwater").options(**options).load()


def start(pipeline: Pipeline, messages: DataFrame, job: Job | None = None) -> StreamingQuery:
    """Start the query of a pipeline."""
    claim(pipeline.directory, {"pipeline": pipeline.kind, **pipeline.selection})
    checkpoint = checkpoint_of(pipeline.root, pipeline.directory)
    chosen = job or pipeline.job(pipeline.quarantine())

    def take_in(batch: DataFrame, number: int) -> None:
        with_patience(chosen, batch, Commit(checkpoint.query_id(), number))
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
    stream = pipeline.one_stream()
    offset = take_snapshot(spark, pipeline.options)
    took_ms = int((time.monotonic() - started) * 1000)
    offsets = {} if offset is None else {stream: offset}
    watch(Progress(pipeline.name, "snapshot", 0, 0, 0.0, took_ms, now_ms(), offsets))


# --- From one query to the next ------------------------------------------------------------------


class Runner:
    """A pipeline with its query, which is stopped and restarted as ordered."""

    def __init__(self, pipeline: Pipeline, messages: Callable[[Pipeline], DataFrame]) -> None:
        self.pipeline = pipeline
        self.query: StreamingQuery | None = None
        self.is_over = False
        self._messages = messages
        self._slow_starts = 0
        self._options = read_options(pipeline.options, "stream read")
        # Orders and reports can wait. Waiting for them would hide how the query is doing.
        wire = wire_to(replace(self._options.server, retry_timeout_s=_HURRY_S))
        self._wire = wire
        self._steering = Steering(pipeline.name, pipeline.directory, wire)
        self._reporter = Reporter(
            pipeline.name, pipeline.kind, pipeline.directory, self._options, wire
        )
        self._quarantine = pipeline.quarantine()
        self._job = pipeline.job(self._quarantine)

    @property
    def is_paused(self) -> bool:
        return self._steering.standing.paused

    def turn(self) -> list[Progress]:
        """Do what is due; call this repeatedly.

        Returns the micro-batches since the last call. Raises the query's failure.
        """
        query = self.query
        was_active = query is not None and query.isActive
        news = [] if query is None else self._reporter.news(query)
        if news:
            self._slow_starts = 0
        if query is not None and not was_active:
            self._end(query)
        else:
            self._obey()
        self._tell()
        return news

    def rest(self, at_most_s: int) -> None:
        if self.query is None:
            time.sleep(at_most_s)
        else:
            # The next turn finds out what it failed with.
            with suppress(StreamingQueryException):
                self.query.awaitTermination(at_most_s)

    def stop(self) -> None:
        """End the query. The next one repeats unfinished work."""
        if self.query is not None:
            self.query.stop()
            self.query = None

    def _obey(self) -> None:
        before = self._steering.standing
        resets = self._steering.look()
        if resets or self.is_paused:
            self.stop()
        try:
            for to in resets:
                self._reset(to)
        except HeadwaterError:
            # The server is away; the orders will be there next time.
            self._steering.standing = before
            return
        if self._steering.standing != before:
            self._steering.note()
        if self.query is None and not self.is_paused:
            self._start()
        elif self.is_paused and not self.pipeline.follow:
            self._tell()
            name = self.pipeline.name
            raise Paused(f"{name} is paused: `headwater pipeline resume {name}` lets it go on")

    def _start(self) -> None:
        self._reporter.begin()
        try:
            self.query = start(self.pipeline, self._messages(self.pipeline), self._job)
        except (PySparkException, HeadwaterSparkError, HeadwaterError) as error:
            self._fail(error)
            raise

    def _reset(self, to: To) -> None:
        one = self.pipeline
        try:
            reset(one.root, one.directory, self._options, self._wire, to)
        except HeadwaterSparkError as error:
            # Nobody could take such an order back.
            _log.warning("%s is not reset: %s", one.name, error)
            self._reporter.failed(f"not reset: {error}")

    def _end(self, query: StreamingQuery) -> None:
        error = query.exception()
        if error is None:
            self.is_over = True
        elif is_slow_start(error) and self._slow_starts < _SLOW_STARTS_MAX:
            self._slow_starts += 1
            self.query = None  # the next turn starts another
            _log.warning("%s: this machine is too busy to start it; trying again", query.name)
        else:
            self._fail(error)
            raise error

    def _fail(self, error: Exception) -> None:
        self._reporter.failed(reason(str(error)))
        self._tell()

    def _tell(self) -> None:
        state: pipelines.State = "running"
        if self.is_over:
            state = "ended"
        elif self.is_paused:
            state = "paused"
        one = self.pipeline
        self._reporter.tell(
            state,
            root=one.root,
            selection=next(iter(one.selection.values()), ""),
            obeyed=self._steering.standing.obeyed,
            on_error=one.on_error,
            quarantined=None if self._quarantine is None else self._quarantine.count(self._wire),
            maintenance_in=self._job.tables.commits_left(),
        )
