"""`headwater read` and `headwater tail`: from a stream to stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Annotated, Final

import typer

from headwater.cli import remote
from headwater.cli.exits import usage
from headwater.cli.output import (
    Json,
    Progress,
    has_colours,
    is_terminal,
    stdout,
    watched_pipe,
)
from headwater.cli.positions import (
    GRAMMAR,
    At,
    Last,
    Since,
    Where,
    locate,
    parse_since,
    parse_until,
    parse_where,
    show,
)
from headwater.cli.read.details import DetailReader
from headwater.cli.read.formats import (
    GRAMMAR as FORMATS,
)
from headwater.cli.read.formats import (
    Format,
    check_format,
    make_filter,
    make_format,
)
from headwater.cli.read.printing import ItemPrinter, Printer
from headwater.cli.read.several import Followed, check_several, follow_several
from headwater.cli.shell import say
from headwater.cli.target import PATIENT_S, Target, with_target
from headwater.cli.units import Unit
from headwater.client import START, Headwater, Position, Stream

TAIL_DEFAULT: Final = 10
# More than any stream has.
COUNT_MAX: Final = 10**15 - 1

SinceTime = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Start 10m ago, or at 2026-01-31T12:00:00Z."),
]
UntilTime = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="Stop before 5m ago, a time, or an OFFSET."),
]
Grep = Annotated[
    str | None,
    typer.Option(
        "--grep",
        metavar="TEXT",
        help="Only messages that contain this: text, /regexp/ or /regexp/i.",
    ),
]
FormatText = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help=f"{FORMATS}.", show_default=False),
]
Timestamps = Annotated[
    bool, typer.Option("-t", "--timestamps", help="Write the time before each message.")
]
Details = Annotated[
    bool,
    typer.Option("--details", help="Records with the time, id and producer of each message."),
]


@with_target
def read(
    target: Target,
    stream: remote.StreamPath,
    where: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help=f"Where to start: {GRAMMAR} (default: start).",
            show_default=False,
        ),
    ] = None,
    since: SinceTime = None,
    until: UntilTime = None,
    count: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--count",
            min=1,
            max=COUNT_MAX,
            metavar="COUNT",
            help="Stop after this many.",
        ),
    ] = None,
    grep: Grep = None,
    follow: Annotated[
        bool,
        typer.Option(
            "-f", "--follow", help="At the end, wait for more until the stream is closed."
        ),
    ] = False,
    format: FormatText = None,
    timestamps: Timestamps = False,
    details: Details = False,
    json: Json = False,
) -> None:
    """Write a stream to stdout.

    Reads from the start to the current end. A JSON stream is written one
    message per line, any other stream as plain bytes.

    COUNT and -10 count messages in a JSON stream, lines in a text stream
    and bytes in any other; with --grep, COUNT counts matches. --json writes
    one record per line, each with the position after it, which you can pass
    to --from. --details adds everything that a Headwater server knows about
    a message: its offset, when it was stored, the id it was sent with and
    the producer that sent it.

    A --format with % in it is a template, with kcat's letters: %s message,
    %S its size, %k key, %o offset, %t stream, %T time in milliseconds, and
    also %d time as text and %i id. On a terminal, JSON is coloured unless
    $NO_COLOR is set.

    Examples:

      headwater read orders
      headwater read orders -n 5 --from @1h
      headwater read orders --since 2h --until 1h --grep /tea|coffee/i
      headwater read orders --from -10 --follow
      headwater read orders --json | jq .value
      headwater read orders --format '%o %d %s\\n'
      headwater read orders --format csv > orders.csv
    """
    if follow and until is not None:
        raise usage("use --follow or --until, not both")
    begin, end = _begin(where, since, At(START)), None if until is None else parse_until(until)
    if isinstance(begin, Since) and isinstance(end, Since) and begin.at_ms > end.at_ms:
        raise usage("--until is before --since; swap them")
    wanted = Wanted(
        begin=begin,
        until=end,
        count=count,
        grep=make_filter(grep),
        follow=follow,
        format=_format(format, json=json, details=details, timestamps=timestamps),
    )
    _copy(target, stream, wanted)


@with_target
def tail(
    target: Target,
    streams: remote.StreamPaths,
    last: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--last",
            min=0,
            max=COUNT_MAX,
            metavar="COUNT",
            help="Start with this many of the last messages "
            f"(default: {TAIL_DEFAULT}; 0 in a stream of neither JSON nor text).",
            show_default=False,
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--from", metavar="WHERE", help=f"Where to start instead: {GRAMMAR}."),
    ] = None,
    since: SinceTime = None,
    grep: Grep = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", "-f", help="Whether to wait for more.")
    ] = True,
    format: FormatText = None,
    timestamps: Timestamps = False,
    details: Details = False,
    json: Json = False,
) -> None:
    """Write the last messages of a stream, then new ones as they arrive.

    Exits with 0 when the stream is closed, and with 130 on Ctrl-C. For
    --grep, --format and --details, see `headwater read --help`. With
    several streams, each line begins with the stream and a tab.

    Examples:

      headwater tail orders
      headwater tail orders -n 0           # only what is new
      headwater tail orders --since 15m    # the last quarter of an hour
      headwater tail orders -t --grep tea  # with times, and only tea
      headwater tail orders payments       # both, as they come
      headwater tail orders --no-follow    # like tail without -f
    """
    if last is not None and (where is not None or since is not None):
        raise usage("use one of -n, --from and --since")
    wanted = Wanted(
        begin=_begin(where, since, None if last is None else Last(last)),
        until=None,
        count=None,
        grep=make_filter(grep),
        follow=follow,
        format=_format(format, json=json, details=details, timestamps=timestamps),
    )
    if len(streams) == 1:
        _copy(target, streams[0], wanted)
        return
    wanted = replace(wanted, format=check_several(streams, wanted.format))
    with target.connect() as client:
        plans = [
            (path, _plan(client, remote.open_stream(client, path), wanted)) for path in streams
        ]
    if any(plan.in_bulk for _, plan in plans):
        raise usage("with several streams, a template can have %t, %s, %S and %k")
    followed = [Followed(path, plan.unit, plan.format, plan.start) for path, plan in plans]
    follow_several(target, followed, wanted.grep, follow=follow)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was requested."""

    begin: Where | None
    until: Since | At | None
    count: int | None
    grep: Callable[[bytes], bool] | None
    follow: bool
    format: str


