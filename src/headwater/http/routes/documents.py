"""Collaborative documents; only if the server is configured to serve them."""

from __future__ import annotations

from typing import Final

from headwater.http.access.rules import Need
from headwater.http.dialects import Dialect
from headwater.http.routes import headers
from headwater.http.routes.route import (
    ANY_TYPE,
    DOCUMENT,
    EVENTS_TYPE,
    FLAG,
    JSON_TYPE,
    Answer,
    Parameter,
    Route,
    Schema,
)
from headwater.http.routes.streams import STREAM_ERRORS

DIALECT: Final = Dialect(
    codes={
        "stream_not_found": ("DOCUMENT_NOT_FOUND", 404),
        "stream_gone": ("DOCUMENT_NOT_FOUND", 404),
    },
    by_status={400: "INVALID_REQUEST", 401: "UNAUTHORIZED", 429: "RATE_LIMITED"},
)

_AWARENESS: Final = Parameter("awareness", "Instead of the document, who is there: a name.")
_POSITION: Final = ("Stream-Next-Offset", "Stream-Up-To-Date", "Stream-Closed")
# Without the layer, nothing is found here.
_ERRORS: Final = (*STREAM_ERRORS, "invalid_query", "not_found")
_BYTES: Final[dict[str, Schema]] = {ANY_TYPE: {}}

_PUT = Route(
    "PUT",
    DOCUMENT,
    "Create a document, or make sure that it is there.",
    lambda on: on.documents.put if on.documents else None,
    {
        200: Answer("It was there already.", ("Stream-Next-Offset",)),
        201: Answer("It is new.", ("Location", "Stream-Next-Offset")),
    },
    needs=Need.WRITE,
    errors=(
        *_ERRORS,
        "invalid_header",
        "invalid_body",
        "config_conflict",
        "path_reserved",
        "quota_exceeded",
        "too_busy",
    ),
    query=(_AWARENESS,),
    headers=headers.request("Content-Type"),
    body=_BYTES,
    body_optional=True,
    holds_data=True,
    dialect=DIALECT,
)
_POST = Route(
    "POST",
    DOCUMENT,
    "Append updates, each preceded by its length.",
    lambda on: on.documents.post if on.documents else None,
    {
        200: Answer("Stored, for a producer.", ("Stream-Next-Offset", "Producer-Epoch")),
        204: Answer("Stored.", ("Stream-Next-Offset", "Producer-Epoch", "Producer-Seq")),
    },
    needs=Need.WRITE,
    errors=(
        *_ERRORS,
        "invalid_header",
        "invalid_body",
        "empty_body",
        "missing_content_type",
        "epoch_must_start_at_zero",
        "stale_epoch",
        "sequence_gap",
        "content_type_mismatch",
        "stream_closed",
        "stream_seq_conflict",
        "too_many_producers",
        "quota_exceeded",
        "too_busy",
    ),
    query=(_AWARENESS,),
    headers=headers.request("Content-Type", "Producer-Id", "Producer-Epoch", "Producer-Seq"),
    body=_BYTES,
    holds_data=True,
    dialect=DIALECT,
)
_GET = Route(
    "GET",
    DOCUMENT,
    "Read updates, a snapshot, or the current content.",
    lambda on: on.documents.get if on.documents else None,
    {
        200: Answer(
            "Updates, a snapshot or the content.",
            (*_POSITION, "Stream-Cursor", "Stream-SSE-Data-Encoding", "ETag"),
            {ANY_TYPE: {}, EVENTS_TYPE: {}, JSON_TYPE: {}},
        ),
        204: Answer("Nothing came while the server waited.", (*_POSITION, "Stream-Cursor")),
        304: Answer("The client has it already.", ("ETag",)),
        307: Answer("Where the newest snapshot is, or the beginning.", ("Location",)),
    },
    needs=Need.READ,
    errors=(
        *_ERRORS,
        "snapshot_not_found",
        "invalid_offset",
        "unknown_offset",
        "offset_expired",
        "invalid_header",
        "history_unavailable",
        "too_many_readers",
        "too_busy",
    ),
    query=(
        Parameter("offset", "As on streams, or `snapshot`, or an offset and `_snapshot`."),
        Parameter(
            "live", "Wait for news.", {"type": "string", "enum": ["false", "long-poll", "sse"]}
        ),
        Parameter("cursor", "The cursor of the last answer."),
        _AWARENESS,
        Parameter(
            "state", "Show the content instead.", {"type": "string", "enum": ["json", "text"]}
        ),
        Parameter("name", "Which part of the content."),
    ),
    headers=headers.request("If-None-Match", "Accept-Encoding"),
    waits=True,
    dialect=DIALECT,
)
_HEAD = Route(
    "HEAD",
    DOCUMENT,
    "Whether a document is there, and where it ends.",
    lambda on: on.documents.head if on.documents else None,
    {200: Answer("It is there.", _POSITION)},
    needs=Need.READ_OR_WRITE,
    errors=_ERRORS,
    query=(_AWARENESS,),
    dialect=DIALECT,
)
_DELETE = Route(
    "DELETE",
    DOCUMENT,
    "Delete a document with its snapshots and awareness.",
    lambda on: on.documents.delete if on.documents else None,
    {204: Answer("It is gone.")},
    needs=Need.DELETE,
    errors=(*_ERRORS, "too_busy"),
    query=(_AWARENESS, Parameter("purge", "Do not keep it for an undelete.", FLAG)),
    dialect=DIALECT,
)

ROUTES: Final = (_PUT, _POST, _GET, _HEAD, _DELETE)
