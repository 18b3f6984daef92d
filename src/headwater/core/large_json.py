"""Large JSON arrays, cut into pieces that are arrays themselves.

The parser blocks other threads while it works and makes an object of each message, so it gets a
large array one piece at a time. A cut is correct exactly if the piece before it is valid: then its
brackets and strings are closed, and the comma at its end separates two messages.

So a cut can be guessed, and the parser confirms it: a comma before bytes that begin like the
message at the start of the piece. If messages do not resemble each other, the rest of the array is
surveyed instead, window by window. Each window is reduced to its structural characters, and those
to the ones outside strings. The first comma after a window that separates two messages, if it is
near, is a cut. For valid input, the survey is exact.
"""

from __future__ import annotations

import re
from array import array
from codecs import getincrementaldecoder
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Final

from headwater.core.errors import InvalidJson
from headwater.core.limits import KIB

WINDOW_BYTES: Final = 128 * KIB
_STRUCTURE: Final = b'",[]{}'
_NO_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in _STRUCTURE)
_STEPS: Final = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]', re.DOTALL)
_REST_OF_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BLANKS: Final = b" \t\r\n"
_BLANKS_MAX: Final = 64
_OPENING: Final = re.compile(rb"[ \t\r\n]{0,64}+([^ \t\r\n].{0,11})", re.DOTALL)
_ALIKE_BYTES: Final = (12, 6, 1)
_NEAR_LOOKS: Final = 64
_NEAR_BYTES: Final = 16 * KIB
_NEAR_TOKENS: Final = 1_000


def check_utf8(body: bytes) -> None:
    """Refuse a body that is not UTF-8, without copying a large one."""
    if body.isascii():
        return
    decoder = getincrementaldecoder("utf-8")()
    for start in range(0, len(body), WINDOW_BYTES):
        begun = len(decoder.getstate()[0])
        last = start + WINDOW_BYTES >= len(body)
        try:
            decoder.decode(body[start : start + WINDOW_BYTES], last)
        except UnicodeDecodeError as error:
            place = start - begun + error.start
            raise InvalidJson(f"the body is not valid UTF-8 (byte {place})") from None


def guesses(body: bytes, start: int, window_bytes: int = WINDOW_BYTES) -> Iterator[int]:
    """Places about one window after a bracket or comma that may separate two messages."""
    near = start + window_bytes
    opening = _OPENING.match(body, start + 1)
    if opening is None:
        return
    for length in _ALIKE_BYTES:
        alike = opening.group(1)[:length]
        place = body.find(alike, near, near + _NEAR_BYTES)
        for _ in range(_NEAR_LOOKS):
            if place < 0:
                break
            low = max(start + 1, place - _BLANKS_MAX)
            before = body[low:place].rstrip(_BLANKS)
            if before.endswith(b","):
                yield low + len(before) - 1
                break
            place = body.find(alike, place + 1, near + _NEAR_BYTES)


def survey(body: bytes, window_bytes: int = WINDOW_BYTES) -> list[int]:
    """The positions of commas between messages, ascending, about one window apart.

    The text begins with the bracket of an array.
    """
    cuts: list[int] = []
    depth, in_string, escaped = 0, 0, False
    for start in range(0, len(body), window_bytes):
        window = body[start + escaped : start + window_bytes]
        if b"\\" in window:
            window = _ESCAPE.sub(b"", window)
            escaped = window.endswith(b"\\")
        else:
            escaped = False
        parts = window.translate(None, _NO_STRUCTURE).split(b'"')
        outside = b"".join(parts[in_string::2])
        in_string ^= (len(parts) - 1) & 1
        depth += sum(array("b", outside.translate(_STEPS, b",")))
        cut = _cut_near(body, start + window_bytes + escaped, depth, in_string=bool(in_string))
        if cut is not None and cut > (cuts[-1] if cuts else 0):
            cuts.append(cut)
    return cuts


def pieces(body: bytes, cuts: list[int]) -> Iterator[tuple[int, bytes]]:
    """Arrays that together hold the messages of the body, and where each begins."""
    for start, cut in pairwise([0, *cuts]):
        yield start, piece(body, start, cut)
    last = cuts[-1] if cuts else 0
    yield last, b"".join((b"[", memoryview(body)[last + 1 :])) if cuts else body


def piece(body: bytes, start: int, cut: int) -> bytes:
    """The array of what lies between a bracket or comma and the next cut."""
    return b"".join((b"[", memoryview(body)[start + 1 : cut], b"]"))


def _cut_near(body: bytes, place: int, depth: int, *, in_string: bool) -> int | None:
    """The first comma between two messages soon after a place, given its depth."""
    end = place + _NEAR_BYTES
    if in_string:
        rest = _REST_OF_STRING.match(body, place, end)
        if rest is None:
            return None
        place = rest.end()
    for token in islice(_TOKEN.finditer(body, place, end), _NEAR_TOKENS):
        match token.group():
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
            case b"," if depth == 1:
                return token.start()
        if depth < 1:
            return None
    return None
