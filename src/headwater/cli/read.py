"""`headwater read` and `headwater tail`: from a stream to stdout."""

from __future__ import annotations

import sys
from base64 import b64encode
from contextlib import closing
from typing import Annotated, Final

import msgspec
import typer

from headwater.cli import remote
from headwater.cli.details import copy_details
from headwater.cli.exits import usage
from headwater.cli.output import (
    Json,
    Progress,
    is_terminal,
    on_one_line,
    stdout,
    watched_pipe,
)
from headwater.cli.positions import GRAMMAR, Last, Where, locate, parse_where, show
from headwater.cli.records import DataRecord, Record, TextRecord, ValueRecord
from headwater.cli.shell import say
from headwater.cli.target import PATIENT_S, Target, with_target
from headwater.cli.units import Unit, behind
from headwater.client import START, Batch, Position

TAIL_DEFAULT: Final = 10

From = Annotated[str, typer.Option("--from", metavar="WHERE", help=f"Begin at: {GRAMMAR}.")]


@with_target
def read(
    target: Target,
    stream: remote.StreamPath,
    where: From = "start",
    count: Annotated[
        int | None,
        typer.Option("-n", "--count", min=1, metavar="COUNT", help="Stop after this many."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="At the end, wait for more, until it is closed.")
    ] = False,
    details: Annotated[
        bool,
        typer.Option("--details", help="Records with the time, id and producer of each message."),
    ] = False,
    json: Json = False,
) -> None:
    """Write a stream to stdout.

    Begins at the start and ends at the present end. A JSON stream is
    written one message a line, any other as the bytes that it is.

    COUNT and -10 count messages in a JSON stream, lines in a text stream
    and bytes in any other. --json writes one record a line, each with the
    position after it, where --from continues. --details does the same with
    all that a Headwater server knows of a message: its offset, when it was
    stored, the id it was sent with and the producer that sent it.

    Examples:

      headwater read orders
      headwater read orders -n 5 --from @1h
      headwater read orders --from -10 --follow
      headwater read orders --json | jq .value
      headwater read orders --details --from -1
    """
    if details:
        _copy_details(target, stream, parse_where(where), count=count, follow=follow)
        return
    _copy(target, stream, parse_where(where), count=count, follow=follow, json=json)


@with_target
def tail(
    target: Target,
    stream: remote.StreamPath,
    last: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--last",
            min=0,
            metavar="COUNT",
            help="Start with this many of the last messages "
            f"(default: {TAIL_DEFAULT}; 0 in a stream of neither JSON nor text).",
            show_default=False,
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--from", metavar="WHERE", help=f"Begin elsewhere instead: {GRAMMAR}."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", "-f", help="Whether to wait for more.")
    ] = True,
    json: Json = False,
) -> None:
    """Write the last messages of a stream, and then what comes.

    Ends with 0 when the stream is closed, and with 130 on Ctrl-C.

    Examples:

      headwater tail orders
      headwater tail orders -n 0           # only what is new
      headwater tail orders --from @15m    # since a quarter of an hour ago
      headwater tail orders --no-follow    # like tail without -f
    """
    if where is not None and last is not None:
        raise usage("give -n or --from, not both")
    begin = None if where is None and last is None else parse_where(where or f"-{last}")
    _copy(target, stream, begin, count=None, follow=follow, json=json)


def _copy(
    target: Target,
    path: str,
    where: Where | None,
    *,
    count: int | None,
    follow: bool,
    json: bool,
) -> None:
    with target.connect(stream=path) as client:
        stream = remote.open_stream(client, path)
        info = stream.head()
        unit = Unit.of(info.content_type)
        if where is None:
            where = Last(0 if unit is Unit.BYTE else TAIL_DEFAULT)
        start = locate(client, stream, where, unit)
        if start == Position(START) and info.earliest_offset is not None:
            say(f"{path} begins at {info.earliest_offset}: retention dropped what was before")
        progress = Progress(f"reading {path}", visible=not follow and not is_terminal())
        details = remote.find_details(stream) if progress.wanted else None
    if details is not None and start == Position(START):
        progress.expect(details.size_bytes)
    printer = _Printer(unit, limit=count, json=json, position=start)
    # A second client: by now the server is known to be there, so it is worth waiting for.
    with target.connect(patience_s=PATIENT_S, stream=path) as client, progress, watched_pipe():
        stream = remote.open_stream(client, path)
        reader = stream.follow(start) if follow else stream.read(start)
        try:
            with closing(reader):
                for batch in reader:
                    printer.print(batch)
                    if follow or is_terminal():
                        stdout().flush()
                    progress.update(printer.bytes, unit.counted(printer.items))
                    if printer.full:
                        break
            printer.finish()
        except KeyboardInterrupt:
            printer.finish()
            _say_where(printer.position)
            raise
    if printer.full:
        _say_where(printer.position)


