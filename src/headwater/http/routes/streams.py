"""Streams and what belongs to one."""

from __future__ import annotations

from typing import Final

from headwater.http.access.rules import Need
from headwater.http.resources.bulk import ARROW_TYPE, NDJSON_TYPE
from headwater.http.routes import headers
from headwater.http.routes.route import (
    ANY_TYPE,
    COUNT,
    EVENTS_TYPE,
    FLAG,
    JSON_TYPE,
    STREAM,
    TEXT,
    WHOLE,
    Answer,
    Parameter,
    Route,
    ref,
    with_head,
)

STREAM_ERRORS: Final = ("invalid_path", "stream_not_found", "stream_gone", "data_corrupt")
# Possible errors of an offset.
OFFSET_ERRORS: Final = ("invalid_offset", "unknown_offset", "offset_expired", "history_unavailable")
# Possible errors of messages, wherever they are appended.
APPEND_ERRORS: Final = (
    "invalid_json",
    "too_many_messages",
    "invalid_record",
    "missing_before",
    "empty_body",
    "missing_id",
    "epoch_must_start_at_zero",
    "content_type_mismatch",
    "stream_closed",
    "duplicate_id",
    "sequence_gap",
    "too_busy",
    "quota_exceeded",
)

_CREATE_HEADERS: Final = headers.request(
    "Content-Type",
    "Stream-TTL",
    "Stream-Expires-At",
    "Stream-Closed",
    "Stream-Forked-From",
    "Stream-Fork-Offset",
    "Stream-Fork-Sub-Offset",
    "Stream-Retention-Seconds",
    "Stream-Retention-Bytes",
    "Stream-Config-Version",
    "Stream-Description",
    "Stream-Durability",
    "Stream-Unique-Ids",
    "Stream-Id-Pointer",
    "Message-Id",
)
_APPEND_HEADERS: Final = headers.request(
    "Content-Type",
    "Stream-Closed",
    "Stream-Seq",
    "Message-Id",
    "Producer-Id",
    "Producer-Epoch",
    "Producer-Seq",
)
READ_QUERY: Final = (
    Parameter("offset", "`-1` for the beginning, `now` for the end, or an offset."),
    Parameter("live", "Wait for news.", {"type": "string", "enum": ["false", "long-poll", "sse"]}),
    Parameter("cursor", "The cursor of the last answer."),
    Parameter("until", "Where to end at the latest: an offset."),
)
_SIGNED_QUERY: Final = (
    Parameter("expires", "Of a signed address: when it ends."),
    Parameter("key", "Of a signed address: on whose behalf."),
    Parameter("signature", "Of a signed address."),
)
_BULK_QUERY: Final = (
    Parameter("offset", "`-1` for the beginning, `now` for the end, or an offset."),
    Parameter("until", "Where to end at the latest: an offset."),
)
READ_ERRORS: Final = (*STREAM_ERRORS, *OFFSET_ERRORS, "invalid_query", "invalid_header")
_POSITION: Final = ("Stream-Next-Offset", "Stream-Up-To-Date", "Stream-Closed")
READ_HEADERS: Final = (
    *_POSITION,
    "Stream-Earliest-Offset",
    "Stream-Cursor",
    "ETag",
    "Stream-SSE-Data-Encoding",
)
_CREATED: Final = ("Stream-Next-Offset", "Stream-Closed")
_CONFIG: Final = (
    "Stream-TTL",
    "Stream-Expires-At",
    "Stream-Retention-Seconds",
    "Stream-Retention-Bytes",
    "Stream-Unique-Ids",
    "Stream-Id-Pointer",
    "Stream-Description",
    "Stream-Durability",
    "Stream-Config-Version",
)
_APPENDED: Final = (
    "Stream-Next-Offset",
    "Stream-Closed",
    "Stream-Duplicate-Ids",
    "Stream-Durability",
    "Producer-Epoch",
    "Producer-Seq",
)

