"""Answers that many resources give."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headwater.core.content_types import JSON, is_inert
from headwater.http.messages import Headers, Response

NO_STORE: Final = ("Cache-Control", "no-store")
JSON_HEADERS: Final[Headers] = [("Content-Type", JSON), NO_STORE]
EVENTS_TYPE: Final = "text/event-stream"
EVENT_HEADERS: Final[Headers] = [
    ("Content-Type", EVENTS_TYPE),
    ("Cache-Control", "no-cache"),
    # Proxies that understand this pass events on as they come.
    ("X-Accel-Buffering", "no"),
]
# Stored markup runs nothing, and is of no origin: least of all that of the console.
_SANDBOX: Final = ("Content-Security-Policy", "sandbox; default-src 'none'")


def stored(content_type: str) -> Headers:
    """The headers of what somebody stored here: its type, and what browsers may do with it."""
    described = [("Content-Type", content_type)]
    return described if is_inert(content_type) else [*described, _SANDBOX]


def json_answer(value: Any, status: int = 200) -> Response:
    return Response(status, list(JSON_HEADERS), msgspec.json.encode(value))


def done() -> Response:
    """There is nothing to say but that it is done."""
    return Response(204, [NO_STORE])
