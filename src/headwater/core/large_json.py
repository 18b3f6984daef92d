"""Large JSON arrays, looked at window by window.

The parser does not let other threads run while it works, and makes an object of each message. So a
large array is first surveyed: how many messages it has, and where it can be cut into pieces that
are arrays by themselves. Each step of that is short. Whether the array is valid is for the parser
to say, of each piece; for what is valid, the survey is exact.

Of each window only what gives structure is left, and of that what is in no string. The first comma
after a window that is between two messages, if it is near, is a place to cut.
"""

from __future__ import annotations

import re
from array import array
from codecs import getincrementaldecoder
from collections.abc import Iterator
from itertools import accumulate, compress, islice
from typing import Final, NamedTuple

from headwater.core.errors import InvalidJson
from headwater.core.limits import KIB

WINDOW_BYTES: Final = 256 * KIB
_STRUCTURE: Final = b'",[]{}'
_NO_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in _STRUCTURE)
_STEPS: Final = bytes.maketrans(b",[]{}", b"\x00\x01\xff\x01\xff")
_COMMAS: Final = bytes.maketrans(b",[]{}", b"\x01\x00\x00\x00\x00")
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]', re.DOTALL)
_REST_OF_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NEAR_BYTES: Final = 16 * KIB
_NEAR_TOKENS: Final = 1_000


class Survey(NamedTuple):
    messages: int
    """How many there are, if the array is valid and not empty."""
    cuts: list[int]
    """Places of commas between messages, ascending, about a window apart."""

    def pieces(self, body: bytes) -> Iterator[tuple[int, bytes]]:
        """Arrays that hold the messages of the body one after the other, and where each begins."""
        start = body.index(b"[")
        for cut in self.cuts:
            yield start, b"[%b]" % body[start + 1 : cut]
            start = cut
        yield start, b"[%b" % body[start + 1 :]


def check_utf8(body: bytes) -> None:
    """Refuse what is not UTF-8, without a copy of a large body."""
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


def survey(body: bytes, window_bytes: int = WINDOW_BYTES) -> Survey:
    """Look through a text that begins like an array."""
    messages = 1
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
        if not outside.strip(b","):
            messages += len(outside) if depth == 1 else 0
        else:
            depths = accumulate(array("b", outside.translate(_STEPS)), initial=depth)
            # Each character with the depth after it, which for a comma is the one that it is at.
            after = list(depths)[1:]
            messages += list(compress(after, outside.translate(_COMMAS))).count(1)
            depth = after[-1]
        cut = _cut_near(body, start + window_bytes + escaped, depth, in_string=bool(in_string))
        if cut is not None and cut > (cuts[-1] if cuts else 0):
            cuts.append(cut)
    return Survey(messages, cuts)


def _cut_near(body: bytes, place: int, depth: int, *, in_string: bool) -> int | None:
    """The first comma between two messages soon after a place, given what the place is in."""
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
