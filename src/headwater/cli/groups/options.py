"""The settings of a group on the command line."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headwater.cli import remote
from headwater.cli.positions import PLACES, find_place, parse_where
from headwater.cli.quantities import parse_seconds
from headwater.client import Group, GroupInfo, GroupNotFound, Headwater, Stream

Start = Annotated[
    str | None,
    typer.Option("--start", metavar="WHERE", help=f"Where it starts: {PLACES}. Default: first."),
]
AckTimeout = Annotated[
    str | None,
    typer.Option(
        "--ack-timeout",
        metavar="TIME",
        help="How long a member may keep a message before another gets it. Default: 30s.",
    ),
]
MaxDeliveries = Annotated[
    int | None,
    typer.Option(
        "--max-deliveries",
        min=0,
        metavar="COUNT",
        help="Give up on a message after this many deliveries. Default: 0, never.",
    ),
]
DeadLetter = Annotated[
    str | None,
    typer.Option(
        "--dead-letter",
        metavar="STREAM",
        help="Stream for messages that are given up or rejected. Without it, they are dropped.",
        autocompletion=remote.complete_stream,
    ),
]


def find_group(group: Group) -> GroupInfo | None:
    """A group's details; None if it does not exist."""
    try:
        return group.info()
    except GroupNotFound:
        return None


def group_settings(
    client: Headwater,
    stream: Stream,
    start: str | None,
    ack_timeout: str | None,
    max_deliveries: int | None,
    dead_letter: str | None,
) -> dict[str, Any]:
    """The settings of a new group, as the client takes them."""
    dead = None if dead_letter is None else remote.open_stream(client, dead_letter).path
    return {
        "start": None if start is None else find_place(client, stream, parse_where(start)),
        "ack_timeout_s": None if ack_timeout is None else parse_seconds(ack_timeout),
        "max_deliveries": max_deliveries,
        "dead_letter": dead,
    }
