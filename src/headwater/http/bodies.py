"""Bodies of requests that are JSON objects."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from headwater.core.errors import InvalidBody
from headwater.http.messages import Request

B = TypeVar("B")


def read_body(request: Request, kind: type[B]) -> B:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidBody(f"the body does not fit: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidBody("send a JSON object") from None
