"""Where objects end that are stored one after the other.

To find the ends of messages takes a parser, and that costs more than all else that is done with
them in bulk. Most streams hold objects and nothing else, and there a look at the brackets is
enough. Messages are stored without blanks around them (see `headwater.core.json_mode`), so between
two objects there is `},{`.

- If the first and the last message are objects, and every `,{` comes after a `}`, all of them are:
  the first object after anything else would begin with a `,{` that comes after no `}`.
- If all are objects, there is a `},{` wherever a message ends and the next begins. If there are no
  more of them, none is within a message.

Otherwise a parser has to look. It has to as well where numpy is not installed.
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import Any

_OPEN, _CLOSE, _COMMA, _LINE_END = b"{},\n"


def sizes(stored: bytes, messages: int) -> array[int] | None:
    """How long each of so many messages is; None if a parser has to look."""
    starts = _starts(stored, messages)
    if starts is None:
        return None
    with_commas = _numpy().diff(starts, append=len(stored))
    return array("i", (with_commas - 1).astype("i4").tobytes())


def as_lines(stored: bytes, messages: int) -> bytearray | None:
    """The messages with a line end after each instead of a comma; None if a parser has to look."""
    starts = _starts(stored, messages)
    if starts is None:
        return None
    lines = bytearray(stored)
    _numpy().frombuffer(lines, "u1")[starts - 1] = _LINE_END
    return lines


def _starts(stored: bytes, messages: int) -> Any:
    """Where each message begins."""
    numpy = _numpy()
    if numpy is None or not (stored.startswith(b"{") and stored.endswith(b"},")):
        return None
    text = numpy.frombuffer(stored, "u1")
    starts = numpy.flatnonzero(text == _OPEN)[1:]
    starts = starts[text[starts - 1] == _COMMA]
    if len(starts) != messages - 1 or (text[starts - 2] != _CLOSE).any():
        return None
    return numpy.concatenate(([0], starts))


@cache
def _numpy() -> Any:
    """A large library that Spark brings along; a server can do without."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy
