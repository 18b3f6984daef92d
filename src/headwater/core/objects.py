"""Where stored objects end.

Finding the ends of messages takes a parser, which costs more than all other bulk work on them. Most
streams hold only objects, and there the brackets are enough. Messages are stored without blanks
around them (see `headwater.core.json_mode`), so between two objects there is `},{`.

- If the first and the last message are objects, and every `,{` comes after a `}`, all of them are
  objects: the first object after anything else would begin with a `,{` that does not come after a
  `}`.
- If all are objects, there is a `},{` wherever a message ends and the next begins. If there are no
  more of them, none is inside a message.

Otherwise, and where numpy is not installed, a parser has to do it.
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import Any

_OPEN, _CLOSE, _COMMA, _LINE_END = b"{},\n"


def sizes(stored: bytes, messages: int) -> array[int] | None:
    """The length of each message; None if a parser is needed."""
    starts = _starts(stored, messages)
    if starts is None:
        return None
    with_commas = _numpy().diff(starts, append=len(stored))
    return array("i", (with_commas - 1).astype("i4").tobytes())


def as_lines(stored: bytes, messages: int) -> bytearray | None:
    """The messages with a line feed after each instead of a comma; None if a parser is needed."""
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
    """A large library that Spark depends on; a server works without it."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy
