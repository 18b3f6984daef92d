"""Request targets: from the bytes on the request line to a path."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

import httptools

from headwater.core.errors import InvalidPath
from headwater.core.limits import PATH_BYTES_MAX

STREAM_ROOT: Final = b"/v1/stream/"
STREAM_ALIAS: Final = b"/v1/streams/"
"""The same, for clients of the public proxy package."""
DOCUMENTS_ROOT: Final = b"/v1/yjs/"
SUBSCRIPTIONS_ROOT: Final = b"/v1/stream/__ds/"
PROXY_ROOT: Final = b"/v1/proxy/"
PROBES: Final = ("/healthz", "/readyz")
"""Answered without rate limits, however full the server is."""
TARGET_BYTES_MAX: Final = 3 * 2 * PATH_BYTES_MAX
"""The longest stream path and as much again after it, fully percent-encoded."""
_ENCODED_SLASH: Final = b"%2f"
PROBE_TARGETS: Final = frozenset(path.encode() for path in PROBES)


def decode_path(raw: bytes) -> str:
    """Undo percent-encoding; an encoded slash is not a separator, and is not allowed in a path."""
    try:
        if b"%" not in raw:
            return raw.decode("ascii")
        path = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidPath("the path is not valid percent-encoded UTF-8") from None
    if _ENCODED_SLASH in raw.lower():
        raise InvalidPath("a path segment cannot contain an encoded slash")
    return path


def decode_segments(raw: bytes) -> list[str]:
    """The segments of a path, where an encoded slash is part of one."""
    try:
        if _ENCODED_SLASH not in raw.lower():
            return unquote_to_bytes(raw).decode("utf-8").split("/")
        return [unquote_to_bytes(segment).decode("utf-8") for segment in raw.split(b"/")]
    except UnicodeDecodeError:
        raise InvalidPath("the path is not valid percent-encoded UTF-8") from None


def origin_form(target: bytes) -> bytes:
    """The path of a target; proxies send the full URL."""
    if target.startswith(b"/"):
        return target
    try:
        return httptools.parse_url(target).path or b"/"
    except httptools.HttpParserInvalidURLError:
        raise InvalidPath("the request target is not a path") from None
