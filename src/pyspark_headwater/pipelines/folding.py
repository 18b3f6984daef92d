"""Which changes of a State Protocol stream count, for a whole batch at once. No Spark.

A stream is folded message by message (see `headwater.core.state_protocol`); Spark processes a whole
batch. Only control messages make the order matter, and there are few of them, so the driver walks
over those and determines which intervals of the batch count. A property test compares the result
with the fold of the core.

What an unfinished snapshot (or a reset that waits for its offset) has collected is not lost: it is
set aside, and processed again together with the next batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from headwater.core.state_protocol import RESET, SNAPSHOT_START, is_before


class Place(NamedTuple):
    """The place of a message in its stream. Places sort like the messages."""

    offset: str
    number: int
    """Its index in the append."""


FIRST: Final = Place("", -1)
"""Before every message."""


class Control(NamedTuple):
    """A control message."""

    place: Place
    kind: str
    offset: str | None = None
    """The offset that a reset names."""


class Interval(NamedTuple):
    """Messages after `after`, up to and including `last`; None: to the end."""

    after: Place
    last: Place | None

    def holds(self, place: Place) -> bool:
        return self.after < place and (self.last is None or place <= self.last)


@dataclass(frozen=True, slots=True)
class Fold:
    """What a batch does to the state.

    Attributes:
        replaces: whether the state before the batch is void.
        intervals: which changes of the batch count, on top of that.
        aside: the first message to process again with the next batch, if any.
    """

    replaces: bool
    intervals: tuple[Interval, ...]
    aside: Place | None


def fold_controls(controls: Iterable[Control], last: Place) -> Fold:
    """Walk over the control messages of a batch that ends with the message at `last`."""
    replaces = False
    intervals: list[Interval] = []
    begin: Place | None = FIRST
    opened: Place | None = None
    waiting: tuple[Place, str] | None = None
    for control in sorted(controls):
        if waiting is not None and control.place.offset < waiting[1]:
            continue
        if control.kind == RESET:
            replaces, intervals, opened = True, [], None
            ahead = _ahead(control)
            waiting = None if ahead is None else (control.place, ahead)
            begin = control.place if ahead is None else Place(ahead, -1)
        elif control.kind == SNAPSHOT_START:
            if begin is not None:
                intervals.append(Interval(begin, control.place))
            begin, opened = None, control.place
        elif opened is not None:
            replaces, intervals = True, [Interval(opened, control.place)]
            begin, opened = control.place, None
    if begin is not None:
        intervals.append(Interval(begin, None))
    aside = opened
    if aside is None and waiting is not None and last.offset < waiting[1]:
        aside = waiting[0]
    return Fold(replaces, tuple(intervals), aside)


def _ahead(reset: Control) -> str | None:
    """The offset that a reset names, if it belongs to this stream and lies ahead."""
    return reset.offset if is_before(reset.place.offset, reset.offset) else None
