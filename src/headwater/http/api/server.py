"""The server as a whole."""

from __future__ import annotations

from typing import Final

from headwater.core.limits import LIST_PAGE_MAX
from headwater.http.api.model import (
    JSON_TYPE,
    TEXT,
    Answer,
    Operation,
    Parameter,
    obj,
    ref,
    with_head,
)

_LIST = Operation(
    "GET",
    "/v1/streams",
    "The streams of this server, by path.",
    {200: Answer("A page of them.", content={JSON_TYPE: ref("StreamList")})},
    errors=("invalid_query", "data_corrupt"),
    query=(
        Parameter("prefix", "Only streams whose path begins with this."),
        Parameter("after", "Only streams whose path sorts behind this."),
        Parameter(
            "limit",
            "At most this many.",
            {"type": "integer", "minimum": 1, "maximum": LIST_PAGE_MAX, "default": 100},
        ),
    ),
)
_HEALTHZ = Operation(
    "GET",
    "/healthz",
    "Is the process alive.",
    {200: Answer("It is.", content={JSON_TYPE: obj({"status": TEXT})})},
)
_READYZ = Operation(
    "GET",
    "/readyz",
    "Can it use its storage.",
    {200: Answer("It can.", content={JSON_TYPE: obj({"status": TEXT})})},
    errors=("data_corrupt",),
)
_METRICS = Operation(
    "GET",
    "/metrics",
    "Figures for Prometheus.",
    {
        200: Answer(
            "The figures.", content={"text/plain": TEXT, "application/openmetrics-text": TEXT}
        )
    },
)
_OPENAPI = Operation(
    "GET",
    "/openapi.json",
    "This description.",
    {200: Answer("OpenAPI 3.1.", content={JSON_TYPE: {"type": "object"}})},
)
_INDEX = Operation(
    "GET",
    "/",
    "A few lines of text that name the above.",
    {200: Answer("The text.", content={"text/plain": TEXT})},
)

OPERATIONS: Final = tuple(
    operation
    for get in (_LIST, _HEALTHZ, _READYZ, _METRICS, _OPENAPI, _INDEX)
    for operation in with_head(get)
)
