"""`headwater pipeline ls`, `show`, `pause`, `resume` and `reset`: pipelines, wherever they run.

Pipelines report their state to the server, and read their orders from a stream there; see
`headwater.core.pipelines`. So nothing here needs Spark, or has to be where a pipeline runs.
"""

from __future__ import annotations

import difflib
import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from headwater.cli import remote
from headwater.cli.exits import CliError, ExitCode, one_line, usage
from headwater.cli.groups.view import age
from headwater.cli.output import Json, console, instant, new_table, write_facts, write_json
from headwater.cli.positions import PLACES, At, find_place, parse_where
from headwater.cli.records import PipelineReportRecord
from headwater.cli.shell import say
from headwater.cli.streams import Yes
from headwater.cli.target import Target, with_target
from headwater.client import NOW, START, Headwater, NotSupported, StreamNotFound
from headwater.client.protocol.streams import decoded
from headwater.core.content_types import JSON
from headwater.core.pipelines import CONTROL, Order, To, quarantine_of

if TYPE_CHECKING:
    from rich.table import Table

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The pipeline, as `headwater pipeline ls` shows it.")
]
_ENDS: Final = {START: "earliest", NOW: "latest"}
_SILENT_S: Final = 30.0
_PATIENCE_S: Final = 30.0
_POLL_S: Final = 0.25


@with_target
def ls(target: Target, json: Json = False) -> None:
    """List the pipelines that reported to the server, with rates, lag and errors.

    A pipeline reports every five seconds while it runs. The server forgets
    the reports when it restarts.

    Examples:

      headwater pipeline ls
      headwater pipeline ls --json | jq -r 'select(.state == "failing") | .name'
    """
    with target.connect() as client:
        found = _reports(client)
    if json:
        for one in found:
            write_json(one)
        return
    if not found:
        say("no pipeline has reported since the server started; see `headwater pipeline run`")
        return
    console().print(_table(found))


@with_target
def show(target: Target, name: Name, json: Json = False) -> None:
    """Show how a pipeline is doing.

    Examples:

      headwater pipeline show archive-orders
      headwater pipeline show archive-orders --json | jq .lag_s
    """
    with target.connect() as client:
        one = _named(_reports(client), name)
    if json:
        write_json(one)
        return
    write_facts(_facts(one))


@with_target
def pause(target: Target, name: Name, yes: Yes = False) -> None:
    """Pause a pipeline until `resume`, even if it is restarted.

    Waits until the pipeline confirms that it has paused. With --yes, a
    pipeline that never reported gets the order anyway, for when it runs.

    Examples:

      headwater pipeline pause archive-orders
    """
    with target.connect() as client:
        _tell(client, Order(name, "pause"), yes=yes)


@with_target
def resume(target: Target, name: Name, yes: Yes = False) -> None:
    """Continue a paused pipeline where it stopped.

    Examples:

      headwater pipeline resume archive-orders
    """
    with target.connect() as client:
        _tell(client, Order(name, "resume"), yes=yes)


