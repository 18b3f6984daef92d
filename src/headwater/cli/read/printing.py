"""From what a reader yields to stdout: verbatim, or item by item in a format."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final

from headwater.cli.output import on_one_line, stdout
from headwater.cli.read.formats import Format, Item, Render, clean
from headwater.cli.units import Unit, after
from headwater.client import Batch, Position
from headwater.client.protocol.records import Line

# A longer line is written in pieces: a stream of text may have no line ends at all.
LINE_BYTES_MAX: Final = 16 << 20


class Printer:
    """Writes to stdout, up to a limit. `position` is after what has been written."""

    def __init__(self, unit: Unit, *, limit: int | None, position: Position) -> None:
        self.position = position
        self.items = 0
        self.bytes = 0
        self._unit = unit
        self._left = limit

    @property
    def full(self) -> bool:
        return self._left == 0

    def print(self, batch: Batch) -> None:
        """Write a batch, or as much of it as the limit allows."""
        match self._unit:
            case Unit.MESSAGE:
                self._print_messages(batch)
            case Unit.LINE:
                self._print_lines(batch)
            case Unit.BYTE:
                self._print_bytes(batch)

    def finish(self) -> None:
        """Nothing more will come."""
        stdout().flush()

    def _print_messages(self, batch: Batch) -> None:
        messages = batch.raw_messages() if batch else []
        taken = self._take(len(messages))
        for message in messages[:taken]:
            line = on_one_line(bytes(message))
            self.bytes += len(line)
            stdout().write(line + b"\n")
        self.position = _position(batch, taken, len(messages))

    def _print_lines(self, batch: Batch) -> None:
        data = batch.data
        taken = self._take(data.count(b"\n"))
        # The limit cuts after a line; without one, the rest is the start of another line.
        end = _end_of_line(data, taken) if self.full else len(data)
        self._write(batch, data, end)

    def _print_bytes(self, batch: Batch) -> None:
        data = batch.data
        self._write(batch, data, self._take(len(data)))

    def _write(self, batch: Batch, data: bytes, end: int) -> None:
        self.bytes += end
        self.position = _position(batch, end, len(data))
        stdout().write(data[:end])

    def _take(self, available: int) -> int:
        taken = available if self._left is None else min(self._left, available)
        if self._left is not None:
            self._left -= taken
        self.items += taken
        return taken


class ItemPrinter(Printer):
    """Writes item by item, in a format, and only those that match. The limit counts those."""

    def __init__(
        self,
        unit: Unit,
        *,
        limit: int | None,
        position: Position,
        format: Format,
        wanted: Callable[[bytes], bool] | None,
    ) -> None:
        super().__init__(unit, limit=limit, position=position)
        self.whole_appends = format.whole_appends
        self._render = format.render or _as_it_is(unit)
        self._wanted = wanted
        self._lines = LineCutter()

    def put(self, item: Item) -> None:
        """Write one item, if it matches."""
        self.position = item.next
        self.bytes += len(item.data)
        if self._wanted is None or self._wanted(item.data):
            self.items += 1
            if self._left is not None:
                self._left -= 1
            # Colours and template text are meant for the terminal.
            sys.stdout.buffer.write(self._render(item))

    def put_piece(self, item: Item, at: Callable[[int], Position]) -> None:
        """Write the lines that end in a piece of text."""
        for line in self._lines.cut(item.data, at, item.known):
            if self.full:
                return
            self.put(line)

    def finish(self) -> None:
        """Write a last line without a line feed."""
        rest = self._lines.rest()
        if rest is not None and not self.full:
            self.put(rest)
        super().finish()

    def _print_messages(self, batch: Batch) -> None:
        messages = batch.raw_messages() if batch else []
        for number, message in enumerate(messages, 1):
            self.put(Item(bytes(message), _position(batch, number, len(messages))))
            if self.full:
                return
        self.position = batch.position

    def _print_lines(self, batch: Batch) -> None:
        data = batch.data
        item = Item(data, batch.position)
        self.put_piece(item, lambda stop: _position(batch, stop, len(data)))

    def _print_bytes(self, batch: Batch) -> None:
        data = batch.data
        taken = self._take(len(data))
        self.position = _position(batch, taken, len(data))
        if taken:
            self.bytes += taken
            sys.stdout.buffer.write(self._render(Item(data[:taken], self.position)))


class LineCutter:
    """Makes lines from pieces that end anywhere. A line has the details of its first piece."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._known: Line | None = None
        self._end = Position("-1")

    def cut(self, data: bytes, at: Callable[[int], Position], known: Line | None) -> Iterator[Item]:
        """The lines that end in a piece; `at` gives the position after a number of its bytes."""
        start = 0
        while start < len(data):
            found = data.find(b"\n", start) + 1
            stop = found or len(data)
            if not self._begun:
                self._known = known
            self._begun += data[start:stop]
            self._end = at(stop)
            start = stop
            if found or len(self._begun) >= LINE_BYTES_MAX:
                yield self._take()

    def rest(self) -> Item | None:
        """A last line without a line feed."""
        return self._take() if self._begun else None

    def _take(self) -> Item:
        line = Item(bytes(self._begun), self._end, self._known)
        self._begun.clear()
        return line


def _as_it_is(unit: Unit) -> Render:
    shown = clean()
    if unit is Unit.MESSAGE:
        return lambda item: shown(on_one_line(item.data)) + b"\n"
    return lambda item: shown(item.data)


def _position(batch: Batch, taken: int, total: int) -> Position:
    return batch.position if taken == total else after(batch, taken)


def _end_of_line(data: bytes, number: int) -> int:
    """Where the line with that number ends."""
    end = 0
    for _ in range(number):
        end = data.index(b"\n", end) + 1
    return end
