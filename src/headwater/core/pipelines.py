"""The pipelines from streams to tables: their names, and where a lake keeps what they make.

The tables of `archive` are below `archive`, those of `materialize` below `state` and their change
feeds below `changes`, that of `rollup` is `rollup`, and how far each pipeline is, is noted below
`_pipelines`.

A pipeline is steered by orders, which are messages of the stream `pipelines/control`: that is as
durable as any other stream, any process can append to it, and a pipeline finds what it was told
while it was away. An order is `{"pipeline": NAME, "do": …}`:

* `pause`: take in nothing until the next `resume`. The last one of the two counts.
* `resume`: go on where it was paused.
* `reset`: read on from another place. `to` is `earliest` or `latest`, or an object from stream to
  one of these or an offset; streams that it does not name stay where they are. A pipeline that
  begins again has nothing to reset, so it heeds none of those that were given before. Whatever is
  read again, no table takes in a message twice.

What is no order, or is for another pipeline, is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Pipeline = Literal["archive", "materialize", "snapshot", "rollup"]
PIPELINES: Final[dict[Pipeline, str]] = {
    "archive": "streams into one append-only table each",
    "materialize": "State Protocol streams into tables of their current state",
    "snapshot": "the current state of a stream, left at the server for new readers",
    "rollup": "messages and bytes per window of time, stream and entity",
}
ALWAYS_ON: Final[tuple[Pipeline, ...]] = ("archive", "materialize", "rollup")
"""What `headwater up` keeps running."""

ARCHIVE: Final = "archive"
STATE: Final = "state"
CHANGES: Final = "changes"
ROLLUP: Final = "rollup"
PROGRESS: Final = "_pipelines"
CONTROL: Final = "pipelines/control"
"""The stream of orders."""
QUARANTINE: Final = "quarantine"
"""Below it are the streams of what pipelines could not take in, each named as its pipeline."""

LOCAL_MASTER: Final = "local[*,4]"
"""All cores of this machine; a task is tried up to four times, as Spark does on a cluster."""

State = Literal["running", "paused", "failing", "ended"]
OnError = Literal["fail", "quarantine"]
ON_ERROR: Final[dict[OnError, str]] = {
    "fail": "stop at a message that does not fit",
    "quarantine": "append it to a stream of its own and go on",
}

Place = Literal["earliest", "latest"]
To = dict[str, str] | Place


class Order(msgspec.Struct, frozen=True):
    """What a pipeline is told to do."""

    pipeline: str
    do: Literal["pause", "resume", "reset"]
    to: To = "earliest"


class Standing(msgspec.Struct, frozen=True):
    """What a pipeline was told so far, as it notes it."""

    obeyed: str | None = None
    """Up to where in the stream of orders."""
    paused: bool = False


def standing_after(
    orders: Iterable[bytes | msgspec.Raw], name: str, before: Standing
) -> tuple[Standing, list[To]]:
    """What a pipeline has been told after some messages of the stream, and its resets in order."""
    paused, resets = before.paused, []
    for text in orders:
        try:
            order = msgspec.json.decode(text, type=Order)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if order.pipeline != name:
            continue
        if order.do == "reset":
            resets.append(order.to)
        else:
            paused = order.do == "pause"
    return msgspec.structs.replace(before, paused=paused), resets


def quarantine_of(name: str) -> str:
    """The stream of what a pipeline could not take in."""
    return f"{QUARANTINE}/{name}"
