"""JSON bodies that the server interprets: settings, commands, reports.

A body has the expected type or is refused; no parser error gets past this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from headwater.core.errors import InvalidBody, StreamError

B = TypeVar("B")


def decode_body(
    body: bytes, kind: type[B], refusal: Callable[[str], StreamError] = InvalidBody
) -> B:
    """Decode a body as a type."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise refusal(f"the body is invalid: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise refusal("send a JSON object") from None
    except RecursionError:
        raise refusal("the body is nested too deeply") from None
