"""`/v1/pipelines`: how far pipelines are, as they last said.

For people to look at, so it is kept in memory only: whoever is alive reports again soon.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.http.bodies import read_body
from headwater.http.errors import plain_error
from headwater.http.messages import Headers, Request, Response
from headwater.service.clock import Clock

_REPORTS_MAX: Final = 1_000
_METHODS: Final = "GET, HEAD, POST, OPTIONS"
_JSON: Final[Headers] = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]

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


class PipelineResource:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reports: OrderedDict[str, tuple[int, PipelineReport]] = OrderedDict()

    def handle(self, request: Request) -> Response:
        if request.method == "POST":
            return self._take(read_body(request, PipelineReport))
        if request.method not in ("GET", "HEAD"):
            problem = f"this resource answers {_METHODS}"
            return plain_error(405, "method_not_allowed", problem, [("Allow", _METHODS)])
        shown = [
            {**msgspec.to_builtins(report), "reported": at_ms}
            for _, (at_ms, report) in sorted(self._reports.items())
        ]
        return Response(200, list(_JSON), msgspec.json.encode({"pipelines": shown}))

    def _take(self, report: PipelineReport) -> Response:
        self._reports[report.name] = (self._clock(), report)
        self._reports.move_to_end(report.name)
        if len(self._reports) > _REPORTS_MAX:
            self._reports.popitem(last=False)
        return Response(204, [("Cache-Control", "no-store")])
