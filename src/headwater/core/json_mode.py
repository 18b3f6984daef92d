"""JSON mode: a stream of JSON values whose bytes are kept exactly as sent.

A body must be one strict JSON text in UTF-8 without a byte order mark. Escapes that make half of a
surrogate pair are refused too: they stand for no character, and most readers choke on them. One
level of a top-level array is flattened: each element is a message. Anything else is a single
message.

Messages are stored one after the other, each followed by a comma. That way any run of stored
messages becomes a JSON array by dropping the last comma and adding brackets, and the end of every
message is a position in the stream.

An append has a limited number of messages. The parser makes an object of each, so a body that may
hold too many is validated as a whole first, which makes none, and then counted window by window.
"""

from __future__ import annotations

import re
from array import array
from itertools import accumulate, compress
from typing import Final

import msgspec

from headwater.core.errors import EmptyBody, InvalidJson, TooManyMessages
from headwater.core.limits import KIB

_ONE: Final = msgspec.json.Decoder(msgspec.Raw)
_MANY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NOTHING: Final = msgspec.Raw(b"")
_WHITESPACE: Final = b" \t\r\n"
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]')


_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_WINDOW_BYTES: Final = 256 * KIB
_STRUCTURE: Final = b'",[]{}'
_NO_STRUCTURE: Final = bytes(byte for byte in range(256) if byte not in _STRUCTURE)
_STEPS: Final = bytes.maketrans(b",[]{}", b"\x00\x01\xff\x01\xff")
_COMMAS: Final = bytes.maketrans(b",[]{}", b"\x01\x00\x00\x00\x00")
MESSAGES_ANY: Final = 2**62


def encode(
    body: bytes, *, allow_empty: bool = False, messages_max: int = MESSAGES_ANY
) -> tuple[bytes, int]:
    """Turn a request body into its stored form and the number of messages in it.

    Only creating a stream may come with no messages (`allow_empty`).
    """
    try:
        if not body.isascii():
            body.decode("utf-8")
        if body.lstrip(_WHITESPACE)[:1] != b"[":
            return b"".join((_ONE.decode(body), b",")), 1
        # No message is shorter than one byte and the comma after it.
        if len(body) > 2 * messages_max and body.count(b",") >= messages_max:
            _ONE.decode(body)
            if _count(body, messages_max) > messages_max:
                raise TooManyMessages(messages_max)
        messages = _MANY.decode(body)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the body is not valid UTF-8 (byte {error.start})") from None
    except msgspec.DecodeError as error:
        if _SURROGATE.search(body):
            problem = "a string in it holds half of a surrogate pair, which is not a character"
            raise InvalidJson(f"the body cannot be kept as JSON: {problem}") from None
        raise InvalidJson(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None
    if not messages:
        if allow_empty:
            return b"", 0
        raise EmptyBody("an empty array holds no messages; send at least one")
    count = len(messages)
    if count > messages_max:
        raise TooManyMessages(messages_max)
    messages.append(_NOTHING)
    return b",".join(messages), count


def _count(body: bytes, most: int) -> int:
    """How many messages a valid array has that is not empty; it may stop counting past `most`.

    Of each window only what gives structure is left, and of that what is in no string.
    """
    count, depth, in_string, escaped = 1, 0, 0, False
    for start in range(0, len(body), _WINDOW_BYTES):
        window = body[start + escaped : start + _WINDOW_BYTES]
        if b"\\" in window:
            window = _ESCAPE.sub(b"", window)
            escaped = window.endswith(b"\\")
        else:
            escaped = False
        parts = window.translate(None, _NO_STRUCTURE).split(b'"')
        outside = b"".join(parts[in_string::2])
        in_string ^= (len(parts) - 1) & 1
        depths = accumulate(array("b", outside.translate(_STEPS)), initial=depth)
        # Each character with the depth after it, which for a comma is the one that it is at.
        after = list(depths)[1:]
        count += list(compress(after, outside.translate(_COMMAS))).count(1)
        depth = after[-1] if after else depth
        if count > most:
            break
    return count


def decode(stored: bytes) -> list[bytes]:
    """Take stored bytes apart into messages."""
    try:
        return [bytes(message) for message in _MANY.decode(as_array(stored))]
    except RecursionError:
        # How deep the parser can go depends on its caller's stack: `encode` had more to spare.
        return _split(stored)


def sizes(stored: bytes) -> array[int]:
    """How long each of the messages is that `decode` gives."""
    try:
        return array("i", map(len, _MANY.decode(as_array(stored))))
    except RecursionError:
        return array("i", map(len, _split(stored)))


def _split(stored: bytes) -> list[bytes]:
    """The same for any depth: cut at the commas that are in no string and in no bracket."""
    messages: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(stored):
        match token.group():
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
            case b"," if depth == 0:
                messages.append(stored[start : token.start()])
                start = token.end()
    return messages


def as_array(stored: bytes) -> bytes:
    """The JSON array that a reader gets for a run of stored messages."""
    return b"[%b]" % stored[:-1]
