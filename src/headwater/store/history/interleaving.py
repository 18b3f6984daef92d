"""Many runs at once, in the order in which they were written.

Rows of streams that were written at the same time share pages of the database. Reading them run by
run would read every page as often as there are runs on it, and that is most of what sealing costs.
So, if a file takes most of what is between its first and its last row, those are read in order,
each page once, and every body is put in its place in the file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from headwater.store.history import gathering
from headwater.store.history.segment_writer import Beginning, SegmentBuilder
from headwater.store.rows import Row

_RUN = itemgetter(0)
_START = itemgetter(1)


class Share(NamedTuple):
    """What a file takes of a run, as the database had it when asked."""

    beginning: Beginning
    appends: int
    first_id: int
    last_id: int
    is_cut: bool
    """Whether the run has more."""

    @property
    def run(self) -> int:
        return self.beginning.run

    @property
    def until(self) -> int:
        return self.beginning.start + self.beginning.size_bytes


class Unsound(Exception):
    """The rows are not what the plan says: changed meanwhile, damaged, or in another order."""


def span(shares: Sequence[Share]) -> tuple[int, int]:
    """The first and the last row of some shares."""
    return min(one.first_id for one in shares), max(one.last_id for one in shares)


def is_worthwhile(shares: Sequence[Share]) -> bool:
    """Whether most rows in between are among the shares."""
    if len(shares) < 2:
        return False
    first, last = span(shares)
    return last - first < 2 * sum(one.appends for one in shares)


def add_together(
    builder: SegmentBuilder, shares: Sequence[Share], batches: Iterable[list[Row]]
) -> None:
    """Add an extent for each share from rows in the order of their ids; others are ignored."""
    builder.begin_together([one.beginning for one in shares])
    places = {one.run: one.beginning.start for one in shares}
    ends = {one.run: one.until for one in shares}
    for batch in batches:
        batch.sort(key=_RUN)
        for run, rows in groupby(batch, _RUN):
            if run in places:
                for taken in _taken([*rows], ends[run]):
                    if not gathering.are_sound(taken, places[run]):
                        raise Unsound
                    columns, bodies = gathering.as_columns(taken)
                    if columns.end > ends[run]:
                        raise Unsound
                    builder.add_to(run, columns, bodies)
                    places[run] = columns.end
    if places != ends:
        raise Unsound
    builder.end_together()


def _taken(rows: list[Row], end: int) -> Iterator[list[Row]]:
    """Those before the end, a slice at a time."""
    count = bisect_left(rows, end, key=_START)
    for first in range(0, count, gathering.SLICE_APPENDS):
        yield rows[first : min(count, first + gathering.SLICE_APPENDS)]