def _copy_details(
    target: Target, path: str, where: Where, *, count: int | None, follow: bool
) -> None:
    with target.connect(stream=path) as client, watched_pipe():
        stream = remote.open_stream(client, path)
        unit = Unit.of(stream.head().content_type)
        if unit is not Unit.MESSAGE and (count is not None or isinstance(where, Last)):
            raise usage("--details counts messages, which only a JSON stream has")
        start = locate(client, stream, where, unit)
        position = copy_details(stream, start, count=count, follow=follow)
        stdout().flush()
    if count is not None:
        _say_where(position)


def _say_where(position: Position) -> None:
    if sys.stderr.isatty():
        say(f"to continue from here: --from {show(position)}")


class _Printer:
    """Writes batches to stdout, up to a limit. `position` is after what has been written."""

    def __init__(self, unit: Unit, *, limit: int | None, json: bool, position: Position) -> None:
        self.position = position
        self.items = 0
        self.bytes = 0
        self._unit = unit
        self._left = limit
        self._json = json
        self._line_begun = b""  # waits for its end, if lines are written as records

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
        """Write a last line that has no end."""
        if self._line_begun and not self.full:
            self._write_record(_line_record(self._line_begun, self.position))
        self._line_begun = b""
        stdout().flush()

    def _print_messages(self, batch: Batch) -> None:
        messages = batch.raw_messages() if batch else []
        taken = self._take(len(messages))
        for number, message in enumerate(messages[:taken], 1):
            line = on_one_line(bytes(message))
            self.bytes += len(line)
            if self._json:
                position = self._position(batch, number, len(messages))
                self._write_record(ValueRecord(value=msgspec.Raw(line), next=show(position)))
            else:
                stdout().write(line + b"\n")
        self.position = self._position(batch, taken, len(messages))

    def _print_lines(self, batch: Batch) -> None:
        data = batch.data
        taken = self._take(data.count(b"\n"))
        # The limit cuts behind a line; without one, the rest is the beginning of another line.
        end = _end_of_line(data, taken) if self.full else len(data)
        self.bytes += end
        self.position = self._position(batch, end, len(data))
        if not self._json:
            stdout().write(data[:end])
            return
        start = 0
        for _ in range(taken):
            stop = data.index(b"\n", start) + 1
            line, self._line_begun = self._line_begun + data[start:stop], b""
            self._write_record(_line_record(line, self._position(batch, stop, len(data))))
            start = stop
        self._line_begun += data[start:end]

    def _print_bytes(self, batch: Batch) -> None:
        data = batch.data
        taken = self._take(len(data))
        self.bytes += taken
        self.position = self._position(batch, taken, len(data))
        if not self._json:
            stdout().write(data[:taken])
        elif taken:
            self._write_record(_data_record(data[:taken], self.position))

    def _take(self, available: int) -> int:
        taken = available if self._left is None else min(self._left, available)
        if self._left is not None:
            self._left -= taken
        self.items += taken
        return taken

    @staticmethod
    def _position(batch: Batch, taken: int, total: int) -> Position:
        return batch.position if taken == total else behind(batch, taken)

    @staticmethod
    def _write_record(record: Record) -> None:
        stdout().write(msgspec.json.encode(record) + b"\n")


def _end_of_line(data: bytes, number: int) -> int:
    """Behind the line of that number."""
    end = 0
    for _ in range(number):
        end = data.index(b"\n", end) + 1
    return end


def _line_record(line: bytes, position: Position) -> Record:
    text = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return TextRecord(text=text.decode(), next=show(position))
    except UnicodeDecodeError:
        return _data_record(line, position)


def _data_record(data: bytes, position: Position) -> DataRecord:
    return DataRecord(data=b64encode(data).decode(), next=show(position))
