"""JSON mode: a stream of JSON values whose bytes are kept exactly as sent.

A body must be one strict JSON text in UTF-8 without a byte order mark. Escapes that make half of a
surrogate pair are refused too: they stand for no character, and most readers choke on them. One
level of a top-level array is flattened: each element is a message. Anything else is a single
message.

Messages are stored one behind the other, each followed by a comma. That way any run of stored
messages becomes a JSON array by dropping the last comma and adding brackets, and the end of every
message is a position in the stream.
"""

from __future__ import annotations

import re
from array import array
from typing import Final

import msgspec

from headwater.core.errors import EmptyBody, InvalidJson

_ONE: Final = msgspec.json.Decoder(msgspec.Raw)
_MANY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_WHITESPACE: Final = b" \t\r\n"
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]')


def encode(body: bytes, *, allow_empty: bool = False) -> tuple[bytes, int]:
    """Turn a request body into its stored form and the number of messages in it.

    Only creating a stream may come with no messages (`allow_empty`).
    """
    try:
        if not body.isascii():
            body.decode("utf-8")
        if body.lstrip(_WHITESPACE)[:1] != b"[":
            return bytes(_ONE.decode(body)) + b",", 1
        messages = _MANY.decode(body)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"the body is not valid UTF-8 (byte {error.start})") from None
    except msgspec.DecodeError as error:
        if _SURROGATE.search(body):
            problem = "a string in it holds half of a surrogate pair, which is no character"
            raise InvalidJson(f"the body cannot be kept as JSON: {problem}") from None
        raise InvalidJson(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None
    if not messages:
        if allow_empty:
            return b"", 0
        raise EmptyBody("an empty array holds no messages; send at least one")
    return b",".join(messages) + b",", len(messages)


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
