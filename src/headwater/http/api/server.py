"""The server as a whole."""

from __future__ import annotations

from typing import Final

from headwater.core.limits import LIST_PAGE_MAX
from headwater.http.api import headers
from headwater.http.api.model import (
    JSON_TYPE,
    TEXT,
    WHOLE,
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
    public=True,
)
_READYZ = Operation(
    "GET",
    "/readyz",
    "Can it use its storage.",
    {200: Answer("It can.", content={JSON_TYPE: obj({"status": TEXT})})},
    errors=("data_corrupt",),
    public=True,
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
    public=True,
)
_SIGN = Operation(
    "POST",
    "/v1/presign",
    "An address that reads one stream without a token. Only with access control.",
    {200: Answer("The address.", content={JSON_TYPE: obj({"url": TEXT, "expires_at_ms": WHOLE})})},
    errors=("invalid_path", "invalid_body", "invalid_request", "not_found"),
    body={JSON_TYPE: ref("SignBody")},
    body_required=True,
)
_INDEX = Operation(
    "GET",
    "/",
    "A few lines of text that name the above.",
    {
        200: Answer("The text.", content={"text/plain": TEXT}),
        303: Answer("To the console, for who asks for HTML."),
    },
    public=True,
)

_CONSOLE = Operation(
    "GET",
    "/console/",
    "The server in a browser. Its parts are below this path.",
    {
        200: Answer("The page.", content={"text/html": TEXT}),
        304: Answer("It has not changed."),
    },
    headers=headers.request("If-None-Match"),
    public=True,
)

_PIPELINES = Operation(
    "GET",
    "/v1/pipelines",
    "How far pipelines are, as they last said.",
    {200: Answer("What they said, and when.", content={JSON_TYPE: ref("Pipelines")})},
)
_REPORT = Operation(
    "POST",
    "/v1/pipelines",
    "A pipeline says how far it is. Kept in memory, for people to look at.",
    {204: Answer("Noted.")},
    errors=("invalid_body",),
    body={JSON_TYPE: ref("PipelineReport")},
    body_required=True,
)

_LOOKED_AT: Final = (_LIST, _HEALTHZ, _READYZ, _METRICS, _OPENAPI, _INDEX, _CONSOLE, _PIPELINES)
OPERATIONS: Final = (*(one for get in _LOOKED_AT for one in with_head(get)), _SIGN, _REPORT)
