"""The pipelines from streams to tables: their names, and where a lake keeps what they make.

The tables of `archive` are below `archive`, those of `materialize` below `state`, that of `rollup`
is `rollup`, and how far each pipeline is, is noted below `_pipelines`.
"""

from __future__ import annotations

from typing import Final, Literal

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
ROLLUP: Final = "rollup"
PROGRESS: Final = "_pipelines"
