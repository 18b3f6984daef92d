"""The request that the server is asked to make, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from headwater.core.errors import InvalidHeader
from headwater.core.responses.allow_list import parse_upstream_url
from headwater.core.responses.errors import (
    InvalidUpstreamMethod,
    MissingUpstreamMethod,
    MissingUpstreamUrl,
)
from headwater.core.responses.forwarding import forwarded
from headwater.core.targets import Target

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


class UpstreamRequest(msgspec.Struct, frozen=True):
    target: Target
    method: str
    headers: list[tuple[str, str]]
    body: bytes


class Opened(msgspec.Struct, frozen=True):
    """A response that has begun to arrive."""

    id: str
    content_type: str
    expires_s: int
    signature: str


class Refused(msgspec.Struct, frozen=True):
    """The upstream answered with an error."""

    status: int
    content_type: str
    body: bytes


def parse_request(headers: Mapping[bytes, bytes], body: bytes) -> UpstreamRequest:
    """The request that a caller's headers describe."""
    url = _text(headers, b"upstream-url")
    if not url:
        raise MissingUpstreamUrl
    method = _text(headers, b"upstream-method").upper()
    if not method:
        raise MissingUpstreamMethod
    if method not in METHODS:
        raise InvalidUpstreamMethod(", ".join(METHODS))
    return UpstreamRequest(parse_upstream_url(url), method, forwarded(headers), body)


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    try:
        return headers.get(name, b"").strip().decode("ascii")
    except UnicodeDecodeError:
        raise InvalidHeader(name.decode(), "must be plain ASCII") from None
