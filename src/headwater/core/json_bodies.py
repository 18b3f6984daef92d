"""Bodies that are JSON and mean something to the server: settings, commands, reports.

Whatever is sent, it is what was expected or it is refused; nothing that a parser may say gets any
further than here.
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
    """The body as an object of a kind."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise refusal(f"the body is invalid: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise refusal("send a JSON object") from None
    except RecursionError:
        raise refusal("the body is nested too deeply") from None
