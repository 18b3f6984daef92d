"""Names of headers, and those that every response carries."""

from __future__ import annotations

from typing import Final

# Requests: bytes in lower case, which is how the parser hands them over.
CONTENT_TYPE: Final = b"content-type"
ACCEPT_ENCODING: Final = b"accept-encoding"
IF_NONE_MATCH: Final = b"if-none-match"
STREAM_TTL: Final = b"stream-ttl"
STREAM_EXPIRES_AT: Final = b"stream-expires-at"
STREAM_CLOSED: Final = b"stream-closed"
STREAM_SEQ: Final = b"stream-seq"
STREAM_FORKED_FROM: Final = b"stream-forked-from"
STREAM_FORK_OFFSET: Final = b"stream-fork-offset"
STREAM_FORK_SUB_OFFSET: Final = b"stream-fork-sub-offset"
STREAM_RETENTION_SECONDS: Final = b"stream-retention-seconds"
STREAM_RETENTION_BYTES: Final = b"stream-retention-bytes"
STREAM_CONFIG_VERSION: Final = b"stream-config-version"
STREAM_DURABILITY: Final = b"stream-durability"
STREAM_DESCRIPTION: Final = b"stream-description"
STREAM_UNIQUE_IDS: Final = b"stream-unique-ids"
STREAM_ID_POINTER: Final = b"stream-id-pointer"
MESSAGE_ID: Final = b"message-id"
REQUEST_ID: Final = b"x-request-id"
PRODUCER_ID: Final = b"producer-id"
PRODUCER_EPOCH: Final = b"producer-epoch"
PRODUCER_SEQ: Final = b"producer-seq"
PRODUCER_HEADERS: Final = frozenset({PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ})

# Everything a browser may send us, for the preflight.
ALLOWED_REQUEST_HEADERS: Final = (
    "Authorization",
    "Content-Type",
    "If-None-Match",
    "Stream-TTL",
    "Stream-Expires-At",
    "Stream-Closed",
    "Stream-Seq",
    "Stream-Forked-From",
    "Stream-Fork-Offset",
    "Stream-Fork-Sub-Offset",
    "Stream-Config-Version",
    "Stream-Description",
    "Stream-Durability",
    "Stream-Retention-Seconds",
    "Stream-Retention-Bytes",
    "Stream-Unique-Ids",
    "Stream-Id-Pointer",
    "Message-Id",
    "X-Request-Id",
    "Producer-Id",
    "Producer-Epoch",
    "Producer-Seq",
)
# Everything of ours that a browser may read.
EXPOSED_RESPONSE_HEADERS: Final = (
    "ETag",
    "Location",
    "Retry-After",
    "Stream-Next-Offset",
    "Stream-Cursor",
    "Stream-Up-To-Date",
    "Stream-Closed",
    "Stream-TTL",
    "Stream-Expires-At",
    "Stream-SSE-Data-Encoding",
    "Stream-Earliest-Offset",
    "Stream-Retention-Seconds",
    "Stream-Retention-Bytes",
    "Stream-Config-Version",
    "Stream-Description",
    "Stream-Durability",
    "Stream-Unique-Ids",
    "Stream-Id-Pointer",
    "Stream-Duplicate-Ids",
    "Producer-Epoch",
    "Producer-Seq",
    "Producer-Expected-Seq",
    "Producer-Received-Seq",
    "X-Request-Id",
)
METHODS: Final = "GET, HEAD, PUT, POST, DELETE, OPTIONS"


def common_headers(origins: frozenset[str] | None) -> bytes:
    """The part of every response head that never changes."""
    lines = [
        "X-Content-Type-Options: nosniff",
        "Cross-Origin-Resource-Policy: cross-origin",
    ]
    if origins is None or origins:
        lines.append(f"Access-Control-Expose-Headers: {', '.join(EXPOSED_RESPONSE_HEADERS)}")
        lines.append("Access-Control-Allow-Origin: *" if origins is None else "Vary: Origin")
    return "".join(f"{line}\r\n" for line in lines).encode()


def preflight_headers() -> list[tuple[str, str]]:
    return [
        ("Access-Control-Allow-Methods", METHODS),
        ("Access-Control-Allow-Headers", ", ".join(ALLOWED_REQUEST_HEADERS)),
        ("Access-Control-Max-Age", "86400"),
    ]
