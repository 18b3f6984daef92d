"""Headers by name: what they mean, for requests and for responses."""

from __future__ import annotations

from typing import Final

from headwater.core import limits
from headwater.core.responses.upstream import METHODS
from headwater.http.routes.route import COUNT, FLAG, TEXT, WHOLE, Parameter, Schema, whole

_DIGITS: Final[Schema] = whole(0, limits.PRODUCER_NUMBER_MAX)


def _short(most: int, least: int = 0) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most}


REQUEST: Final = {
    parameter.name: parameter
    for parameter in (
        Parameter("Content-Type", "The type of the stream."),
        Parameter(
            "Stream-TTL", "Seconds without use before removal.", whole(0, limits.TTL_SECONDS_MAX)
        ),
        Parameter(
            "Stream-Expires-At", "The moment of removal.", {"type": "string", "format": "date-time"}
        ),
        Parameter("Stream-Closed", "Closes the stream.", FLAG),
        Parameter("Stream-Forked-From", "The source of a fork."),
        Parameter("Stream-Fork-Offset", "Where the fork begins."),
        Parameter("Stream-Fork-Sub-Offset", "How far into the next append.", WHOLE),
        Parameter("Stream-Retention-Seconds", "How long appends are kept.", COUNT),
        Parameter("Stream-Retention-Bytes", "How much is kept.", COUNT),
        Parameter(
            "Stream-Config-Version", "The version of the settings.", whole(1, limits.VERSION_MAX)
        ),
        Parameter(
            "Stream-Durability",
            "When appends are acknowledged.",
            {"type": "string", "enum": ["synced", "relaxed"]},
        ),
        Parameter("Stream-Description", "What it is for.", _short(limits.DESCRIPTION_CHARS_MAX)),
        Parameter(
            "Stream-Unique-Ids",
            "Take each message once.",
            {"type": "string", "enum": ["fail", "succeed"]},
        ),
        Parameter(
            "Stream-Id-Pointer",
            "Where the id is inside a JSON message.",
            _short(limits.POINTER_CHARS_MAX),
        ),
        Parameter(
            "Message-Id", "The id of a single message.", _short(limits.MESSAGE_ID_CHARS_MAX, 1)
        ),
        Parameter(
            "Stream-Seq", "Must sort after the last one.", _short(limits.STREAM_SEQ_CHARS_MAX)
        ),
        Parameter("Producer-Id", "The producer.", _short(limits.PRODUCER_ID_CHARS_MAX, 1)),
        Parameter("Producer-Epoch", "Grows with every start of the producer.", _DIGITS),
        Parameter("Producer-Seq", "Numbers the requests of an epoch.", _DIGITS),
        Parameter("Upstream-URL", "The address to fetch."),
        Parameter(
            "Upstream-Method", "The method to use.", {"type": "string", "enum": list(METHODS)}
        ),
        Parameter("Upstream-Authorization", "Sent on as `Authorization`."),
        Parameter("If-None-Match", "ETags that the client has."),
        Parameter("Accept-Encoding", "Encodings that the client reads."),
        Parameter("X-Request-Id", "A name for this request in the server's log."),
        Parameter("Authorization", "A key or token: `Bearer …`."),
    )
}

RESPONSE: Final[dict[str, str]] = {
    "Location": "The URL of the new stream.",
    "Stream-Next-Offset": "Where the read ended, or the end of the stream.",
    "Stream-Up-To-Date": "`true` when the read reaches the end of the stream.",
    "Stream-Closed": "`true` on a closed stream; on a read, only if it reaches the end.",
    "Stream-Close-Reason": "Why a response ended that is not complete.",
    "Stream-Cursor": "The cursor for the next request.",
    "Stream-TTL": "The TTL of the stream.",
    "Stream-Expires-At": "The expiry of the stream, as it was given.",
    "Stream-Retention-Seconds": "How long appends are kept.",
    "Stream-Retention-Bytes": "How much is kept.",
    "Stream-Earliest-Offset": "Where what is kept begins.",
    "Stream-SSE-Data-Encoding": "`base64` when `data` events are encoded so.",
    "Stream-Duplicate-Ids": "Messages left out because the stream holds their ids.",
    "Stream-Config-Version": "The version of the settings.",
    "Stream-Description": "What it is for.",
    "Stream-Durability": "When appends are acknowledged; `relaxed`: before their commit.",
    "Stream-Unique-Ids": "How duplicates are answered: `fail` or `succeed`.",
    "Stream-Id-Pointer": "Where the id is inside a JSON message.",
    "Producer-Epoch": "The producer's current epoch.",
    "Producer-Seq": "The highest sequence stored.",
    "Producer-Expected-Seq": "The sequence that comes next.",
    "Producer-Received-Seq": "The sequence that was sent.",
    "Upstream-Content-Type": "The content type that the upstream gave.",
    "Upstream-Status": "The status of an upstream that refused.",
    "ETag": "Names this very content.",
    "Link": "Of an error: the page about its code.",
    "Retry-After": "Seconds to wait before trying again.",
    "X-Request-Id": "The name that the client gave, or one that was made for a failure.",
}
RESPONSE_SCHEMA: Final[Schema] = TEXT


def request(*names: str) -> tuple[Parameter, ...]:
    return tuple(REQUEST[name] for name in names)
