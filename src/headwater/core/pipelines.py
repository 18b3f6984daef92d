"""The pipelines from streams to tables: their names, and where a lake keeps their output.

The tables of `archive` are below `archive`, those of `materialize` below `state` and their change
feeds below `changes`, that of `rollup` is `rollup`, and the progress of each pipeline is recorded
below `_pipelines`.

Orders control a pipeline. They are messages of the stream `pipelines/control`, which is as durable
as any other stream: any process can append to it, and a pipeline finds the orders given while it
was not running. An order is `{"pipeline": NAME, "do": …}`:

* `pause`: read nothing until the next `resume`. The last one of the two counts.
* `resume`: continue where it was paused.
* `reset`: continue reading from another place. `to` is `earliest` or `latest`, or an object from
  stream to one of these or an offset; streams that it does not name stay where they are. A pipeline
  that starts from scratch has nothing to reset, so it ignores earlier resets. Whatever is read
  again, no table stores a message twice.

Messages that are not orders, or are for another pipeline, are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Pipeline = Literal["archive", "materialize", "snapshot", "rollup"]
PIPELINES: Final[dict[Pipeline, str]] = {
    "archive": "streams into one append-only table each",
    "materialize": "State Protocol streams into tables of their current state",
    "snapshot": "the current state of a stream, stored on the server for new readers",
    "rollup": "messages and bytes per window of time, stream and entity",
}
ALWAYS_ON: Final[tuple[Pipeline, ...]] = ("archive", "materialize", "rollup")
"""The pipelines that `headwater up` keeps running."""

ARCHIVE: Final = "archive"
STATE: Final = "state"
CHANGES: Final = "changes"
ROLLUP: Final = "rollup"
PROGRESS: Final = "_pipelines"
CONTROL: Final = "pipelines/control"
"""The stream of orders."""
QUARANTINE: Final = "quarantine"
"""The streams of messages that pipelines could not process are below it, one per pipeline."""

LOCAL_MASTER: Final = "local[*,4]"
"""All cores of this machine; up to four attempts per task, as Spark does on a cluster."""

State = Literal["running", "paused", "failing", "ended"]
OnError = Literal["fail", "quarantine"]
ON_ERROR: Final[dict[OnError, str]] = {
    "fail": "stop at a message that does not fit",
    "quarantine": "append it to a stream of its own and go on",
}

Place = Literal["earliest", "latest"]
To = dict[str, str] | Place


class Order(msgspec.Struct, frozen=True):
    """An instruction to a pipeline."""

    pipeline: str
    do: Literal["pause", "resume", "reset"]
    to: To = "earliest"


class Standing(msgspec.Struct, frozen=True):
    """The effect of all orders so far, as the pipeline records it."""

    obeyed: str | None = None
    """The position in the stream of orders."""
    paused: bool = False


def standing_after(
    orders: Iterable[bytes | msgspec.Raw], name: str, before: Standing
) -> tuple[Standing, list[To]]:
    """The standing after some messages of the stream, and the resets in order."""
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
    """The stream of messages that a pipeline could not process."""
    return f"{QUARANTINE}/{name}"
