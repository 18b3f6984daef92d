"""What paced writers write: JSON messages, or updates of a Yjs document; each carries a mark.

The updates are real: each inserts text at the beginning of a document, and a document with
thousands of them can be loaded and compacted. Servers send binary streams as base64. The lengths of
the mark and of every update are multiples of three, so a mark looks the same in base64 wherever it
is.
"""

from base64 import b64encode
from binascii import a2b_base64
from typing import Protocol

from benchmarks.load.http import JSON
from benchmarks.load.sse import BY_UNTIL, MARK_START, PLAIN_MARK, Mark, marked_message

OCTET_STREAM = "application/octet-stream"
BASE64_MARK = Mark(b64encode(MARK_START), len(b64encode(bytes(BY_UNTIL))), a2b_base64)

_TEXT_FROM = 16
_MARK_FROM = 18
_INSERTS_TEXT = b"\x04\x01\x01t"  # the kind of content, and the name of the text that contains it
_DELETES_NOTHING = b"\x00"


class Messages(Protocol):
    """The messages of one writer."""

    def write(self, at_ns: int) -> bytes: ...


class JsonMessages:
    content_type, mark = JSON, PLAIN_MARK

    def __init__(self, author: bytes, size: int) -> None:
        self._before, self._after = marked_message(author, size)

    def write(self, at_ns: int) -> bytes:
        return self._before + b"%019d" % at_ns + self._after


class Updates:
    content_type, mark = OCTET_STREAM, BASE64_MARK

    def __init__(self, author: bytes, size: int) -> None:
        if size % 3 or not BY_UNTIL + _MARK_FROM < size <= 128:
            raise ValueError(f"an update of {size} bytes has no room for a mark, or too much")
        before, after = marked_message(author, size - _MARK_FROM)
        self._length = size - _TEXT_FROM - len(_DELETES_NOTHING)
        self._head = bytes([size - 1, 1, 1]) + _number(1 + int(author))
        self._before = _INSERTS_TEXT + bytes([self._length]) + b"__" + before[1:]
        self._after = after + _DELETES_NOTHING
        self._clock = 0

    def write(self, at_ns: int) -> bytes:
        clock = _number(self._clock)
        self._clock += self._length
        return self._head + clock + self._before + b"%019d" % at_ns + self._after


def _number(value: int) -> bytes:
    """A variable-length number, always in four bytes."""
    return bytes([value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21])
