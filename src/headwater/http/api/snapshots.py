"""Snapshots of a stream's state."""

from __future__ import annotations

from typing import Final

from headwater.http.api import headers
from headwater.http.api.model import ANY_TYPE, JSON_TYPE, Answer, Operation, ref, with_head
from headwater.http.api.streams import STREAM, STREAM_ERRORS

_ALL: Final = f"{STREAM}/_snapshots"
_ONE: Final = f"{_ALL}/{{offset}}"
_PLACE: Final = ("Stream-Next-Offset",)

_LIST = Operation(
    "GET",
    _ALL,
    "The snapshots that are kept, the newest first.",
    {200: Answer("The snapshots.", content={JSON_TYPE: ref("Snapshots")})},
    errors=STREAM_ERRORS,
)
_GET = Operation(
    "GET",
    _ONE,
    "A snapshot; `latest` is the newest one.",
    {200: Answer("The state at that offset.", _PLACE, {ANY_TYPE: {}})},
    errors=(*STREAM_ERRORS, "invalid_offset", "unknown_offset", "snapshot_not_found"),
)
_PUT = Operation(
    "PUT",
    _ONE,
    "Leave the state at an offset for readers to begin with.",
    {
        200: Answer("It takes the place of another one.", _PLACE),
        201: Answer("It is kept.", _PLACE),
    },
    errors=(
        *STREAM_ERRORS,
        "invalid_offset",
        "unknown_offset",
        "offset_expired",
        "empty_body",
        "missing_content_type",
        "invalid_header",
        "snapshot_outdated",
        "history_unavailable",
        "too_busy",
    ),
    headers=headers.request("Content-Type"),
    body={ANY_TYPE: {}},
    body_required=True,
)
_DELETE = Operation(
    "DELETE",
    _ONE,
    "Drop a snapshot.",
    {204: Answer("It is gone.")},
    errors=(*STREAM_ERRORS, "invalid_offset", "unknown_offset", "snapshot_not_found", "too_busy"),
)

OPERATIONS: Final = (*with_head(_LIST), *with_head(_GET), _PUT, _DELETE)
