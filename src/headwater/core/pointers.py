"""JSON pointers (RFC 6901) into messages.

A message is parsed only along the pointer. So the rest of it does not matter, such as a number that
no parser can hold or very deep nesting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])
_INDEX_DIGITS_MAX: Final = 15


def pointer_steps(pointer: str) -> list[str]:
    """Split a pointer."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def value_at(message: bytes, steps: Sequence[str]) -> bytes | None:
    """The value a pointer selects in a JSON message, as it was sent; None if there is none."""
    value = message
    try:
        for step in steps:
            found = _member(value.lstrip(b" \t\r\n"), step)
            if found is None:
                return None
            value = bytes(found)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value


def _member(value: bytes, step: str) -> msgspec.Raw | None:
    if value.startswith(b"{"):
        return _object.decode(value).get(step)
    if value.startswith(b"[") and step.isascii() and step.isdigit():
        items = _array.decode(value)
        is_there = len(step) <= _INDEX_DIGITS_MAX and int(step) < len(items)
        return items[int(step)] if is_there else None
    return None
