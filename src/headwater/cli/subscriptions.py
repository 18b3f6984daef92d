"""`headwater subscription`: webhooks and workers woken when streams have something new."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from headwater.cli import remote
from headwater.cli.exits import CliError, ExitCode, one_line, usage
from headwater.cli.output import (
    Json,
    new_table,
    report,
    write_facts,
    write_json,
    write_line,
    write_list,
)
from headwater.cli.records import (
    KeySetRecord,
    LinkRecord,
    SubscriptionRecord,
    SubscriptionRemovalRecord,
    WakeRecord,
)
from headwater.cli.stream_options import Description
from headwater.cli.streams import Yes, confirm
from headwater.cli.target import Target, with_target
from headwater.client import (
    Headwater,
    LinkedStream,
    NoPendingWork,
    Subscription,
    SubscriptionInfo,
)
from headwater.client.protocol.streams import decoded

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A subscription.")]


@app.callback()
def _subscription() -> None:
    """Wake webhooks and workers when streams have new messages.

    Examples:

      headwater subscription create mail 'inbox/*' --webhook https://example.com/hook
      headwater subscription create jobs 'jobs/**' --wake-stream job-wakes
      headwater subscription ls
    """


@app.command()
@with_target
def create(
    target: Target,
    name: Name,
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="PATTERN", help="Pattern of streams: * is one segment, ** any number."
        ),
    ] = None,
    webhook: Annotated[
        str | None, typer.Option("--webhook", metavar="URL", help="The https address to call.")
    ] = None,
    wake_stream: Annotated[
        str | None,
        typer.Option(
            "--wake-stream",
            metavar="STREAM",
            help="Or the stream to which each wake appends an event.",
            autocompletion=remote.complete_stream,
        ),
    ] = None,
    streams: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            metavar="STREAM",
            help="Another stream, by name; repeatable.",
            autocompletion=remote.complete_stream,
        ),
    ] = None,
    lease: Annotated[
        float | None,
        typer.Option(
            "--lease",
            metavar="SECONDS",
            help="How long a worker may hold a wake without reporting.",
        ),
    ] = None,
    description: Description = None,
    json: Json = False,
) -> None:
    """Create a subscription. Repeating it is fine, but it cannot be changed.

    Existing streams start at their end, later ones at their beginning.

    Examples:

      headwater subscription create mail 'inbox/*' --webhook https://example.com/hook
      headwater subscription create jobs --stream jobs/urgent --wake-stream job-wakes
    """
    if (webhook is None) == (wake_stream is None):
        raise usage("use --webhook or --wake-stream, one of the two")
    if pattern is None and not streams:
        raise usage("use PATTERN or --stream, or both")
    with target.connect() as client:
        info = _open(client, name).create(
            webhook=webhook,
            wake_stream=wake_stream,
            pattern=pattern,
            streams=streams or [],
            lease_ttl_s=lease,
            description=description,
        )
    report(_record(info), f"created {name}; {info.streams_total} streams match now", json=json)


@app.command()
@with_target
def ls(
    target: Target,
    prefix: Annotated[str, typer.Option("--prefix", help="Only names that begin with this.")] = "",
    json: Json = False,
) -> None:
    """List subscriptions: a table on a terminal, otherwise one name per line.

    Examples:

      headwater subscription ls
      headwater subscription ls --json | jq -r 'select(.status == "failed") | .name'
    """
    with target.connect() as client:
        found = client.subscriptions(prefix)
    write_list(
        found,
        json=json,
        record=_record,
        line=lambda info: info.name,
        table=_table,
        nothing="no subscriptions; make one with `headwater subscription create NAME`",
    )


@app.command()
@with_target
def info(target: Target, name: Name, json: Json = False) -> None:
    """Show a subscription, and how far it got in each of its streams.

    Examples:

      headwater subscription info mail
      headwater subscription info mail --json | jq -r '.streams[] | select(.pending) | .name'
    """
    with target.connect() as client:
        found = _open(client, name).info()
    record = _record(found)
    if json:
        write_json(record)
        return
    write_facts(
        {
            "subscription": record.name,
            "description": record.description,
            "pattern": record.pattern,
            "webhook": record.webhook,
            "wake stream": record.wake_stream,
            "lease": f"{record.lease_s:g} s",
            "status": record.status,
            "state": record.state,
            "generation": record.generation,
            "holder": record.holder,
            "failures": record.failures or None,
            "streams": record.streams_total,
            "pending": record.streams_pending,
        }
    )
    for link in record.streams:
        mark = "*" if link.pending else " "
        write_line(f"{mark} {one_line(link.name)}  {link.acked_offset}")


@app.command()
@with_target
def add(target: Target, name: Name, streams: remote.StreamPaths, json: Json = False) -> None:
    """Add streams by name. Existing ones start at their end.

    Examples:

      headwater subscription add jobs jobs/urgent jobs/later
    """
    with target.connect() as client:
        subscription = _open(client, name)
        subscription.add_streams(streams)
        found = subscription.info()
    report(_record(found), f"{name} has {found.streams_total} streams now", json=json)


@app.command()
@with_target
def drop(target: Target, name: Name, streams: remote.StreamPaths, json: Json = False) -> None:
    """Remove streams by name. Streams that match the pattern stay.

    Examples:

      headwater subscription drop jobs jobs/later
    """
    with target.connect() as client:
        subscription = _open(client, name)
        for stream in streams:
            subscription.remove_stream(stream)
        found = subscription.info()
    report(_record(found), f"{name} has {found.streams_total} streams now", json=json)


@app.command()
@with_target
def claim(
    target: Target,
    name: Name,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="COMMAND",
            help="Run this with the streams as JSON on stdin; exit code 0 acknowledges them.",
        ),
    ] = None,
    ack: Annotated[
        bool, typer.Option("--ack", help="Acknowledge what is pending, without a command.")
    ] = False,
    worker: Annotated[
        str | None,
        typer.Option("--worker", metavar="NAME", help="Name of the worker that claims it."),
    ] = None,
    json: Json = False,
) -> None:
    """Claim the pending wake and handle it.

    With --exec, a command gets a line of JSON for each stream with
    something to do: its `name`, the `acked_offset` and the `tail_offset`.
    If it exits with 0, everything up to the tail is acknowledged; otherwise
    the wake is released, and this exits with 1. Without --exec or --ack,
    the wake is released at once. Exits with 3 if there is nothing to do,
    and with 4 if another worker has it.

    Examples:

      headwater subscription claim jobs
      headwater subscription claim jobs --exec ./work.sh
    """
    if command is not None and ack:
        raise usage("use --exec or --ack, not both")
    with target.connect() as client:
        try:
            taken = _open(client, name).claim(worker)
        except NoPendingWork:
            raise CliError(f"{name} has nothing to do", ExitCode.NOT_FOUND) from None
        links = [_link(stream) for stream in taken.pending]
        code = None
        try:
            code = None if command is None else _run(command, links)
        finally:
            # Whatever happened, the next worker need not wait for the lease to end.
            acked = code == 0 or ack
            if acked:
                taken.ack({link.name: link.tail_offset for link in links}, done=True)
            else:
                taken.release()
    record = WakeRecord(
        name=name,
        wake_id=taken.wake_id,
        generation=taken.generation,
        streams=links,
        outcome="acked" if acked else "released",
        exit_code=code,
    )
    if json:
        write_json(record)
    else:
        for link in links:
            write_line(f"{one_line(link.name)}\t{link.acked_offset}\t{link.tail_offset}")
    if code:
        raise CliError(f"the command ended with {code}; the wake went back")


def _run(command: str, links: list[LinkRecord]) -> int:
    lines = b"".join(msgspec.json.encode(link) + b"\n" for link in links)
    return subprocess.run(["/bin/sh", "-c", command], input=lines, check=False).returncode


@app.command()
@with_target
def keys(target: Target, json: Json = False) -> None:
    """Show the public keys for verifying requests to webhooks.

    Examples:

      headwater subscription keys --json > jwks.json
    """
    with target.connect() as client:
        record = decoded(client.request("GET", "/v1/stream/__ds/jwks.json"), KeySetRecord)
    if json:
        write_json(record)
    else:
        for key in record.keys:
            write_line(f"{key.get('kid', '')}\t{key.get('alg') or key.get('crv', '')}")


@app.command()
@with_target
def rm(
    target: Target,
    name: Name,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete a subscription. Its streams stay, but its position in them is forgotten.

    Examples:

      headwater subscription rm mail
    """
    if not yes:
        confirm(target, name)
    with target.connect() as client:
        _open(client, name).delete()
    report(SubscriptionRemovalRecord(name=name), f"deleted {name}", json=json)


