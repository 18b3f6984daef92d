"""JSON bodies that the server interprets: settings, commands, reports.

A body has the expected type or is refused; no parser error gets past this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from headwater.core.errors import InvalidBody, StreamError

B = TypeVar("B")


def decode_body(
    body: bytes, kind: type[B], refusal: Callable[[str], StreamError] = InvalidBody
) -> B:
    """Decode a body as a type."""
    try:
        return msgspec.json.decode(body, type=kind)
    except _PROBLEMS as error:
        raise refusal(_reason(error)) from None


def decode_with(decoder: msgspec.json.Decoder[B], body: bytes) -> B:
    """The same with a decoder that was made before, for frequent requests."""
    try:
        return decoder.decode(body)
    except _PROBLEMS as error:
        raise InvalidBody(_reason(error)) from None


_PROBLEMS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _reason(error: Exception) -> str:
    if isinstance(error, msgspec.ValidationError):
        return f"the body is invalid: {error}"
    if isinstance(error, RecursionError):
        return "the body is nested too deeply"
    return "send a JSON object"
