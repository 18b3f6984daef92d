"""`headwater top`: which streams grow, and how fast."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headwater.cli import remote
from headwater.cli.exits import ExitCode, one_line, usage
from headwater.cli.failures import explain
from headwater.cli.output import (
    Json,
    console,
    instant,
    is_terminal,
    new_table,
    size,
    watched_pipe,
    write_json,
)
from headwater.cli.records import RateRecord, TopRecord
from headwater.cli.stream_options import Prefix
from headwater.cli.target import Target, with_target
from headwater.client import Headwater, HeadwaterError, StreamSummary

if TYPE_CHECKING:
    from rich.console import RenderableType

Order = Literal["rate", "bytes", "messages", "name"]

_BY: dict[Order, Callable[[RateRecord], tuple[float, ...]]] = {
    "rate": lambda stream: (-stream.messages_per_s, -stream.bytes_per_s, -stream.messages),
    "bytes": lambda stream: (-stream.bytes_per_s, -stream.bytes),
    "messages": lambda stream: (-stream.messages,),
    "name": lambda stream: (),
}


@with_target
def top(
    target: Target,
    prefix: Prefix = "",
    interval: Annotated[
        float,
        typer.Option(
            "--interval", min=0.1, max=3600, metavar="SECONDS", help="Time between refreshes."
        ),
    ] = 2.0,
    sort: Annotated[Order, typer.Option("--sort", help="Column to sort by.")] = "rate",
    rows: Annotated[
        int | None,
        typer.Option(
            "-n", "--rows", min=1, metavar="COUNT", help="Show at most this many streams."
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Measure one interval, show it and exit.")
    ] = False,
    json: Json = False,
) -> None:
    """Watch the streams of a server: messages and bytes per second.

    Shows a table that is refreshed until Ctrl-C. With --json, writes one
    record per refresh; with --once, the rates over one interval.

    Examples:

      headwater top
      headwater top --prefix jobs/ --sort bytes
      headwater top --once --json | jq '.streams[0]'
    """
    if not (once or json or is_terminal()):
        raise usage("a live table needs a terminal; use --once or --json")
    live = not (once or json)
    with target.connect() as client, watched_pipe(), _display(live=live) as show:
        meter = Meter(client, prefix, sort, rows)
        meter.look()
        while True:
            time.sleep(interval)
            try:
                found = meter.look()
            except HeadwaterError as error:
                # A server that was there may come back; a person will want to see when.
                explained = explain(error, url=target.url)
                if not live or explained.code is not ExitCode.UNAVAILABLE:
                    raise
                show(explained.message)
                continue
            if json:
                write_json(found)
            else:
                show(_table(found, target.url))
            if once:
                return


class Meter:
    """Compares the current figures of a server with the previous ones."""

    def __init__(self, client: Headwater, prefix: str, sort: Order, rows: int | None) -> None:
        self._client = client
        self._prefix = prefix
        self._sort = sort
        self._rows = rows
        self._before: dict[str, StreamSummary] = {}
        self._before_at = 0.0

    def look(self) -> TopRecord:
        pages = list(remote.list_streams(self._client, self._prefix))
        now = time.monotonic()
        elapsed_s = now - self._before_at if self._before_at else 0.0
        streams = [self._rate(stream, elapsed_s) for page in pages for stream in page]
        streams.sort(key=lambda stream: (*_BY[self._sort](stream), stream.name))
        self._before = {stream.name: stream for page in pages for stream in page}
        self._before_at = now
        return TopRecord(
            at=instant(int(time.time() * 1000)) or "",
            interval_s=round(elapsed_s, 3),
            messages_per_s=round(sum(stream.messages_per_s for stream in streams), 3),
            bytes_per_s=round(sum(stream.bytes_per_s for stream in streams), 3),
            streams=streams[: self._rows],
        )

    def _rate(self, stream: StreamSummary, elapsed_s: float) -> RateRecord:
        messages, bytes_ = stream.messages or 0, stream.size_bytes or 0
        before = self._before.get(stream.name)
        # A stream that was recreated, or is new, starts from zero.
        same = before is not None and before.created == stream.created
        old_messages = (before.messages or 0) if before is not None and same else 0
        old_bytes = (before.size_bytes or 0) if before is not None and same else 0
        return RateRecord(
            name=stream.name,
            messages=messages,
            bytes=bytes_,
            messages_per_s=round((messages - old_messages) / elapsed_s, 3) if elapsed_s else 0.0,
            bytes_per_s=round((bytes_ - old_bytes) / elapsed_s, 3) if elapsed_s else 0.0,
            closed=stream.closed,
        )


@contextmanager
def _display(*, live: bool) -> Iterator[Callable[[RenderableType], None]]:
    """Where tables go: to a separate screen, or just to stdout."""
    out = console()
    if not live:
        yield out.print
        return
    from rich.live import Live

    with Live("looking …", console=out, screen=True, auto_refresh=False) as screen:

        def show(content: RenderableType) -> None:
            screen.update(content, refresh=True)

        yield show


def _table(found: TopRecord, url: str) -> RenderableType:
    from rich.console import Group

    title = (
        f"{url}  {found.at}  {found.messages_per_s:,.1f} messages/s  {size(found.bytes_per_s)}/s"
    )
    columns = ("STREAM", "#MESSAGES/S", "#BYTES/S", "#MESSAGES", "#SIZE", "STATE")
    table = new_table(*columns, folding=0)
    for stream in found.streams:
        table.add_row(
            one_line(stream.name),
            f"{stream.messages_per_s:,.1f}",
            size(stream.bytes_per_s),
            f"{stream.messages:,}",
            size(stream.bytes),
            "closed" if stream.closed else "open",
        )
    return Group(title, table)
