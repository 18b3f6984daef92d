"""`/v1/pipelines`: the progress of pipelines, as they last reported it.

It is for people to look at, so it is kept in memory only: a pipeline that runs soon reports again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.core.json_bodies import decode_body
from headwater.http.answers import done, json_answer
from headwater.http.messages import Request, Response
from headwater.service.clock import Clock

_REPORTS_MAX: Final = 1_000

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Count = Annotated[int, Meta(ge=0)]
Amount = Annotated[float, Meta(ge=0)]


class PipelineReport(msgspec.Struct, frozen=True):
    """What a pipeline says about itself after a micro-batch."""

    name: Name
    kind: Annotated[str, Meta(min_length=1, max_length=40)]
    batch: Count
    rows: Count
    rows_per_s: Amount
    batch_ms: Count
    lag_messages: Count | None = None
    lag_s: Amount | None = None
    error: Annotated[str, Meta(max_length=2_000)] | None = None
    """What it failed with last, if it fails."""


class PipelineResource:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reports: OrderedDict[str, tuple[int, PipelineReport]] = OrderedDict()

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
