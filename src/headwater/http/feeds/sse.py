"""Server-Sent Events: the encoding of chunks, and nothing else.

Each `data` event is followed by exactly one `control` event that says where the reader is. Text and
JSON are sent as they are, every line on its own `data:` line, so that no payload can forge an
event; everything else is sent in base64.
"""

from __future__ import annotations

import re
from base64 import b64encode

import msgspec

from headwater.core import content_types, json_mode
from headwater.core.stream import StreamConfig

_LINE_END = re.compile(rb"\r\n|\r|\n")
KEEP_ALIVE = b": keep-alive\n\n"


def needs_base64(config: StreamConfig) -> bool:
    return not content_types.is_text(config.content_type)


def data_event(config: StreamConfig, bodies: list[bytes]) -> bytes:
    stored = b"".join(bodies)
    if config.is_json:
        return _event(b"data", json_mode.as_array(stored))
    if needs_base64(config):
        return _event(b"data", b64encode(stored))
    return _event(b"data", stored)


def control_event(
    next_offset: str, cursor: int, *, up_to_date: bool, closed: bool, reason: str | None = None
) -> bytes:
    fields: dict[str, str | bool] = {"streamNextOffset": next_offset}
    if not closed:
        fields["streamCursor"] = str(cursor)
    if up_to_date:
        fields["upToDate"] = True
    if closed:
        fields["streamClosed"] = True
        if reason is not None:
            fields["streamCloseReason"] = reason
    return _event(b"control", msgspec.json.encode(fields))


def deleted_event(next_offset: str) -> bytes:
    return _event(b"deleted", msgspec.json.encode({"streamNextOffset": next_offset}))


def stream_event(path: str, config: StreamConfig) -> bytes:
    """Names the stream of the next events, on a connection that several streams share."""
    fields = {"stream": path, "contentType": config.content_type}
    if needs_base64(config):
        fields["encoding"] = "base64"
    return _event(b"stream", msgspec.json.encode(fields))


def failed_event(path: str, code: str, message: str) -> bytes:
    """Why a stream is not followed, on a connection that several share."""
    fields = {"stream": path, "error": {"code": code, "message": message}}
    return _event(b"failed", msgspec.json.encode(fields))


def message_event(message: bytes) -> bytes:
    """A message for a member of a group."""
    return _event(b"message", message)


def _event(kind: bytes, data: bytes) -> bytes:
    lines = b"".join([_data_line(line) for line in _LINE_END.split(data)])
    return b"event: %b\n%b\n" % (kind, lines)


def _data_line(line: bytes) -> bytes:
    # Readers strip one space after the colon; a space that belongs to the data must survive.
    return b"data: %b\n" % line if line.startswith(b" ") else b"data:%b\n" % line
