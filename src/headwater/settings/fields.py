"""What settings of several concerns share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator


def parsed_by(parse: Callable[[str], Any]) -> AfterValidator:
    """Keep the text of a setting, if `parse` accepts it."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


def web_address(text: str) -> SplitResult | None:
    """The parts of an http or https URL, or None if that is not what the text is."""
    with suppress(ValueError):
        address = urlsplit(text)
        _ = address.port
        if address.scheme in ("http", "https") and address.hostname:
            return address
    return None