def _open(client: Headwater, name: str) -> Subscription:
    if not name:
        raise usage("a subscription needs a name")
    return client.subscription(name)


def _record(info: SubscriptionInfo) -> SubscriptionRecord:
    return SubscriptionRecord(
        name=info.name,
        type=info.type,
        pattern=info.pattern,
        webhook=info.webhook,
        wake_stream=info.wake_stream,
        lease_s=info.lease_ttl_s,
        description=info.description,
        status=info.status,
        state=info.state,
        generation=info.generation,
        holder=info.holder,
        failures=info.failures,
        streams_total=info.streams_total,
        streams_pending=info.streams_pending,
        streams=[_link(stream) for stream in info.streams],
    )


def _link(stream: LinkedStream) -> LinkRecord:
    return LinkRecord(
        name=stream.path,
        explicit=stream.link_type == "explicit",
        acked_offset=stream.acked_offset,
        tail_offset=stream.tail_offset,
        pending=stream.has_pending,
    )


def _table(found: list[SubscriptionInfo]) -> Table:
    columns = ("NAME", "PATTERN", "WAKES", "STATUS", "STATE", "#STREAMS", "#PENDING")
    table = new_table(*columns, folding=3)
    for info in found:
        table.add_row(
            one_line(info.name),
            one_line(info.pattern or ""),
            one_line(info.webhook or info.wake_stream or ""),
            one_line(info.status),
            one_line(info.state),
            f"{info.streams_total:,}",
            f"{info.streams_pending:,}",
        )
    return table