def _begin(where: str | None, since: str | None, default: Where | None) -> Where | None:
    if where is not None and since is not None:
        raise usage("use --from or --since, not both")
    if since is not None:
        return parse_since(since)
    return default if where is None else parse_where(where)


def _format(format: str | None, *, json: bool, details: bool, timestamps: bool) -> str:
    given = [name for name, is_set in (("json", json), ("details", details)) if is_set]
    given += ["time"] if timestamps else []
    if format is not None:
        check_format(format)
        given.append(format)
    # Details are already records: --json adds nothing.
    if given == ["json", "details"]:
        return "details"
    if len(given) > 1:
        raise usage("use one of --format, --json, --details and --timestamps")
    return given[0] if given else "lines"


@dataclass(frozen=True, slots=True)
class Plan:
    """How to read what was requested from a stream."""

    unit: Unit
    format: Format
    start: Position
    until: str | None
    in_bulk: bool
    """Whether that needs more than the plain protocol offers."""

    def printer(self, wanted: Wanted) -> Printer:
        if self.format.render is None and wanted.grep is None and not self.in_bulk:
            return Printer(self.unit, limit=wanted.count, position=self.start)
        return ItemPrinter(
            self.unit,
            limit=wanted.count,
            position=self.start,
            format=self.format,
            wanted=wanted.grep,
        )


def _copy(target: Target, path: str, wanted: Wanted) -> None:
    progress = Progress(f"reading {path}", visible=not wanted.follow and not is_terminal())
    with target.connect(stream=path) as client:
        stream = remote.open_stream(client, path)
        plan = _plan(client, stream, wanted)
        details = remote.find_details(stream) if progress.wanted else None
    if details is not None and plan.start == Position(START):
        progress.expect(details.size_bytes)
    stdout().write(plan.format.head)
    printer = plan.printer(wanted)
    # A second client: by now the server is known to exist, so it is worth waiting for.
    with target.connect(patience_s=PATIENT_S, stream=path) as client, progress, watched_pipe():
        stream = remote.open_stream(client, path)
        try:
            for _ in _steps(client, stream, plan, printer, follow=wanted.follow):
                if wanted.follow or is_terminal():
                    stdout().flush()
                progress.update(printer.bytes, plan.unit.counted(printer.items))
            printer.finish()
        except KeyboardInterrupt:
            printer.finish()
            _say_where(printer.position)
            raise
    if printer.full:
        _say_where(printer.position)


def _plan(client: Headwater, stream: Stream, wanted: Wanted) -> Plan:
    info = stream.head()
    unit = Unit.of(info.content_type)
    format = make_format(wanted.format, unit, stream.path, colours=has_colours())
    in_bulk = format.detailed or wanted.until is not None
    counts_bytes = unit is Unit.BYTE or (format.whole_appends and unit is Unit.LINE)
    if (unit is Unit.BYTE and wanted.grep) or (in_bulk and counts_bytes and wanted.count):
        option = "--grep looks at" if wanted.grep else "--count with a time or a format counts"
        raise usage(f"{option} messages or lines, and {stream.path} has {info.content_type}")
    start = locate(
        client, stream, wanted.begin or Last(0 if unit is Unit.BYTE else TAIL_DEFAULT), unit
    )
    if start == Position(START) and info.earliest_offset is not None:
        say(f"{stream.path} begins at {info.earliest_offset}: retention dropped what was before")
    until = None if wanted.until is None else locate(client, stream, wanted.until, unit).offset
    return Plan(unit, format, start, until, in_bulk)


def _steps(
    client: Headwater, stream: Stream, plan: Plan, printer: Printer, *, follow: bool
) -> Iterator[None]:
    """Copy from the stream to the printer, one piece at a time."""
    if isinstance(printer, ItemPrinter) and plan.in_bulk:
        reader = DetailReader(client, stream, plan.unit)
        yield from reader.copy(plan.start, plan.until, printer, follow=follow)
        return
    with closing(stream.follow(plan.start) if follow else stream.read(plan.start)) as batches:
        for batch in batches:
            printer.print(batch)
            yield
            if printer.full:
                return


def _say_where(position: Position) -> None:
    if sys.stderr.isatty():
        say(f"to continue from here: --from {show(position)}")
