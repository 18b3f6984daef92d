"""Answers that many resources give."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headwater.core.content_types import JSON, is_inert
from headwater.http.messages import Headers, Response

NO_STORE: Final = ("Cache-Control", "no-store")
JSON_HEADERS: Final[Headers] = [("Content-Type", JSON), NO_STORE]
JSON_LINES: Final = "".join([f"{name}: {value}\r\n" for name, value in JSON_HEADERS]).encode()
EVENTS_TYPE: Final = "text/event-stream"
FEED_TYPE: Final = "application/vnd.headwater.feed"
EVENT_HEADERS: Final[Headers] = [
    ("Content-Type", EVENTS_TYPE),
    ("Cache-Control", "no-cache"),
    # Proxies that understand this pass events on immediately.
    ("X-Accel-Buffering", "no"),
]
# Stored markup must not run scripts, and must not share the origin of the console.
_SANDBOX: Final = ("Content-Security-Policy", "sandbox; default-src 'none'")


def stored(content_type: str) -> Headers:
    """Headers for stored content: its type, and what browsers may do with it."""
    described = [("Content-Type", content_type)]
    return described if is_inert(content_type) else [*described, _SANDBOX]


def json_answer(value: Any, status: int = 200) -> Response:
    return Response(status, list(JSON_HEADERS), msgspec.json.encode(value))


def encoded_json(body: bytes) -> Response:
    """The same for a value that is encoded already, for frequent answers."""
    return Response(200, body=body, lines=JSON_LINES)


def done() -> Response:
    """Success, with nothing to say."""
    return Response(204, [NO_STORE])
