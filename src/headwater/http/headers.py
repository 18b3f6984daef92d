"""Names of request headers: lower-case bytes, as the parser returns them."""

from __future__ import annotations

from typing import Final

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
