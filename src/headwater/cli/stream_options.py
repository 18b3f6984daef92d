"""The settings of a stream on the command line."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from headwater.cli.exits import usage
from headwater.cli.quantities import parse_moment, parse_seconds

Ttl = Annotated[
    str | None,
    typer.Option(
        "--ttl", metavar="TIME", help="Delete it after this long without access: 90s, 1h, 30d."
    ),
]
ExpiresAt = Annotated[
    str | None,
    typer.Option(
        "--expires-at", metavar="TIME", help="Delete it at this time: 2026-01-31T12:00:00Z."
    ),
]
Keep = Annotated[
    str | None,
    typer.Option("--keep", metavar="TIME", help="Drop messages older than this: 12h, 30d."),
]
KeepBytes = Annotated[
    str | None,
    typer.Option(
        "--keep-bytes",
        metavar="SIZE",
        help="Drop the oldest messages beyond this size: 500MB, 10GiB.",
    ),
]
Durability = Annotated[
    Literal["synced", "relaxed"] | None,
    typer.Option(
        "--durability",
        help="synced (the default) acknowledges appends once they are on disk, relaxed before "
        "that.",
    ),
]
Description = Annotated[
    str | None, typer.Option("--description", metavar="TEXT", help="What the stream is for.")
]
Prefix = Annotated[str, typer.Option("--prefix", help="Only streams whose path begins with this.")]
UniqueIds = Annotated[
    Literal["fail", "succeed"] | None,
    typer.Option(
        "--unique-ids",
        help="Take each message id once: fail refuses a duplicate, succeed reports it as stored.",
    ),
]
IdPointer = Annotated[
    str | None,
    typer.Option(
        "--id-pointer",
        metavar="POINTER",
        help="Where the id is inside a JSON message: /id. Without it, each append names the id.",
    ),
]


def seconds_of(span: str | None) -> int | None:
    """A duration in whole seconds, which is how the server counts it."""
    if span is None:
        return None
    seconds = parse_seconds(span)
    if not seconds.is_integer():
        raise usage(f"{span!r} is too precise; use whole seconds")
    return int(seconds)


def moment_of(expires_at: str | None, ttl: str | None) -> str | None:
    """When a stream expires, if that was given and nothing contradicts it."""
    if expires_at is None:
        return None
    if ttl is not None:
        raise usage("use --ttl or --expires-at, not both")
    parse_moment(expires_at)
    return expires_at
