"""Messages with everything that the server knows about them: times, ids and producers.

Their format is in `client.protocol.records`. Here they are passed to a printer, up to an offset.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from headwater.cli import remote
from headwater.cli.exits import CliError
from headwater.cli.read.formats import Item
from headwater.cli.read.printing import ItemPrinter
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
from headwater.client.protocol.records import Line, lines_of, records_request

_WAIT_S: Final = 20.0
_PAUSE_S: Final = 0.2


class DetailReader:
    """Reads a stream in bulk, with everything known about each message."""

    def __init__(self, client: Headwater, stream: Stream, unit: Unit) -> None:
        self._client = client
        self._stream = stream
        self._unit = unit

    def copy(
        self, start: Position, until: str | None, printer: ItemPrinter, *, follow: bool
    ) -> Iterator[None]:
        """Pass messages to a printer, until it is full or there are no more. Yields in between."""
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
            # A server may restart while nothing happens. The next request is patient.
            time.sleep(_PAUSE_S)

    def _copy_span(self, start: Position, until: str, printer: ItemPrinter) -> Iterator[None]:
        offset, skip = start.offset, start.skip
        while offset != until:
            lines, end = self._fetch(offset, until)
            for line, after in lines:
                data = bytes(line.value) if line.data is None else line.data
                item = Item(data, after, line)
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
            if end.offset == offset:
                return
            offset = end.offset

    def _put_piece(self, printer: ItemPrinter, item: Item, skipped: int) -> None:
        """Pass on an append of bytes, without those that were skipped."""
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

    def _fetch(self, offset: str, until: str) -> tuple[list[tuple[Line, Position]], Position]:
        request = records_request(self._stream.url, offset, until)
        try:
            answer = self._client.request("GET", request.url, params=request.params)
            return lines_of(answer)
        except (NotSupported, StreamNotFound):
            self._stream.head()  # raises if the stream itself is gone
            raise CliError(
                f"{remote.server_url(self._client)} does not tell times, ids and "
                "producers of messages; read without --until, --details or such a --format"
            ) from None
