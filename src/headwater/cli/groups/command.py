"""`headwater group`: who works on the messages of a stream, and how far they got."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from headwater.cli import remote
from headwater.cli.exits import CliError, ExitCode, usage
from headwater.cli.groups.options import (
    AckTimeout,
    DeadLetter,
    MaxDeliveries,
    Start,
    find_group,
    group_settings,
)
from headwater.cli.groups.view import group_facts, group_record, group_table, lag_table
from headwater.cli.output import (
    Json,
    console,
    is_terminal,
    report,
    write_facts,
    write_json,
    write_list,
)
from headwater.cli.positions import PLACES, find_place, parse_where
from headwater.cli.records import GroupRemovalRecord, LagRecord
from headwater.cli.shell import say
from headwater.cli.streams import Yes, confirm
from headwater.cli.target import Target, with_target
from headwater.client import GroupInfo, Stream
from headwater.client.protocol.extensions import following
from headwater.client.protocol.streams import decoded

app = typer.Typer(no_args_is_help=True)


class _StreamWithGroups(msgspec.Struct):
    stream: str


class _GroupsPage(msgspec.Struct):
    streams: list[_StreamWithGroups]
    next: int | None = None


# -10 is a place here, not an option.
_PLACES_ALLOWED: Final = {"ignore_unknown_options": True}


@app.callback()
def _group() -> None:
    """Share the messages of a stream between workers.

    A group gives each message to one worker at a time, and delivers it
    again if it is not acknowledged. `headwater consume` is such a worker.

    Examples:

      headwater group create orders packers --ack-timeout 1m
      headwater consume orders packers --exec ./pack.sh
      headwater group lag orders
      headwater group seek orders packers first
    """


@app.command()
@with_target
def ls(
    target: Target,
    stream: Annotated[
        str | None,
        typer.Argument(
            metavar="[STREAM]",
            help="Path of the stream; all groups of the server without it.",
            autocompletion=remote.complete_stream,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the groups of a stream, or of all: a table on a terminal, otherwise a name per line.

    Without STREAM, each line is the stream, a tab and the name of the
    group.

    Examples:

      headwater group ls
      headwater group ls orders
      headwater group ls --json | jq -r 'select(.lag_messages > 1000) | .name'
    """
    if stream is None:
        found = _all_groups(target)
    else:
        path, groups = _groups(target, stream)
        found = [(path, group) for group in groups]
    write_list(
        found,
        json=json,
        record=lambda one: group_record(*one),
        line=lambda one: one[1].name if stream is not None else f"{one[0]}\t{one[1].name}",
        table=lambda groups: group_table(groups, with_streams=stream is None),
        nothing=f"no groups; create one with `headwater group create {stream or 'STREAM'} NAME`",
    )


@app.command()
@with_target
def info(
    target: Target, stream: remote.StreamPath, group: remote.GroupName, json: Json = False
) -> None:
    """Show the position, members and settings of a group.

    Examples:

      headwater group info orders packers
      headwater group info orders packers --json | jq .members
    """
    with target.connect(stream=stream, group=group) as client:
        handle = remote.open_stream(client, stream)
        record = group_record(handle.path, remote.open_group(handle, group).info())
    if json:
        write_json(record)
        return
    write_facts(group_facts(record))


