"""Bodies of requests that are JSON objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headwater.core.errors import InvalidBody, StreamError
from headwater.core.json_bodies import decode_body
from headwater.http.messages import Request

B = TypeVar("B")


def read_body(
    request: Request, kind: type[B], refusal: Callable[[str], StreamError] = InvalidBody
) -> B:
    return decode_body(request.body, kind, refusal)
