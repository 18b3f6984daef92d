"""Content types.

A stream keeps the content type it was created with, as sent. Two content types are equal when their
media types are, ignoring case and parameters such as `charset`, which clients add on their own.
`application/json` switches a stream to JSON mode.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from headwater.core.errors import InvalidHeader
from headwater.core.limits import CONTENT_TYPE_CHARS_MAX

DEFAULT: Final = "application/octet-stream"
JSON: Final = "application/json"

_INERT: Final = frozenset({JSON, DEFAULT, "text/plain", "text/csv", "application/x-ndjson"})
_INERT_KINDS: Final = ("image/", "audio/", "video/")

_TOKEN = r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+"
# Parameters are echoed in responses, so they may hold only visible ASCII and blanks.
_CONTENT_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}[ \t]*(;[\x20-\x7e\t]*)?")


@lru_cache(maxsize=1024)
def media_type(content_type: str | None) -> str:
    """The part that is compared; empty for None."""
    return (content_type or "").partition(";")[0].strip().lower()


def is_same(one: str, other: str) -> bool:
    return media_type(one) == media_type(other)


@lru_cache(maxsize=1024)
def check_content_type(value: str) -> str:
    if len(value) > CONTENT_TYPE_CHARS_MAX or _CONTENT_TYPE.fullmatch(value) is None:
        raise InvalidHeader("Content-Type", "must look like type/subtype, e.g. application/json")
    return value


def is_json(content_type: str | None) -> bool:
    return media_type(content_type) == JSON


@lru_cache(maxsize=1024)
def is_inert(content_type: str) -> bool:
    """Whether a browser only displays it and can run nothing in it, whoever wrote it.

    Unknown types are treated as documents that may contain scripts.
    """
    media = media_type(content_type)
    return media in _INERT or (media.startswith(_INERT_KINDS) and not media.endswith("+xml"))


def is_text(content_type: str) -> bool:
    """Whether a Server-Sent Event can carry the bytes as they are."""
    media = media_type(content_type)
    return media.startswith("text/") or media == JSON
