"""JSON mode: a stream of JSON values whose bytes are kept exactly as sent.

A body must be one strict JSON text in UTF-8 without a byte order mark. Escapes for half of a
surrogate pair are refused too: they stand for no character, and most readers fail on them. One
level of a top-level array is flattened: each element is a message. Anything else is a single
message.

Messages are stored one after the other, each followed by a comma. So any sequence of stored
messages becomes a JSON array by dropping the last comma and adding brackets, and the end of every
message is a position in the stream.

The number of messages in an append is limited. The parser makes an object of each and blocks other
threads meanwhile, so a large body is parsed in pieces; see `headwater.core.large_json`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from headwater.core import large_json
from headwater.core.errors import EmptyBody, InvalidJson, TooManyMessages
from headwater.core.large_json import WINDOW_BYTES, check_utf8

_ONE: Final = msgspec.json.Decoder(msgspec.Raw)
_MANY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NOTHING: Final = msgspec.Raw(b"")
_WHITESPACE: Final = b" \t\r\n"
_OPENS_MORE: Final = b"[" + _WHITESPACE
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]')

_BYTE: Final = re.compile(r"(?<=\(byte )\d+")
_WINDOW_BYTES: Final = WINDOW_BYTES
_LARGE_BYTES: Final = 2 * WINDOW_BYTES
R = TypeVar("R")
MESSAGES_ANY: Final = 2**62


def encode(
    body: bytes, *, allow_empty: bool = False, messages_max: int = MESSAGES_ANY
) -> tuple[bytes, int]:
    """Turn a request body into its stored form and the number of messages in it.

    Only creating a stream may come without messages (`allow_empty`).
    """
    check_utf8(body)
    if body.lstrip(_WHITESPACE)[:1] != b"[":
        return b"".join((_parse(_ONE, body), b",")), 1
    # A message takes at least one byte and the comma after it.
    if len(body) > min(2 * messages_max, _LARGE_BYTES):
        stored, count = _encode_large(body, messages_max)
    else:
        stored, count = _joined(_parse(_MANY, body))
    if not count and not allow_empty:
        raise EmptyBody("an empty array holds no messages; send at least one")
    return stored, count


def encode_one(body: bytes) -> bytes | None:
    """The same for a body that is clearly a single message; None if `encode` has to look at it."""
    if body[0] in _OPENS_MORE:
        return None
    try:
        if not body.isascii():
            check_utf8(body)
        return b"".join((_ONE.decode(body), b","))
    except (InvalidJson, msgspec.DecodeError, RecursionError):
        return None


def _encode_large(body: bytes, messages_max: int) -> tuple[bytes, int]:
    """The same in pieces. Once there are too many messages, the rest is only validated."""
    stored: list[bytes | memoryview] = []
    count = 0
    for messages, sent in _parse_large(body):
        count += len(messages)
        if count <= messages_max:
            stored.append(sent if _is_all(messages, sent) else _joined(messages)[0])
    if count > messages_max:
        raise TooManyMessages(messages_max)
    return b"".join(stored), count


_Piece = tuple[list[msgspec.Raw], memoryview]
"""Messages, and what was sent for them, up to the comma after the last; empty if unknown."""


def _parse_large(body: bytes) -> Iterator[_Piece]:
    """The messages of an array, one piece at a time."""
    first = start = body.index(b"[")
    view = memoryview(body)
    while len(body) - start > 2 * _WINDOW_BYTES and (piece := _guess(body, start)):
        cut, messages = piece
        yield messages, view[start + 1 : cut + 1]
        start = cut
    rest = b"".join((b"[", view[start + 1 :]))
    cuts = large_json.survey(rest, _WINDOW_BYTES) if len(rest) > 2 * _WINDOW_BYTES else []
    for place, text in large_json.pieces(rest, cuts):
        messages = _parse(_MANY, text, start + place)
        if not messages and (cuts or start > first):
            missing = f"a value is missing (byte {start + place})"
            raise InvalidJson(f"the body is not valid JSON: {missing}")
        yield messages, view[:0]


def _guess(body: bytes, start: int) -> tuple[int, list[msgspec.Raw]] | None:
    """The messages up to a cut, and the cut, if one can be guessed."""
    for cut in large_json.guesses(body, start, _WINDOW_BYTES):
        with suppress(msgspec.DecodeError, RecursionError):
            if messages := _MANY.decode(large_json.piece(body, start, cut)):
                return cut, messages
    return None


def _is_all(messages: list[msgspec.Raw], sent: memoryview) -> bool:
    """Whether messages were sent as they are stored, without blanks in between.

    Most senders leave none, and one slice is quicker than joining messages.
    """
    return len(sent) == sum(map(len, messages)) + len(messages)


def _joined(messages: list[msgspec.Raw]) -> tuple[bytes, int]:
    if not messages:
        return b"", 0
    messages.append(_NOTHING)
    return b",".join(messages), len(messages) - 1


def _parse(decoder: msgspec.json.Decoder[R], text: bytes, start: int = 0) -> R:
    """Parse a body, or a piece of it that begins at `start`."""
    try:
        return decoder.decode(text)
    except msgspec.DecodeError as error:
        if _SURROGATE.search(text):
            problem = "a string in it holds half of a surrogate pair, which is not a character"
            raise InvalidJson(f"the body cannot be kept as JSON: {problem}") from None
        reason = _BYTE.sub(lambda place: str(start + int(place.group())), str(error))
        raise InvalidJson(f"the body is not valid JSON: {reason}") from None
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None


def decode(stored: bytes) -> list[bytes]:
    """Split stored bytes into messages."""
    try:
        return [bytes(message) for message in _MANY.decode(as_array(stored))]
    except RecursionError:
        # How deep the parser can go depends on the caller's stack: `encode` had more left.
        return _split(stored)


def sizes(stored: bytes) -> array[int]:
    """The length of each message that `decode` returns."""
    try:
        return array("i", map(len, _MANY.decode(as_array(stored))))
    except RecursionError:
        return array("i", map(len, _split(stored)))


def _split(stored: bytes) -> list[bytes]:
    """The same for any depth: split at the commas outside strings and brackets."""
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
    """The JSON array that a reader gets for a sequence of stored messages."""
    return b"[%b]" % stored[:-1]
