"""The status of a pipeline: recorded next to its checkpoint, and reported to the server for people.

A pipeline reports after every micro-batch, and every few seconds without one, so that a paused or
stuck one is visible. Lag is what the server has beyond the last batch. With many streams, querying
it takes long; it is then queried less often.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyarrow import fs
from pyspark.sql.streaming.query import StreamingQuery

from headwater.client.errors import HeadwaterError
from headwater.core import pipelines
from pyspark_headwater.options import ReadOptions
from pyspark_headwater.pipelines.checkpoints import read_note, write_note
from pyspark_headwater.pipelines.parquet import filesystem
from pyspark_headwater.selection import Selection
from pyspark_headwater.wire import BEGINNING, Wire

PROGRESS: Final = "progress.json"
FAILURE: Final = "failure.json"
REPORT_EVERY_S: Final = 5.0
_FEW: Final = 20
_LAG_SHARE: Final = 10
"""With more than a few streams, at most one second in this many is spent on finding the lag."""
_ERROR_CHARS_MAX: Final = 2_000


class Progress(msgspec.Struct, frozen=True):
    """The progress of a pipeline after a micro-batch, or as it was recorded then."""

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


class Failure(msgspec.Struct, frozen=True):
    """The last failure of a pipeline."""

    why: str
    at_ms: int
    is_over: bool = False
    """Whether a batch has succeeded since."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def progress_of(name: str, kind: str, one: Any) -> Progress:
    """What Spark reports about a micro-batch."""
    end = one["sources"][0]["endOffset"]
    offsets = end if isinstance(end, dict) else msgspec.json.decode(end)
    return Progress(
        name=name,
        kind=kind,
        batch=one["batchId"],
        rows=one["numInputRows"],
        rows_per_s=round(one["processedRowsPerSecond"], 1),
        batch_ms=one["durationMs"].get("triggerExecution", 0),
        at_ms=now_ms(),
        offsets=dict(offsets),
    )


def with_lag(progress: Progress, wire: Wire, tails: Mapping[str, str] | None = None) -> Progress:
    """The same with its current lag, if the server can tell."""
    messages, oldest_ms = 0, None
    places = progress.offsets
    if tails is not None:
        places = {
            stream: progress.offsets.get(stream, BEGINNING)
            for stream, tail in tails.items()
            if progress.offsets.get(stream, BEGINNING) != tail
        }
    try:
        for stream, offset in places.items():
            reach = wire.reach(stream, offset)
            messages += reach.messages
            if reach.messages:
                first_ms = wire.first_timestamp(stream, offset)
                oldest_ms = min(first_ms, oldest_ms or first_ms)
    except HeadwaterError:
        return progress
    lag_s = 0.0 if oldest_ms is None else max(0.0, (now_ms() - oldest_ms) / 1000)
    return msgspec.structs.replace(progress, lag_messages=messages, lag_s=round(lag_s, 3))


def noted(root: str) -> list[Progress]:
    """The progress of the pipelines below a root, as they recorded it themselves."""
    where, path = filesystem(root)
    selector = fs.FileSelector(f"{path}/{pipelines.PROGRESS}", allow_not_found=True)
    found: list[Progress] = []
    for directory in sorted(where.get_file_info(selector), key=lambda one: str(one.path)):
        note = _noted_progress(f"{root}/{pipelines.PROGRESS}/{directory.base_name}")
        if note is not None:
            found.append(note)
    return found


def _noted_progress(directory: str) -> Progress | None:
    note = read_note(directory, PROGRESS)
    return None if note is None else msgspec.json.decode(note, type=Progress)


class Reporter:
    """Follows a pipeline from one query to the next, and reports to the server."""

    def __init__(
        self, name: str, kind: str, directory: str, options: ReadOptions, wire: Wire
    ) -> None:
        self._name, self._kind, self._directory = name, kind, directory
        self._options = options
        self._wire = wire
        self._last = _noted_progress(directory) or Progress(name, kind, 0, 0, 0.0, 0, 0, {})
        failure = read_note(directory, FAILURE)
        self._failure = None if failure is None else msgspec.json.decode(failure, type=Failure)
        self._seen = -1
        self._told_at = self._asked_at = float("-inf")
        self._asking_s = 0.0
        self._told: dict[str, object] = {}

    def begin(self) -> None:
        """A new query: all its batches are new."""
        self._seen = -1

    def news(self, query: StreamingQuery) -> list[Progress]:
        """The non-empty micro-batches since the last call."""
        recent = [
            one
            for one in query.recentProgress
            if one["batchId"] > self._seen and one["numInputRows"]
        ]
        if not recent:
            return []
        self._seen = recent[-1]["batchId"]
        *earlier, last = [progress_of(self._name, self._kind, one) for one in recent]
        self._last = msgspec.structs.replace(
            last, lag_messages=self._last.lag_messages, lag_s=self._last.lag_s
        )
        if self._failure is not None and not self._failure.is_over:
            self._fail(msgspec.structs.replace(self._failure, is_over=True))
        if self._may_ask(0.0):
            self._ask_for_lag()
        write_note(self._directory, PROGRESS, self._last)
        self._told_at = float("-inf")
        return [*earlier, self._last]

    def failed(self, why: str) -> None:
        self._fail(Failure(why[:_ERROR_CHARS_MAX], now_ms()))
        self._told_at = float("-inf")

    def _fail(self, failure: Failure) -> None:
        self._failure = failure
        write_note(self._directory, FAILURE, failure)

    def tell(self, state: pipelines.State, **more: object) -> None:
        """Report, if something is new or a report is due."""
        is_failing = self._failure is not None and not self._failure.is_over
        if state == "running" and is_failing:
            state = "failing"
        news: dict[str, object] = {"state": state, **more}
        if news == self._told and time.monotonic() - self._told_at < REPORT_EVERY_S:
            return
        if self._may_ask(REPORT_EVERY_S):
            self._ask_for_lag()
        failure = self._failure
        report = msgspec.to_builtins(self._last) | news
        # There may be very many streams; the details are next to the tables.
        report["streams"] = len(report.pop("offsets"))
        if failure is not None:
            report |= {"last_error": failure.why, "last_error_at": failure.at_ms}
            report["error"] = failure.why if is_failing else None
        self._told, self._told_at = news, time.monotonic()
        self._wire.report(report)

    def _may_ask(self, least_s: float) -> bool:
        """Whether it is time to query the lag. Few streams may be queried at any time."""
        many = len(self._last.offsets) > _FEW
        rest_s = max(least_s, self._asking_s * _LAG_SHARE if many else 0.0)
        return time.monotonic() - self._asked_at >= rest_s

    def _ask_for_lag(self) -> None:
        """Query the lag, and measure how long that takes."""
        began = self._asked_at = time.monotonic()
        try:
            tails = Selection(self._options, self._wire).tails()
        except HeadwaterError:
            return
        self._last = with_lag(self._last, self._wire, tails)
        self._asking_s = time.monotonic() - began
