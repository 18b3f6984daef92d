"""Snapshots of a stream's state."""

from __future__ import annotations

from typing import Final

from headwater.http.access.rules import Need
from headwater.http.routes import headers
from headwater.http.routes.route import ANY_TYPE, JSON_TYPE, STREAM, Answer, Route, ref, with_head
from headwater.http.routes.streams import STREAM_ERRORS

_ALL: Final = f"{STREAM}/_snapshots"
_ONE: Final = f"{_ALL}/{{offset}}"
_PLACE: Final = ("Stream-Next-Offset",)

_LIST = Route(
    "GET",
    _ALL,
    "The snapshots that are kept, the newest first.",
    lambda on: on.snapshots.index,
    {200: Answer("The snapshots.", content={JSON_TYPE: ref("Snapshots")})},
    needs=Need.READ,
    errors=STREAM_ERRORS,
)
_GET = Route(
    "GET",
    _ONE,
    "A snapshot; `latest` is the newest one.",
    lambda on: on.snapshots.get,
    {200: Answer("The state at that offset.", _PLACE, {ANY_TYPE: {}})},
    needs=Need.READ,
    errors=(*STREAM_ERRORS, "invalid_offset", "unknown_offset", "snapshot_not_found"),
)
_PUT = Route(
    "PUT",
    _ONE,
    "Store the state at an offset for readers to start from.",
    lambda on: on.snapshots.put,
    {
        200: Answer("It takes the place of another one.", _PLACE),
        201: Answer("It is kept.", _PLACE),
    },
    needs=Need.WRITE,
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
    holds_data=True,
)
_DELETE = Route(
    "DELETE",
    _ONE,
    "Drop a snapshot.",
    lambda on: on.snapshots.delete,
    {204: Answer("It is gone.")},
    needs=Need.DELETE,
    errors=(*STREAM_ERRORS, "invalid_offset", "unknown_offset", "snapshot_not_found", "too_busy"),
)

ROUTES: Final = (*with_head(_LIST), *with_head(_GET), _PUT, _DELETE)
