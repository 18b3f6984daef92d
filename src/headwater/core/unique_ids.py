"""Unique message ids: a stream that takes each message once.

A stream created with `Stream-Unique-Ids` needs an id for every message: from the header
`Message-Id` when the append is a single message, or from inside each JSON message, where
`Stream-Id-Pointer` (RFC 6901) points. An id is a string or a whole number; `7` and `"7"` are one
id. A message whose id is already in the stream, or earlier in the same append, is a duplicate:

- `fail`: the append is refused as a whole, with the duplicates named;
- `succeed`: the duplicates are left out, the rest is stored, and the answer counts them.

Other streams accept a `Message-Id` too. It is stored and returned with its message, and never
compared.

A fork knows the ids of what it inherits. A producer's duplicate is recognised before ids are
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from headwater.core.errors import InvalidHeader, MissingId
from headwater.core.limits import MESSAGE_ID_CHARS_MAX, POINTER_CHARS_MAX
from headwater.core.pointers import pointer_steps, value_at

Mode = Literal["fail", "succeed"]
_MODES: Final[dict[str, Mode]] = {"fail": "fail", "succeed": "succeed"}
_id: Final = msgspec.json.Decoder(str | int)


@dataclass(frozen=True, slots=True)
class UniqueIds:
    """How a stream checks ids. Fixed when the stream is created."""

    mode: Mode
    pointer: str | None = None


def parse_unique_ids(mode: str | None, pointer: str | None) -> UniqueIds | None:
    if mode is None:
        if pointer is not None:
            raise InvalidHeader("Stream-Id-Pointer", "needs Stream-Unique-Ids: fail or succeed")
        return None
    known = _MODES.get(mode.strip().lower())
    if known is None:
        raise InvalidHeader("Stream-Unique-Ids", "must be fail or succeed")
    if pointer is not None and (not pointer.startswith("/") or len(pointer) > POINTER_CHARS_MAX):
        raise InvalidHeader("Stream-Id-Pointer", "must be a JSON pointer, e.g. /id")
    return UniqueIds(known, pointer)


def find_ids(pointer: str, messages: Sequence[bytes]) -> list[str]:
    """The id of each JSON message, in order."""
    steps = pointer_steps(pointer)
    return [_checked(id_at(message, steps), index) for index, message in enumerate(messages)]


def check_id(header_id: str | None, count: int) -> str:
    """The id that a header gives to the only message of an append."""
    if header_id is None:
        raise MissingId("this stream checks message ids: send a Message-Id header", 0)
    if count != 1:
        raise MissingId(
            "a Message-Id header names a single message; send one message at a time, or create "
            "the stream with Stream-Id-Pointer",
            1,
        )
    return _checked(header_id, 0)


def _checked(value: object, index: int) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 1 <= len(value) <= MESSAGE_ID_CHARS_MAX:
        raise MissingId(
            f"message {index} has no id: it must be a string of 1 to {MESSAGE_ID_CHARS_MAX} "
            "characters or a whole number",
            index,
        )
    return value


def split_new(ids: Sequence[str], is_known: Callable[[str], bool]) -> tuple[list[int], list[str]]:
    """The indexes of new messages, and the ids of the others."""
    seen: set[str] = set()
    new: list[int] = []
    duplicates: list[str] = []
    for index, message_id in enumerate(ids):
        if message_id in seen or is_known(message_id):
            duplicates.append(message_id)
        else:
            seen.add(message_id)
            new.append(index)
    return new, duplicates


def id_at(message: bytes, steps: Sequence[str]) -> str | int | None:
    """The id inside a message, if it is a valid one."""
    found = value_at(message, steps)
    try:
        return None if found is None else _id.decode(found)
    except (msgspec.DecodeError, RecursionError):
        return None
