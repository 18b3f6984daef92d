"""Framing of updates, as in lib0.

An update is preceded by its length: seven bits per byte, the lowest first, with the high bit set if
more follow. A body is any number of whole frames, so concatenated bodies are a body too. A length
has at most 53 bits, the limit of JavaScript numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from headwater.core.errors import InvalidBody
from headwater.core.limits import KIB, MIB

INLINE_BYTES_MAX: Final = 16 * KIB
"""Larger bodies are not parsed on the event loop: a frame may be a single byte."""
_BITS_MAX: Final = 53
_HEAD_BYTES_MAX: Final = 8


class Incomplete(Exception):
    """The bytes end in the middle of a frame."""


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """The number at a position, and where it ends."""
    number = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> _BITS_MAX:
                break
            return number, at
        shift += 7
        if shift > _BITS_MAX:
            break
    else:
        raise Incomplete
    raise InvalidBody("an update has a length of more than 53 bits")


def write_number(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def frame(update: bytes) -> bytes:
    return write_number(len(update)) + update


def check_frames(body: bytes) -> None:
    """Refuse a body that is not whole frames."""
    at, end = 0, len(body)
    try:
        while at < end:
            length = body[at]
            if length < 0x80:
                at += 1
            else:
                length, at = read_number(body, at)
            at += length
    except Incomplete:
        at = end + 1
    if at != end:
        raise InvalidBody(
            "the body is not whole updates, each preceded by its length as lib0 writes it; "
            "nothing was stored"
        )


def read_frames(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Updates from `read(n)`, which returns up to n bytes, and none at the end."""
    while head := read(1):
        while head[-1] > 0x7F:
            head += _exactly(read, 1)
            if len(head) > _HEAD_BYTES_MAX:
                raise InvalidBody("an update has a length of more than 53 bits")
        length, _ = read_number(head, 0)
        yield _exactly(read, length)


def _exactly(read: Callable[[int], bytes], length: int) -> bytes:
    pieces: list[bytes] = []
    while length:
        piece = read(min(length, MIB))
        if not piece:
            raise InvalidBody("what is stored ends in the middle of an update")
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
