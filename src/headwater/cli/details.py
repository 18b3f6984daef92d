"""Messages with what the server knows of them: their times, ids and producers.

The plain protocol has only the messages. The rest comes from `_bulk`, an extension, which can also
end at an offset.
"""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import msgspec

from headwater.cli.exits import CliError
from headwater.cli.formats import About, Item
from headwater.cli.printing import ItemPrinter
from headwater.cli.units import Unit
from headwater.client import (
    ConnectionFailed,
    Headwater,
    NotSupported,
    Position,
    ServerUnavailable,
    Stream,
    StreamNotFound,
)

_WAIT_S: Final = 20.0
_PAUSE_S: Final = 0.2
_ANSWER_BYTES: Final = 1 << 20


class _Line(About, frozen=True):
    value: msgspec.Raw = msgspec.Raw(b"")
    data: str | None = None


_LINE: Final = msgspec.json.Decoder(_Line)


class DetailReader:
    """Reads a stream in bulk, with all that is known of each message."""

    def __init__(self, client: Headwater, stream: Stream, unit: Unit) -> None:
        self._client = client
        self._stream = stream
        self._unit = unit

    def copy(
        self, start: Position, until: str | None, printer: ItemPrinter, *, follow: bool
    ) -> Iterator[None]:
        """Hand messages to a printer, until it is full or there are no more. Yields in between."""
        position = start
        while True:
            info = self._stream.head()
            end = until or info.next_offset
            if end is not None and end != position.offset:
                for _ in self._copy_span(position, end, printer):
                    yield
                    if printer.full:
                        return
                position = Position(end)
            if not follow or info.closed:
                return
            self._wait(position.offset)

    def _wait(self, offset: str) -> None:
        try:
            self._stream.wait(offset, _WAIT_S)
        except (ConnectionFailed, ServerUnavailable):
            # A server may restart while nothing happens. What is asked next is asked patiently.
            time.sleep(_PAUSE_S)

    def _copy_span(self, start: Position, until: str, printer: ItemPrinter) -> Iterator[None]:
        offset, skip = start.offset, start.skip
        while offset != until:
            lines, following = self._fetch(offset, until)
            for number, line in enumerate(lines):
                item = _item(line, _after(lines, number, following))
                if self._unit is Unit.MESSAGE:
                    skipped = min(skip, 1)
                    if not skipped:
                        printer.put(item)
                else:
                    skipped = min(skip, len(item.data))
                    self._put_piece(printer, item, skipped)
                skip -= skipped
                if printer.full:
                    break
            yield
            if following == offset:
                return
            offset = following

    def _put_piece(self, printer: ItemPrinter, item: Item, skipped: int) -> None:
        """Hand out an append of bytes, without those that were skipped."""
        rest = replace(item, data=item.data[skipped:])
        if not rest.data:
            return
        if self._unit is Unit.BYTE or printer.whole_appends:
            printer.put(rest)
            return
        length, begin = len(rest.data), item.about.offset

        def at(stop: int) -> Position:
            return item.next if stop == length else Position(begin, skipped + stop)

        printer.put_piece(rest, at)

    def _fetch(self, offset: str, until: str) -> tuple[list[_Line], str]:
        params = {
            "offset": offset,
            "until": until,
            "headers": "true",
            "max_bytes": str(_ANSWER_BYTES),
        }
        try:
            answer = self._client.request("GET", f"{self._stream.url}/_bulk", params=params)
        except (NotSupported, StreamNotFound):
            self._stream.head()  # says so if it is the stream that is gone
            raise CliError(
                f"{self._client.url.removesuffix('/v1/stream')} does not tell times, ids and "
                "producers of messages; read without --until, --details or such a --format"
            ) from None
        return _LINE.decode_lines(answer.body), answer.next_offset or until


def _item(line: _Line, after: Position) -> Item:
    data = bytes(line.value) if line.data is None else b64decode(line.data)
    return Item(data, after, line)


def _after(lines: list[_Line], number: int, end: str) -> Position:
    """The position after a message: after its append, or a place in it."""
    if number + 1 == len(lines):
        return Position(end)
    following = lines[number + 1]
    return Position(following.offset, following.index)