@app.command()
@with_target
def lag(
    target: Target,
    stream: remote.StreamPath,
    group: Annotated[
        str | None,
        typer.Argument(
            metavar="GROUP",
            help="Name of the group; all groups of the stream without it.",
            autocompletion=remote.complete_group,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show how far groups are behind: messages, bytes and seconds.

    Messages are those not yet acknowledged, whether delivered or not. Bytes
    are counted from the oldest of them to the end, and seconds are the age
    of the oldest.

    Examples:

      headwater group lag orders
      headwater group lag orders packers --json | jq .seconds
    """
    if group is None:
        path, groups = _groups(target, stream)
    else:
        with target.connect(stream=stream, group=group) as client:
            handle = remote.open_stream(client, stream)
            path, groups = handle.path, [remote.open_group(handle, group).info()]
    if json:
        for each in groups:
            write_json(
                LagRecord(
                    stream=path,
                    name=each.name,
                    messages=each.lag,
                    bytes=each.lag_bytes,
                    seconds=each.oldest_unsettled_age_s,
                )
            )
    elif groups:
        console().print(lag_table(groups))
    elif is_terminal():
        say(f"no groups; create one with `headwater group create {path} NAME`")


@app.command()
@with_target
def create(
    target: Target,
    stream: remote.StreamPath,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the new group.")],
    start: Start = None,
    ack_timeout: AckTimeout = None,
    max_deliveries: MaxDeliveries = None,
    dead_letter: DeadLetter = None,
    max_in_flight: Annotated[
        int | None,
        typer.Option(
            "--max-in-flight",
            min=1,
            metavar="COUNT",
            help="How many messages all members together may hold. Default: 1000.",
        ),
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(
            "--order-by",
            metavar="POINTER",
            help="Keep messages with the same value at this pointer in order: /customer.",
        ),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Delete the group when its last member is gone.")
    ] = False,
    if_missing: Annotated[
        bool,
        typer.Option("--if-missing", help="Succeed if the group exists, and leave it as it is."),
    ] = False,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="If the group exists, change these settings and keep the others. It keeps its "
            "position.",
        ),
    ] = False,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            min=1,
            metavar="NUMBER",
            help="Version of these settings; they are applied if the group has an older one.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Create a group, or change its settings.

    If the group exists, that is an error (exit code 4), unless --update,
    --if-missing or --version says what to do.

    Examples:

      headwater group create orders packers
      headwater group create orders mail --start latest --order-by /customer
      headwater group create orders billing --max-deliveries 5 --dead-letter orders/failed
      headwater group create orders packers --ack-timeout 5m --update
      headwater group create orders packers --version 2 --ack-timeout 10m
    """
    if if_missing + update + (version is not None) > 1:
        raise usage("use one of --if-missing, --update and --version")
    with target.connect(stream=stream, group=group) as client:
        handle = remote.open_stream(client, stream)
        opened = remote.open_group(handle, group)
        present = find_group(opened)
        changes = update or version is not None
        if present is not None and not (if_missing or changes):
            raise CliError(
                f"the group {group!r} exists already; --if-missing leaves it as it is, --update "
                "changes its settings",
                ExitCode.CONFLICT,
            )
        if present is None or changes:
            settings = group_settings(
                client, handle, start, ack_timeout, max_deliveries, dead_letter
            )
            present = opened.ensure(
                **settings,
                max_in_flight=max_in_flight,
                order_by=order_by,
                durable=False if ephemeral else None,
                version=version,
            )
        _report(handle, present, "created", json=json)


@app.command(context_settings=_PLACES_ALLOWED)
@with_target
def seek(
    target: Target,
    stream: remote.StreamPath,
    group: remote.GroupName,
    to: Annotated[str, typer.Argument(metavar="TO", help=f"Where to continue: {PLACES}.")],
    json: Json = False,
) -> None:
    """Move a group to another position, to repeat or skip messages.

    The group forgets what it has delivered: members can no longer
    acknowledge it. On a terminal, the old position is shown.

    Examples:

      headwater group seek orders packers first
      headwater group seek orders packers latest
      headwater group seek orders packers -10       # the last ten once more
      headwater group seek orders packers @2h       # everything since two hours ago
    """
    where = parse_where(to)
    with target.connect(stream=stream, group=group) as client:
        handle = remote.open_stream(client, stream)
        opened = remote.open_group(handle, group)
        before = opened.info()
        opened.seek(find_place(client, handle, where))
        _report(handle, opened.info(), f"moved from {before.position}:", json=json)


@app.command()
@with_target
def pause(
    target: Target, stream: remote.StreamPath, group: remote.GroupName, json: Json = False
) -> None:
    """Deliver nothing until `resume`. Messages already delivered can still be acknowledged.

    Examples:

      headwater group pause orders packers
    """
    _switch(target, stream, group, paused=True, json=json)


@app.command()
@with_target
def resume(
    target: Target, stream: remote.StreamPath, group: remote.GroupName, json: Json = False
) -> None:
    """Deliver messages again.

    Examples:

      headwater group resume orders packers
    """
    _switch(target, stream, group, paused=False, json=json)


@app.command()
@with_target
def rm(
    target: Target,
    stream: remote.StreamPath,
    group: remote.GroupName,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete a group and its position. The stream stays as it is.

    Asks first. Without a terminal to ask on, it does nothing unless --yes
    is given.

    Examples:

      headwater group rm orders packers
      headwater group ls orders | xargs -n 1 headwater group rm --yes orders
    """
    if not yes:
        confirm(target, f"group {group} of {stream}")
    with target.connect(stream=stream, group=group) as client:
        handle = remote.open_stream(client, stream)
        remote.open_group(handle, group).delete()
        record = GroupRemovalRecord(stream=handle.path, name=group)
        report(record, f"deleted group {group} of {handle.path}", json=json)


# --- Parts ---------------------------------------------------------------------------------------


def _all_groups(target: Target) -> list[tuple[str, GroupInfo]]:
    """The groups of all streams that the caller may see, stream by stream."""
    found: list[tuple[str, GroupInfo]] = []
    after: int | None = 0
    with target.connect() as client:
        while after is not None:
            answer = client.request("GET", "/v1/groups", params={"after": str(after)})
            page = decoded(answer, _GroupsPage)
            for one in page.streams:
                groups = sorted(client.stream(one.stream).groups(), key=lambda group: group.name)
                found += [(one.stream, group) for group in groups]
            after = following(after, page.next)
    return found


def _groups(target: Target, stream: str) -> tuple[str, list[GroupInfo]]:
    with target.connect(stream=stream) as client:
        handle = remote.open_stream(client, stream)
        return handle.path, sorted(handle.groups(), key=lambda group: group.name)


def _switch(target: Target, stream: str, group: str, *, paused: bool, json: bool) -> None:
    with target.connect(stream=stream, group=group) as client:
        handle = remote.open_stream(client, stream)
        opened = remote.open_group(handle, group)
        if paused:
            opened.pause()
        else:
            opened.resume()
        _report(handle, opened.info(), "paused" if paused else "resumed", json=json)


def _report(stream: Stream, group: GroupInfo, done: str, *, json: bool) -> None:
    record = group_record(stream.path, group)
    report(record, f"{done} group {group.name} of {stream.path}", json=json)