_PUT = Route(
    "PUT",
    STREAM,
    "Create a stream, or make sure that it is as described.",
    lambda on: on.streams.put,
    {
        200: Answer(
            "It was there already. With a version, the settings are those in force.",
            (*_CREATED, *_CONFIG),
        ),
        201: Answer("The stream is new.", ("Location", *_CREATED, *_CONFIG)),
    },
    needs=Need.WRITE,
    errors=(
        "invalid_path",
        "invalid_header",
        *OFFSET_ERRORS,
        "invalid_json",
        "too_many_messages",
        "missing_id",
        "invalid_fork",
        "stream_not_found",
        "config_conflict",
        "path_reserved",
        "source_deleted",
        "content_type_mismatch",
        "duplicate_id",
        "too_busy",
        "quota_exceeded",
        "data_corrupt",
    ),
    headers=_CREATE_HEADERS,
    body={ANY_TYPE: {}},
    body_optional=True,
    holds_data=True,
)
_POST = Route(
    "POST",
    STREAM,
    "Append to a stream, close it, or both.",
    lambda on: on.streams.post,
    {
        200: Answer("Stored, for a producer.", _APPENDED),
        204: Answer("Stored or closed, or stored before.", _APPENDED),
    },
    needs=Need.WRITE,
    errors=(
        *APPEND_ERRORS,
        "invalid_path",
        "invalid_header",
        "missing_content_type",
        "stale_epoch",
        "stream_not_found",
        "stream_gone",
        "stream_seq_conflict",
        "too_many_producers",
        "data_corrupt",
    ),
    headers=_APPEND_HEADERS,
    body={ANY_TYPE: {}},
    body_optional=True,
    holds_data=True,
)
_GET = Route(
    "GET",
    STREAM,
    "Read a stream.",
    lambda on: on.streams.get,
    {
        200: Answer(
            "Data, as far as one answer goes; with `live=sse`, events.",
            READ_HEADERS,
            {ANY_TYPE: {}, EVENTS_TYPE: {}},
        ),
        204: Answer("A long-poll that ended without news.", (*_POSITION, "Stream-Cursor")),
        304: Answer("The client has this already.", (*_POSITION, "ETag")),
    },
    needs=Need.READ,
    errors=(*READ_ERRORS, "too_many_readers"),
    query=(*READ_QUERY, *_SIGNED_QUERY),
    waits=True,
    headers=headers.request("If-None-Match", "Accept-Encoding"),
)
_HEAD = Route(
    "HEAD",
    STREAM,
    "Look at a stream without reading it.",
    lambda on: on.streams.head,
    {
        200: Answer(
            "The stream is there.",
            (
                *_CREATED,
                *_CONFIG,
                "Stream-Earliest-Offset",
            ),
        )
    },
    needs=Need.READ_OR_WRITE,
    errors=STREAM_ERRORS,
)
_DELETE = Route(
    "DELETE",
    STREAM,
    "Delete a stream.",
    lambda on: on.streams.delete,
    {204: Answer("It is gone.")},
    needs=Need.DELETE,
    errors=(*STREAM_ERRORS, "invalid_query", "too_busy"),
    query=(
        Parameter("purge", "`true` keeps nothing to undelete, earlier deletions included.", FLAG),
    ),
)
_UNDELETE = Route(
    "POST",
    f"{STREAM}/_undelete",
    "Bring a deleted stream back, within its grace period.",
    lambda on: on.streams.undelete,
    {204: Answer("It is there again.", ("Stream-Next-Offset",))},
    needs=Need.DELETE_AND_WRITE,
    errors=(*STREAM_ERRORS, "undelete_conflict", "quota_exceeded", "too_busy"),
)
_CLEAR = Route(
    "POST",
    f"{STREAM}/_clear",
    "Drop all messages of a stream, and keep the stream.",
    lambda on: on.streams.clear,
    {204: Answer("They are gone.", ("Stream-Next-Offset",))},
    needs=Need.DELETE,
    errors=(*STREAM_ERRORS, "too_busy"),
)
_DETAILS = Route(
    "GET",
    f"{STREAM}/_details",
    "What the server knows about a stream.",
    lambda on: on.catalog.details,
    {200: Answer("The stream.", content={JSON_TYPE: ref("StreamDetails")})},
    needs=Need.READ,
    errors=STREAM_ERRORS,
)
_POSITION_OF = Route(
    "GET",
    f"{STREAM}/_position",
    "Where the last messages begin, or those since a moment, or how far a read gets.",
    lambda on: on.catalog.position,
    {200: Answer("The place.", content={JSON_TYPE: ref("Position")})},
    needs=Need.READ,
    errors=(*STREAM_ERRORS, *OFFSET_ERRORS, "invalid_query"),
    query=(
        Parameter("last", "A number of messages, counted from the end.", WHOLE),
        Parameter("until", "With `last`: count from this offset instead of the end."),
        Parameter("number", "The number of a message, from 0.", WHOLE),
        Parameter("at", "A moment, in milliseconds since 1970.", WHOLE),
        Parameter("offset", "Where a read begins."),
        Parameter("messages", "How many messages it takes in.", WHOLE),
        Parameter("bytes", "How many bytes it takes in.", WHOLE),
    ),
)
_SEGMENTS = Route(
    "GET",
    f"{STREAM}/_segments",
    "Ranges of a stream, to plan a read with.",
    lambda on: on.bulk.segments,
    {200: Answer("The ranges.", content={JSON_TYPE: ref("Ranges")})},
    needs=Need.READ,
    errors=READ_ERRORS,
    query=(
        *_BULK_QUERY,
        Parameter("max_bytes", "About how large a range is.", COUNT),
        Parameter("files", "`false` cuts without regard to files of history.", FLAG),
    ),
)
_BULK = Route(
    "GET",
    f"{STREAM}/_bulk",
    "Many messages with their places and times.",
    lambda on: on.bulk.bulk,
    {
        200: Answer(
            "Messages as lines of JSON, or as Arrow if the client accepts that.",
            _POSITION,
            {NDJSON_TYPE: TEXT, ARROW_TYPE: {}},
        )
    },
    needs=Need.READ,
    errors=(*READ_ERRORS, "arrow_unavailable"),
    query=(
        *_BULK_QUERY,
        Parameter("max_bytes", "About how much one answer holds.", COUNT),
        Parameter("headers", "`true` adds the producer of each message.", FLAG),
    ),
)

ROUTES: Final = (
    _PUT,
    _POST,
    _GET,
    _HEAD,
    _DELETE,
    _UNDELETE,
    _CLEAR,
    *with_head(_DETAILS),
    *with_head(_POSITION_OF),
    *with_head(_SEGMENTS),
    *with_head(_BULK),
)
