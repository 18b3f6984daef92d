"""Request targets: from the bytes on the request line to a path."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

import httptools

from headwater.core.errors import InvalidPath

STREAM_ROOT: Final = b"/v1/stream/"
STREAM_ALIAS: Final = b"/v1/streams/"
"""The same, for clients of the public proxy package."""
DOCUMENTS_ROOT: Final = b"/v1/yjs/"
SUBSCRIPTIONS_ROOT: Final = b"/v1/stream/__ds/"
PROXY_ROOT: Final = b"/v1/proxy/"
PROBES: Final = ("/healthz", "/readyz")
"""Answered without rate limits, however full the server is."""
PROBE_TARGETS: Final = frozenset(path.encode() for path in PROBES)


def decode_path(raw: bytes) -> str:
    """Undo percent-encoding, segment by segment, so that an encoded slash is not a separator."""
    try:
        if b"%" not in raw:
            return raw.decode("ascii")
        segments = [unquote_to_bytes(segment).decode("utf-8") for segment in raw.split(b"/")]
    except UnicodeDecodeError:
        raise InvalidPath("the path is not valid percent-encoded UTF-8") from None
    if any("/" in segment for segment in segments):
        raise InvalidPath("a path segment cannot contain an encoded slash")
    return "/".join(segments)


def decode_segments(raw: bytes) -> list[str]:
    """The segments of a path, where an encoded slash is part of one."""
    try:
        return [unquote_to_bytes(segment).decode("utf-8") for segment in raw.split(b"/")]
    except UnicodeDecodeError:
        raise InvalidPath("the path is not valid percent-encoded UTF-8") from None


def origin_form(target: bytes) -> bytes:
    """The path of a target; proxies send the whole URL."""
    if target.startswith(b"/"):
        return target
    try:
        return httptools.parse_url(target).path or b"/"
    except httptools.HttpParserInvalidURLError:
        raise InvalidPath("the request target is not a path") from None
