"""Which bytes of a run somebody still needs.

A stream needs its own run from the first position that it keeps, and of each run that it inherits
the part between that position and the end of what it inherits. A soft-deleted stream needs
nothing by itself; its forks do. What nobody needs may go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from headwater.core.stream import StreamConfig

END: Final = 2**63 - 1
Interval = tuple[int, int]


def needs_of(run: int, streams: Iterable[StreamConfig]) -> list[Interval]:
    """The parts of a run that these streams need, which are all that are there for anyone."""
    found: list[Interval] = []
    for config in streams:
        for span in config.lineage.spans(config.kept_from, END):
            if span.run == run:
                found.append((span.start, span.end))
    return found


def is_needed(start: int, end: int, needs: Sequence[Interval]) -> bool:
    return any(start < need_end and need_start < end for need_start, need_end in needs)
