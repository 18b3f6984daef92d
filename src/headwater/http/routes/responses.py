"""Durable responses: answers of other servers, kept as streams."""

from __future__ import annotations

from typing import Final

from headwater.http.access.rules import Need
from headwater.http.dialects import Dialect
from headwater.http.routes import headers
from headwater.http.routes.route import (
    ANY_TYPE,
    EVENTS_TYPE,
    WHOLE,
    Answer,
    Parameter,
    Route,
)
from headwater.http.routes.streams import READ_ERRORS, READ_HEADERS, READ_QUERY

RESPONSES: Final = "/v1/proxy"
RESPONSE: Final = f"{RESPONSES}/{{id}}"

_TYPE: Final = "Upstream-Content-Type"
_EXPIRES: Final = Parameter(
    "expires", "Until when the address holds, in seconds since 1970.", WHOLE
)
_SIGNATURE: Final = Parameter("signature", "Proves that the server gave the address out.")
_SIGNATURES: Final = ("MISSING_SIGNATURE", "SIGNATURE_INVALID", "SIGNATURE_EXPIRED")


DIALECT: Final = Dialect(
    codes={
        "stream_not_found": ("STREAM_NOT_FOUND", 404),
        "stream_gone": ("STREAM_NOT_FOUND", 404),
        "unauthorized": ("INVALID_SECRET", 401),
    },
    keyless={
        "POST": "MISSING_SECRET",
        "HEAD": "MISSING_SECRET",
        "DELETE": "MISSING_SECRET",
        "GET": "MISSING_SIGNATURE",
    },
)

_POST = Route(
    "POST",
    RESPONSES,
    "Make a request elsewhere and keep its answer as a stream. Only where addresses are allowed.",
    lambda on: on.responses.post if on.responses else None,
    {
        201: Answer("The answer has begun to arrive.", ("Location", _TYPE)),
        502: Answer(
            "The upstream answered with an error (and `Upstream-Status`), or failed.",
            ("Upstream-Status",),
            {ANY_TYPE: {}},
        ),
    },
    needs=Need.MAKE_RESPONSE,
    errors=(
        "MISSING_UPSTREAM_URL",
        "MISSING_UPSTREAM_METHOD",
        "INVALID_UPSTREAM_METHOD",
        "REDIRECT_NOT_ALLOWED",
        "UPSTREAM_NOT_ALLOWED",
        "UPSTREAM_ERROR",
        "STORAGE_ERROR",
        "UPSTREAM_TIMEOUT",
        "TOO_MANY_RESPONSES",
        "invalid_header",
        "not_found",
    ),
    headers=headers.request(
        "Upstream-URL", "Upstream-Method", "Upstream-Authorization", "Content-Type"
    ),
    body={ANY_TYPE: {}},
    body_optional=True,
    holds_data=True,
    dialect=DIALECT,
)
_GET = Route(
    "GET",
    RESPONSE,
    "Read a response as any stream, from the beginning or an offset.",
    lambda on: on.responses.get if on.responses else None,
    {
        200: Answer(
            "Bytes of the response.",
            (*READ_HEADERS, _TYPE, "Stream-Close-Reason"),
            {ANY_TYPE: {}, EVENTS_TYPE: {}},
        ),
        204: Answer("Nothing new.", (*READ_HEADERS, _TYPE, "Stream-Close-Reason")),
        304: Answer("It has not changed.", (*READ_HEADERS, _TYPE)),
    },
    needs=Need.RESPONSE,
    errors=(
        *READ_ERRORS,
        "too_many_readers",
        *_SIGNATURES,
        "STREAM_NOT_FOUND",
        "not_found",
    ),
    query=(_EXPIRES, _SIGNATURE, *READ_QUERY),
    headers=headers.request("If-None-Match", "Accept-Encoding"),
    waits=True,
    dialect=DIALECT,
)
_HEAD = Route(
    "HEAD",
    RESPONSE,
    "What is known of a response.",
    lambda on: on.responses.head if on.responses else None,
    {200: Answer("It is there.", ("Stream-Next-Offset", "Stream-Closed", _TYPE))},
    needs=Need.RESPONSE_KEY,
    errors=("STREAM_NOT_FOUND", "not_found"),
    dialect=DIALECT,
)
_PATCH = Route(
    "PATCH",
    RESPONSE,
    "Abort a response. What has arrived stays.",
    lambda on: on.responses.patch if on.responses else None,
    {204: Answer("Nothing more arrives.")},
    needs=Need.SIGNATURE,
    errors=(*_SIGNATURES, "INVALID_ACTION", "STREAM_NOT_FOUND", "invalid_query", "not_found"),
    query=(
        _EXPIRES,
        _SIGNATURE,
        Parameter("action", "What to do.", {"type": "string", "enum": ["abort"]}),
    ),
    dialect=DIALECT,
)
_DELETE = Route(
    "DELETE",
    RESPONSE,
    "End a response and drop what it holds.",
    lambda on: on.responses.delete if on.responses else None,
    {204: Answer("It is gone.")},
    needs=Need.DELETE_RESPONSE,
    errors=("too_busy", "not_found"),
    dialect=DIALECT,
)

ROUTES: Final = (_POST, _GET, _HEAD, _PATCH, _DELETE)
