"""Messages with what the server knows of them: their times, ids and producers. No IO.

The plain protocol has only the messages. The rest comes from `_bulk`, an extension, a line for each
message. What all messages of an append share, each line repeats.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import msgspec

from headwater.client.errors import NotSupported
from headwater.client.protocol.batch import Position
from headwater.client.protocol.extensions import next_offset
from headwater.client.protocol.groups import DeliveredProducer
from headwater.client.protocol.streams import Request, Response
from headwater.client.protocol.values import UNREADABLE, decode

T = TypeVar("T")

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_ANSWER_BYTES: Final = 1 << 20


def moment(time_ms: int) -> datetime:
    """A time of the server, in UTC."""
    return _EPOCH + timedelta(milliseconds=time_ms)


def time_ms(since: datetime | timedelta, now: datetime) -> int:
    """A moment, or so long before now, as the server counts.

    >>> time_ms(timedelta(minutes=10), datetime(1970, 1, 1, 1, tzinfo=UTC))
    3000000
    """
    at = since if isinstance(since, datetime) else now - since
    if at.tzinfo is None:
        raise ValueError("a time needs a time zone, such as datetime.UTC")
    return max(0, (at - _EPOCH) // timedelta(milliseconds=1))


@dataclass(frozen=True, slots=True)
class Record(Generic[T]):
    """A message, and what the server knows of it.

    Attributes:
        value: the message: a JSON value, or the bytes of an append in any other stream.
        offset: where the append that it came with begins.
        index: its place in that append, from 0.
        time: when it was stored, in milliseconds since 1970.
        id: the id that it was sent with, if it was.
        producer: the idempotent producer that it came from, if it did.
        position: the place after it; save that to go on later.
    """

    value: T
    offset: str
    index: int
    time: int
    id: str | None
    producer: DeliveredProducer | None
    position: Position

    @property
    def timestamp(self) -> datetime:
        """When it was stored."""
        return moment(self.time)


class Line(msgspec.Struct, frozen=True):
    """A message as the server sends it, and the place after it."""

    offset: str
    index: int
    timestamp: int
    value: msgspec.Raw = msgspec.Raw(b"")
    data: bytes | None = None
    message_id: str | None = None
    producer_id: str | None = None
    producer_epoch: int | None = None
    producer_seq: int | None = None

    @property
    def producer(self) -> DeliveredProducer | None:
        name, epoch, seq = self.producer_id, self.producer_epoch, self.producer_seq
        if name is None or epoch is None or seq is None:
            return None
        return DeliveredProducer(name, epoch, seq)

    @property
    def place(self) -> Position:
        return Position(self.offset, self.index)

    def record(self, after: Position, type: Any) -> Record[Any]:
        """The record of it; `InvalidMessage` if the message is not of the type."""
        value = self.data
        if value is None:
            value = decode(self.value, type, f"the message at {self.place}")
        return Record(
            value, self.offset, self.index, self.timestamp, self.message_id, self.producer, after
        )


_LINES: Final = msgspec.json.Decoder(Line)


def records_request(url: str, offset: str, until: str | None = None) -> Request:
    params = {"offset": offset, "headers": "true", "max_bytes": str(_ANSWER_BYTES)}
    if until is not None:
        params["until"] = until
    return Request("GET", f"{url}/_bulk", params=params)


def lines_of(response: Response, skip: int = 0) -> tuple[list[tuple[Line, Position]], Position]:
    """Each message with the place after it, the first `skip` left out; and where to continue."""
    try:
        lines = _LINES.decode_lines(response.body)
    except UNREADABLE as error:
        raise NotSupported("the server does not tell times and ids of messages") from error
    end = Position(next_offset(response))
    found = [*zip(lines, [*(line.place for line in lines[1:]), end], strict=False)]
    while found and skip:
        line, after = found[0]
        size = 1 if line.data is None else len(line.data)
        if size > skip:
            rest = msgspec.structs.replace(line, data=(line.data or b"")[skip:])
            found[0], skip = (rest, after), 0
        else:
            del found[0]
            skip -= size
    return found, Position(end.offset, skip)
