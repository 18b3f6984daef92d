"""What a message is ordered by: the value that `order_by`, a JSON pointer, leads to in it.

Two messages have the same key when the values are the same apart from spaces, escapes and the order
of members. A value that no parser can hold, such as `1e400`, is compared by its text. A message has
no key, and waits for no other, when the pointer leads to nothing or to null, or when the message
cannot be taken apart because it is nested too deeply. A key that is long counts by its hash, so
that a key costs little whatever is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

_KEY_BYTES_MAX: Final = 128
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


def key_of(message: bytes, steps: Sequence[str]) -> str | None:
    """The key of a JSON message; `steps` are the parts of the pointer."""
    try:
        value = _value_at(message, steps)
    except (msgspec.DecodeError, RecursionError):
        return None
    if value is None:
        return None
    text = _canonical(value)
    if text == b"null":
        return None
    return text.decode() if len(text) <= _KEY_BYTES_MAX else sha256(text).hexdigest()


def _value_at(message: bytes, steps: Sequence[str]) -> bytes | None:
    """What the pointer leads to, as it was sent. Nothing else in the message is looked at."""
    value = message
    for step in steps:
        value = value.lstrip(b" \t\r\n")
        if value.startswith(b"{"):
            found = _object.decode(value).get(step)
        elif value.startswith(b"[") and step.isascii() and step.isdigit():
            items = _array.decode(value)
            found = items[int(step)] if int(step) < len(items) else None
        else:
            return None
        if found is None:
            return None
        value = bytes(found)
    return value


def _canonical(value: bytes) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(value), order="deterministic")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return value.strip()
