"""What settings of several concerns share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# More than any number of bytes or things, and what JSON and every engine can hold.
NUMBER_MAX: Final = 2**53 - 1
_WORDS: Final = {
    "extra_forbidden": "no such setting",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_from_float": "must be a whole number",
    "int_type": "must be a whole number",
    "finite_number": "must be a whole number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_unicode": "has bytes that are no text",
    "path_type": "must be the path of a file or directory",
    "value_error": "{error}",
}


def explained(detail: ErrorDetails) -> str:
    """What is wrong with a setting, in a sentence that names it."""
    words = _WORDS.get(detail["type"], detail["msg"]).format_map(detail.get("ctx", {}))
    where = ".".join(map(str, detail["loc"]))
    # What is wrong with several together says itself which.
    return f"{where}: {words}" if where else words


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
