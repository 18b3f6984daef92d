"""`/v1/pipelines`: the progress of pipelines, as they last reported it.

It is for people to look at, so it is kept in memory only: a running pipeline soon reports again. In
a cluster one node keeps it for all (`core.cluster`), and forgets it when another one takes over.
Orders to pipelines are kept in a stream, see `headwater.core.pipelines`.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.core.json_bodies import decode_body
from headwater.core.pipelines import OnError, State
from headwater.http.answers import done, json_answer
from headwater.http.messages import Request, Response
from headwater.service.clock import Clock

_REPORTS_MAX: Final = 1_000
_LABELS_MAX: Final = 100

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]


class PipelineReport(msgspec.Struct, frozen=True):
    """What a pipeline says about itself: after a micro-batch, and every few seconds without one."""

    name: Name
    kind: Annotated[str, Meta(min_length=1, max_length=40)]
    batch: Count
    rows: Count
    rows_per_s: Amount
    batch_ms: Count
    lag_messages: Count | None = None
    lag_s: Amount | None = None
    error: Annotated[str, Meta(max_length=2_000)] | None = None
    """Its last error, if it is failing."""
    state: State = "running"
    last_error: Annotated[str, Meta(max_length=2_000)] | None = None
    """Its last error, even if it has recovered."""
    last_error_at: Count | None = None
    root: Annotated[str, Meta(max_length=2_000)] = ""
    """Where its tables are."""
    selection: Annotated[str, Meta(max_length=2_000)] = ""
    """The stream that it reads, or a pattern."""
    streams: Count = 0
    """How many streams that is."""
    on_error: OnError = "fail"
    quarantined: Count | None = None
    """How many messages it could not process; they are in the stream `quarantine/NAME`."""
    maintenance_in: Count | None = None
    """After how many more commits the first of its tables is tidied."""
    obeyed: Annotated[str, Meta(max_length=100)] | None = None
    """How far it has read the orders in `pipelines/control`."""


class PipelineResource:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reports: OrderedDict[str, tuple[int, PipelineReport]] = OrderedDict()

    def latest(self) -> list[tuple[int, PipelineReport]]:
        """The most recent reports and their times: as many as a label may have values."""
        return [*islice(reversed(self._reports.values()), _LABELS_MAX)]

    def index(self, request: Request) -> Response:
        shown = [
            {**msgspec.to_builtins(report), "reported": at_ms}
            for _, (at_ms, report) in sorted(self._reports.items())
        ]
        return json_answer({"pipelines": shown})

    def report(self, request: Request) -> Response:
        report = decode_body(request.body, PipelineReport)
        self._reports[report.name] = (self._clock(), report)
        self._reports.move_to_end(report.name)
        if len(self._reports) > _REPORTS_MAX:
            self._reports.popitem(last=False)
        return done()

    def forget(self) -> None:
        self._reports.clear()
