"""Settings that can change: their version, and the description for people."""

from __future__ import annotations

from headwater.core.errors import InvalidHeader
from headwater.core.limits import DESCRIPTION_CHARS_MAX, VERSION_MAX


def parse_version(text: str | None) -> int | None:
    """A version of a stream's settings: a positive whole number."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= VERSION_MAX:
        return int(text)
    raise InvalidHeader("Stream-Config-Version", f"must be a number from 1 to {VERSION_MAX}")


def parse_description(text: str | None) -> str | None:
    if text is not None and len(text) > DESCRIPTION_CHARS_MAX:
        raise InvalidHeader("Stream-Description", f"has at most {DESCRIPTION_CHARS_MAX} characters")
    return text
