"""The ordering key of a message: the value that `order_by`, a JSON pointer, selects.

Two messages have the same key when the values are equal apart from spaces, escapes and the order of
members. A value that no parser can hold, such as `1e400`, is compared by its text. A message has no
key, and is never blocked, when the pointer selects nothing or null, or when the message is nested
too deeply to parse. A long key is replaced by its hash, so that a key costs little whatever is
sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from headwater.core.pointers import value_at

_KEY_BYTES_MAX: Final = 128


def key_of(message: bytes, steps: Sequence[str]) -> str | None:
    """The key of a JSON message; `steps` are the parts of the pointer."""
    value = value_at(message, steps)
    if value is None:
        return None
    text = _canonical(value)
    if text == b"null":
        return None
    return text.decode() if len(text) <= _KEY_BYTES_MAX else sha256(text).hexdigest()


def _canonical(value: bytes) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(value), order="deterministic")
    except (msgspec.DecodeError, RecursionError, ValueError):
        return value.strip()
