"""What a read yields, and where it left off.

The server counts in offsets, and an offset is a place between two appends. A reader may stop in
the middle of what one answer brought, so its `Position` is an offset plus a number of items to skip
from there: messages in a JSON stream, bytes in any other. Streams only ever grow, so the same
position leads to the same place for ever, however the server cuts its answers.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, overload

import msgspec

from headwater.client.errors import InvalidMessage
from headwater.client.protocol.streams import START
from headwater.client.protocol.values import UNREADABLE, decode, list_decoder
from headwater.core.content_types import is_json

T = TypeVar("T")

_JSON_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a stream, saved as text and read back with `parse`.

    >>> str(Position("0000000000000000_0000000000000120", skip=3))
    '0000000000000000_0000000000000120/3'
    >>> Position.parse("0000000000000000_0000000000000120/3").skip
    3
    """

    offset: str = START
    skip: int = 0

    def __str__(self) -> str:
        return f"{self.offset}/{self.skip}" if self.skip else self.offset

    @classmethod
    def parse(cls, text: str | Position) -> Position:
        """Read a saved position; a plain offset from the server is one too."""
        if isinstance(text, Position):
            return text
        # Offsets never contain a slash, so this cannot cut one in two.
        offset, slash, skip = text.partition("/")
        if not offset or (slash and not (skip.isascii() and skip.isdigit())):
            raise ValueError(f"not a position: {text!r}")
        return cls(offset, int(skip or 0))


@dataclass(frozen=True, slots=True)
class Batch:
    """A run of consecutive data, as one answer or one live event brought it.

    A batch without data is false. It says that the reader has caught up, or that the stream has
    been closed.

    Attributes:
        start: where the batch begins.
        next_offset: the offset after it; reading from there yields what follows.
        content_type: the stream's media type.
        up_to_date: True when nothing followed at the time of the answer.
        closed: True when nothing will ever follow.
    """

    start: Position
    next_offset: str
    content_type: str | None
    up_to_date: bool = False
    closed: bool = False
    payloads: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def position(self) -> Position:
        """The place after the batch."""
        return Position(self.next_offset)

    @property
    def data(self) -> bytes:
        """The batch as bytes; in a JSON stream, one JSON array."""
        if not is_json(self.content_type):
            return b"".join(self.payloads)
        if len(self.payloads) == 1:
            return self.payloads[0]
        return msgspec.json.encode(self.raw_messages())

    @property
    def text(self) -> str:
        """The batch as UTF-8 text."""
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise InvalidMessage(f"no UTF-8 text after {self.start}: {error}") from error

    @overload
    def messages(self) -> list[Any]: ...
    @overload
    def messages(self, type: type[T]) -> list[T]: ...
    def messages(self, type: Any = Any) -> list[Any]:
        """The JSON messages, decoded; to `type`, as `decode` does it."""
        return self._decoded(type)

    def raw_messages(self) -> list[msgspec.Raw]:
        """The JSON messages as the bytes that were appended."""
        return self._decoded(msgspec.Raw)

    def __bool__(self) -> bool:
        if is_json(self.content_type):
            return any(has_messages(payload) for payload in self.payloads)
        return any(self.payloads)

    def without_first(self, count: int) -> tuple[Batch, int]:
        """The batch without its first items, and how many are still to be left out after it."""
        if is_json(self.content_type):
            messages = self.raw_messages()
            skipped = min(count, len(messages))
            payload = msgspec.json.encode(messages[count:])
        else:
            data = self.data
            skipped = min(count, len(data))
            payload = data[count:]
        start = Position(self.start.offset, self.start.skip + skipped)
        return replace(self, start=start, payloads=(payload,)), count - skipped

    def _decoded(self, type: Any) -> list[Any]:
        decoder = list_decoder(type)
        try:
            with _collector_at_rest():
                if len(self.payloads) == 1:
                    return decoder.decode(self.payloads[0])
                return [message for payload in self.payloads for message in decoder.decode(payload)]
        except UNREADABLE as error:
            raise self._misfit(type, error) from error

    def _misfit(self, type: Any, error: Exception) -> InvalidMessage:
        """The error of the first message that is not what it should be."""
        if type is not msgspec.Raw and type is not Any:
            for index, raw in enumerate(self.raw_messages()):
                at = Position(self.start.offset, self.start.skip + index)
                decode(raw, type, f"the message at {at}")
        return InvalidMessage(f"unreadable messages after {self.start}: {error}")


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Keep the garbage collector from looking through messages while they are being made.

    Decoding makes many objects and no cycles, and everything that is made is still needed, so
    the collector would go through all of it again and again for nothing: a fifth of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def has_messages(payload: bytes) -> bool:
    """Whether a JSON array has any elements, without parsing it."""
    # Only short arrays can be nothing but brackets and space; a long one is not worth copying.
    return len(payload) > 64 or bool(payload.strip(_JSON_SPACE)[1:-1].strip(_JSON_SPACE))


def is_json_array(payload: bytes) -> bool:
    """Whether this can be a complete JSON array; finds answers that were cut short."""
    head, tail = payload[:64].lstrip(_JSON_SPACE), payload[-64:].rstrip(_JSON_SPACE)
    return head.startswith(b"[") and tail.endswith(b"]")
