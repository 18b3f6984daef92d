"""Settings that can change: their version, and their description for people."""

from __future__ import annotations

from headwater.core.errors import InvalidHeader
from headwater.core.limits import DESCRIPTION_CHARS_MAX, VERSION_MAX
from headwater.core.numbers import whole_number


def parse_version(text: str | None) -> int | None:
    """A version of a stream's settings: a positive whole number."""
    if text is None:
        return None
    version = whole_number(text, digits_max=10)
    if version is None or not 1 <= version <= VERSION_MAX:
        raise InvalidHeader("Stream-Config-Version", f"must be a number from 1 to {VERSION_MAX}")
    return version


def parse_description(text: str | None) -> str | None:
    if text is not None and len(text) > DESCRIPTION_CHARS_MAX:
        raise InvalidHeader("Stream-Description", f"has at most {DESCRIPTION_CHARS_MAX} characters")
    return text