@with_target
def reset(
    target: Target,
    name: Name,
    to: Annotated[str, typer.Option("--to", metavar="PLACE", help=f"{PLACES}.")],
    stream: Annotated[
        str | None,
        typer.Option("--stream", metavar="STREAM", help="Only this stream of the pipeline."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Make a pipeline continue from another position.

    Tables store each message once, however often it is read. So moving back
    refills tables that were removed, and changes no others. After moving
    forward, skipped messages stay out of the tables for good.

    Asks first. Without a terminal, it does nothing unless --yes is given.

    Examples:

      headwater pipeline reset archive-orders --to first
      headwater pipeline reset archive-orders --to @2h --yes
      headwater pipeline reset archive-shops --stream shops/berlin --to latest
    """
    where = parse_where(to)
    with target.connect(stream=stream) as client:
        known = {one.name: one for one in _reports(client)}.get(name)
        if known is not None and known.kind == "snapshot":
            raise usage("a snapshot has no position of its own to reset")
        place: To
        if isinstance(where, At) and where.text in _ENDS and stream is None:
            place = "earliest" if where.text == START else "latest"
        else:
            chosen = stream or _only_stream(known)
            place = {chosen: _place(client, chosen, to)}
        if not yes:
            _confirm(target, name, place)
        _tell(client, Order(name, "reset", place), yes=yes)


def _only_stream(known: PipelineReportRecord | None) -> str:
    if known is None or not known.selection or "*" in known.selection or "," in known.selection:
        raise usage("this pipeline has several streams: say which one with --stream")
    return known.selection


def _place(client: Headwater, path: str, to: str) -> str:
    """A place in a stream as pipelines understand it: an end, or where an append begins."""
    handle = remote.open_stream(client, path)
    handle.head()
    text = find_place(client, handle, parse_where(to))
    if text in ("first", "latest"):
        return "earliest" if text == "first" else "latest"
    offset = text.partition("/")[0]
    handle.reach(offset, messages=0)
    return offset


def _confirm(target: Target, name: str, place: To) -> None:
    if not sys.stdin.isatty():
        raise usage("a reset needs a confirmation and there is no terminal; add --yes")
    where = place if isinstance(place, str) else ", ".join(f"{k} to {v}" for k, v in place.items())
    typer.echo(f"Reset {name} on {target.url} ({where})? [y/N] ", nl=False, err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CliError("nothing was reset")


# --- Telling -------------------------------------------------------------------------------------


def _tell(client: Headwater, order: Order, *, yes: bool) -> None:
    """Send an order, and wait until the pipeline has received it if it runs."""
    reports = _reports(client)
    if not yes:
        _named(reports, order.pipeline)
    control = client.stream(CONTROL)
    control.ensure(content_type=JSON)
    told = control.append(order).next_offset
    runs = any(one.name == order.pipeline and _is_awake(one) for one in reports)
    if not runs or told is None:
        say(f"{order.pipeline} does not run now; it will {order.do} when it does")
        return
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        now = {one.name: one for one in _reports(client)}.get(order.pipeline)
        if now is not None and now.obeyed is not None and now.obeyed >= told:
            say(f"{order.pipeline} is {now.state}" + (" again" if order.do == "resume" else ""))
            return
        time.sleep(_POLL_S)
    say(f"{order.pipeline} has not answered yet; it was told to {order.do}")


def _is_awake(one: PipelineReportRecord) -> bool:
    return one.state != "ended" and one.reported > (time.time() - _SILENT_S) * 1000


# --- Showing -------------------------------------------------------------------------------------


class _Reports(msgspec.Struct):
    pipelines: list[PipelineReportRecord]


def _reports(client: Headwater) -> list[PipelineReportRecord]:
    try:
        answer = client.request("GET", "/v1/pipelines")
    except StreamNotFound:
        raise NotSupported(f"{remote.server_url(client)} knows no pipelines") from None
    return decoded(answer, _Reports).pipelines


def _named(reports: list[PipelineReportRecord], name: str) -> PipelineReportRecord:
    known = {one.name: one for one in reports}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "`headwater pipeline ls` lists those that have"
    raise CliError(
        f"no pipeline {name!r} has reported since the server started: {hint}", ExitCode.NOT_FOUND
    )


def _table(found: list[PipelineReportRecord]) -> Table:
    table = new_table(
        "PIPELINE", "STATE", "#ROWS/S", "#BATCH", "#LAG", "#LATE", "#SEEN", "ERROR", folding=1
    )
    for one in found:
        table.add_row(
            one_line(one.name),
            one_line(one.state if _is_awake(one) or one.state == "ended" else f"{one.state}?"),
            f"{one.rows_per_s:,.0f}",
            f"{one.batch_ms} ms",
            "-" if one.lag_messages is None else f"{one.lag_messages:,}",
            age(one.lag_s) if one.lag_s else "-",
            age(_since_s(one.reported)),
            one_line(one.error or "-")[:60],
        )
    return table


def _facts(one: PipelineReportRecord) -> dict[str, object]:
    apart = None
    if one.on_error == "quarantine":
        apart = f"{one.quarantined or 0:,} in {quarantine_of(one.name)}"
    left = None if one.maintenance_in is None else f"in {one.maintenance_in} commits of a table"
    failed = f" ({instant(one.last_error_at)})" if one.last_error_at else ""
    return {
        "name": one.name,
        "pipeline": one.kind,
        "state": one.state,
        "streams": f"{one.selection} ({one.streams})" if one.selection else None,
        "tables": one.root or None,
        "last batch": f"{one.batch}, {one.rows:,} rows in {one.batch_ms} ms",
        "rate": f"{one.rows_per_s:,.0f} rows/s",
        "lag": None if one.lag_messages is None else f"{one.lag_messages:,} messages",
        "late": age(one.lag_s) if one.lag_s else None,
        "on error": one.on_error,
        "quarantined": apart,
        "last error": f"{one.last_error}{failed}" if one.last_error else "none",
        "maintenance": left,
        "reported": f"{age(_since_s(one.reported))} ago",
    }


def _since_s(at_ms: int) -> float:
    return max(0.0, time.time() - at_ms / 1000)
