"""`headwater read --details`: every message with what the server knows of it.

The plain protocol has only the messages. Their times, ids and producers come from `_bulk`, an
extension, append by append.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import msgspec

from headwater.cli.output import instant, on_one_line, stdout
from headwater.cli.positions import show
from headwater.cli.records import MessageDataRecord, MessageRecord, MessageValueRecord
from headwater.client import START, Position, Stream

_WAIT_S = 20.0
Row = dict[str, Any]


def copy_details(stream: Stream, start: Position, *, count: int | None, follow: bool) -> Position:
    """Write messages from a position on; returns the position after the last one."""
    position, left = start, count
    while True:
        info = stream.head()
        until = info.next_offset
        if until is not None and until != position.offset:
            for record, after in _messages(stream, position, until):
                position = after
                stdout().write(msgspec.json.encode(record) + b"\n")
                left = None if left is None else left - 1
                if left == 0:
                    return position
            stdout().flush()
        if not follow or info.closed:
            return position
        stream.wait(position.offset, _WAIT_S)


def _messages(
    stream: Stream, start: Position, until: str
) -> Iterator[tuple[MessageRecord, Position]]:
    offset, skip = start.offset, start.skip
    while offset != until:
        bulk = stream.bulk(offset if offset != START else "-1", until, headers=True)
        rows = _rows(bulk.data)
        for number, row in enumerate(rows):
            position = _after(rows, number, bulk.next_offset)
            if number >= skip:
                yield _record(row, position), position
        if bulk.next_offset == offset:
            return
        offset, skip = bulk.next_offset, 0


def _rows(data: bytes) -> list[Row]:
    # A large library, and most commands do without it.
    import pyarrow as pa

    with pa.ipc.open_stream(data) as reader:
        rows: list[Row] = reader.read_all().to_pylist()
    return rows


def _after(rows: list[Row], number: int, end: str) -> Position:
    """The position after a message: after its append, or a place in it."""
    if number + 1 == len(rows):
        return Position(end)
    following = rows[number + 1]
    if following["index"] == 0:
        return Position(following["offset"])
    return Position(following["offset"], following["index"])


def _record(row: Row, position: Position) -> MessageRecord:
    known: dict[str, Any] = {
        "offset": row["offset"],
        "index": row["index"],
        "time": instant(round(row["timestamp"].timestamp() * 1000)),
        "id": row["message_id"],
        **{name: row[name] for name in ("producer_id", "producer_epoch", "producer_seq")},
        "next": show(position),
    }
    if isinstance(row["value"], bytes):
        return MessageDataRecord(data=b64encode(row["value"]).decode(), **known)
    return MessageValueRecord(value=msgspec.Raw(on_one_line(row["value"].encode())), **known)
