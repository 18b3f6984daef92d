"""`headwater append`: from arguments, files and pipes into a stream."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import inputs, remote
from headwater.cli.append.job import Job, Tag
from headwater.cli.exits import usage
from headwater.cli.inputs import Message
from headwater.cli.output import Json, Progress
from headwater.cli.target import PATIENT_S, Target, with_target
from headwater.cli.units import Unit


@with_target
def append(
    target: Target,
    stream: remote.StreamPath,
    message: Annotated[
        str | None,
        typer.Argument(metavar="MESSAGE", help="A message; without it, messages come from stdin."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            exists=True,
            dir_okay=False,
            help="Read this file instead of stdin; repeatable.",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Send all input unchanged as one append, not line by line."),
    ] = False,
    producer: Annotated[
        str | None,
        typer.Option(
            "--producer", metavar="ID", help="Write under this name, so that it is safe to repeat."
        ),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option(
            "--epoch",
            min=0,
            metavar="NUMBER",
            help="Number of the input under that name: the same to repeat it, a higher one for "
            "different input.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            max=100_000,
            metavar="COUNT",
            help="Lines per request with --producer. More is faster, but only for input that is "
            "complete and does not change (default: 1).",
            show_default=False,
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="Id of MESSAGE, in a stream that takes each id once."
        ),
    ] = None,
    seq: Annotated[
        str | None,
        typer.Option(
            "--seq", metavar="TEXT", help="Refuse MESSAGE unless this sorts after the last one."
        ),
    ] = None,
    close: Annotated[bool, typer.Option("--close", help="Close the stream afterwards.")] = False,
    json: Json = False,
) -> None:
    """Append messages to a stream.

    Without MESSAGE, every line of stdin is a message: a JSON value in a
    JSON stream, or a line of text (with its line feed) in any other. Lines
    are sent as they arrive. With --raw, the whole input is one append; in a
    JSON stream, the elements of a top-level array are then separate
    messages.

    With --producer and --epoch, you can run the same command again until it
    succeeds, even if its input has grown in the meantime, and every line is
    stored once. Different input under the same ID needs a higher --epoch,
    such as a date or a run number.

    With --id, you can send a single message again: a stream created with
    --unique-ids stores it once.

    Examples:

      headwater append orders '{"id": 1}'
      tail -f app.log | headwater append logs
      headwater append orders --file orders.ndjson --producer import --epoch 7
      headwater append photos --raw < cat.jpg
      headwater append payments '{"amount": 5}' --id payment-17
    """
    files = file or []
    if (id is not None or seq is not None) and (message is None or producer is not None):
        raise usage("--id and --seq are for one MESSAGE, without --producer")
    if message is not None and (files or raw):
        raise usage("use MESSAGE, --file or --raw, not several of them")
    if producer is None and (epoch is not None or batch is not None):
        raise usage("--epoch and --batch belong to --producer")
    if producer is not None and epoch is None:
        raise usage(
            "--producer needs --epoch NUMBER: the same number repeats an earlier run, a higher one "
            "is for other input"
        )
    if producer is not None and not (producer.isascii() and producer.isprintable()):
        raise usage("the ID of a producer must be an ASCII name")
    with target.connect(stream=stream) as client:
        # Check that the stream exists, and what it holds. This fails quickly; the rest is patient.
        info = remote.open_stream(client, stream).head()
    unit = Unit.of(info.content_type)
    whole = message is not None or raw
    messages = _one_piece(message, files, unit) if whole else inputs.read_messages(files, unit)
    tag = None if producer is None else Tag(producer, epoch or 0, batch or 1, whole)
    job = Job(stream, close=close)
    total = inputs.total_bytes(files)
    shown = not sys.stdin.isatty() or bool(files)
    with (
        target.connect(patience_s=PATIENT_S, stream=stream) as client,
        Progress(f"appending to {stream}", total=total, visible=shown) as progress,
    ):
        handle = remote.open_stream(client, stream, info.content_type)
        if tag is not None and close and info.closed:
            job.recognise(client, handle, tag, messages)
        elif whole and tag is None:
            job.send_plainly(handle, [message.data for message in messages], id=id, seq=seq)
        else:
            job.send(handle, tag, messages, progress)
    job.report(tag, json=json)


def _one_piece(message: str | None, files: Sequence[Path], unit: Unit) -> list[Message]:
    """The messages of a single append."""
    if message is None:
        data = inputs.read_whole(files)
        pieces = inputs.split_json(data) if unit is Unit.MESSAGE else [data]
    elif unit is Unit.MESSAGE:
        pieces = [inputs.check_json(os.fsencode(message), "the message")]
    else:
        # A separate line in a text stream; just these bytes in any other.
        pieces = [os.fsencode(message) + (b"\n" if unit is Unit.LINE else b"")]
    if not any(pieces):
        raise usage("there is nothing to append; the input is empty")
    return [Message(piece, 0) for piece in pieces]
