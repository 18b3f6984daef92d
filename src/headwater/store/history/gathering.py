"""Rows of a run on their way into a file.

Sealing processes every append once more, next to the loop that takes new ones. So rows are taken in
slices, checked as little as is safe, and turned into columns at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import eq
from typing import Final

from headwater.core.limits import KIB
from headwater.core.producers import ProducerStamp
from headwater.store.checksums import append_checksums
from headwater.store.history.segment_format import Columns
from headwater.store.rows import Row, op_is_intact

SLICE_APPENDS: Final = 100
# A large body is a slice by itself, so that it is not copied into one.
SLICE_BYTES: Final = 512 * KIB


def in_slices(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows with the values of OP_COLUMNS, some at a time."""
    taken: list[Row] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += len(row[-1])
        if len(taken) == SLICE_APPENDS or size >= SLICE_BYTES:
            yield taken
            taken, size = [], 0
    if taken:
        yield taken


def count_sound(taken: Sequence[Row], position: int | None) -> int:
    """How many of these, from the first, are as committed and contiguous."""
    if not taken or are_sound(taken, position):
        return len(taken)
    for number, row in enumerate(taken):
        if (position is not None and row[1] != position) or not op_is_intact(row):
            return number
        position = row[1] + len(row[-1])
    return len(taken)


def are_sound(taken: Sequence[Row], position: int | None) -> bool:
    """Whether all of these are as committed and contiguous: the usual case, all at once."""
    runs, starts, _, _, _, sums, _, _, _, _, bodies = zip(*taken, strict=True)
    first = starts[0] if position is None else position
    ends = accumulate(map(len, bodies), initial=first)
    return (
        all(map(eq, starts, ends))
        and runs.count(runs[0]) == len(runs)
        and append_checksums(runs[0], starts, bodies) == [*sums]
    )


def count_fitting(taken: Sequence[Row], room_bytes: int) -> int:
    """How many of these, from the first, fit."""
    if sum([len(row[-1]) for row in taken]) <= room_bytes:
        return len(taken)
    for number, row in enumerate(taken):
        room_bytes -= len(row[-1])
        if room_bytes < 0:
            return number
    return len(taken)


def as_columns(taken: Sequence[Row]) -> tuple[Columns, bytes]:
    """All metadata of the appends in some rows, and their bodies joined."""
    _, starts, firsts, counts, times, sums, producers, epochs, seqs, ids, bodies = zip(
        *taken, strict=True
    )
    stamps: dict[int, ProducerStamp] = {}
    if producers.count(None) < len(taken):
        stamps = {
            number: ProducerStamp(producers[number], epochs[number], seqs[number])
            for number in range(len(taken))
            if producers[number] is not None
        }
    named: dict[int, str] = {}
    if ids.count(None) < len(taken):
        named = {number: one for number, one in enumerate(ids) if one is not None}
    end, end_message = starts[-1] + len(bodies[-1]), firsts[-1] + counts[-1]
    columns = Columns(starts, firsts, times, sums, stamps, end, end_message, named)
    return columns, bodies[0] if len(bodies) == 1 else b"".join(bodies)
