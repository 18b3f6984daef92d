"""Content types.

A stream keeps the content type it was created with, as sent. Two content types are the same when
their media types are, without regard to case or to parameters such as `charset`: clients add
those on their own. `application/json` switches a stream to JSON mode.
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
# A parameter section is echoed in responses, so it may hold nothing but visible ASCII and blanks.
_CONTENT_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}[ \t]*(;[\x20-\x7e\t]*)?")


@lru_cache(maxsize=1024)
def media_type(content_type: str | None) -> str:
    """The part that counts when two content types are compared; nothing for none."""
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
    """Whether a browser only shows it: nothing in it can be run, whoever wrote it.

    What is not known to be so is treated as a document that may hold scripts.
    """
    media = media_type(content_type)
    return media in _INERT or (media.startswith(_INERT_KINDS) and not media.endswith("+xml"))


def is_text(content_type: str) -> bool:
    """Whether a Server-Sent Event can carry the bytes as they are."""
    media = media_type(content_type)
    return media.startswith("text/") or media == JSON
