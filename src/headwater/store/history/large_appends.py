"""Large appends, which are history from the beginning.

In rows, a large body would be written three times: into the log of the database, into the database,
and later into a segment. So an append of some size goes straight into a file: that is written and
synced first, and then the transaction records an extent instead of inserting a row.

Nothing may follow the rows of a run but rows; see `headwater.store.sql.appends`. So only appends to
runs that have no rows are treated like that. The others wait in rows for sealing, however large.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from headwater.core.limits import KIB
from headwater.core.stream import Appended
from headwater.store.history.segment_writer import SegmentDraft

# Smaller ones cost less in rows than the syncs of one more file.
LARGE_BYTES: Final = 256 * KIB


def is_large(append: Appended) -> bool:
    return len(append.body) >= LARGE_BYTES


def has_any(appends: Sequence[Appended]) -> bool:
    """Whether one is large. Mostly none is, and then there is nothing to choose."""
    return max([len(append.body) for append in appends], default=0) >= LARGE_BYTES


def can_all_be_chosen(
    appends: Sequence[Appended], with_rows: Callable[[Collection[int]], Collection[int]]
) -> bool:
    """Whether all large appends of a batch go into a file."""
    chosen = choose(appends, with_rows)
    return sum(map(len, chosen.values())) == sum(map(is_large, appends))


def choose(
    appends: Sequence[Appended], with_rows: Callable[[Collection[int]], Collection[int]]
) -> dict[int, list[Appended]]:
    """The appends of a batch that go into a file, by run.

    `with_rows` says which of some runs have rows.
    """
    runs = {one.stream_id for one in appends if is_large(one)}
    if not runs:
        return {}
    in_rows = {*with_rows(runs)}
    chosen: dict[int, list[Appended]] = {}
    for append in appends:
        if append.stream_id in in_rows:
            continue
        if is_large(append):
            chosen.setdefault(append.stream_id, []).append(append)
        else:
            in_rows.add(append.stream_id)
    return chosen


def share_out(
    chosen: Mapping[int, Sequence[Appended]], number: int
) -> list[dict[int, Sequence[Appended]]]:
    """The chosen appends in shares of about the same size, at most this many. None is empty."""
    shares: list[dict[int, Sequence[Appended]]] = [{} for _ in range(min(number, len(chosen)))]
    sizes = [0] * len(shares)
    by_size = sorted((-sum([len(one.body) for one in chosen[run]]), run) for run in chosen)
    for minus_size, run in by_size:
        least = sizes.index(min(sizes))
        shares[least][run] = chosen[run]
        sizes[least] -= minus_size
    return shares


def in_rows(appends: Sequence[Appended], drafts: Sequence[SegmentDraft]) -> Sequence[Appended]:
    """Those of some appends that no file holds."""
    if not drafts:
        return appends
    return [
        one for one in appends if not any(draft.holds(one.stream_id, one.start) for draft in drafts)
    ]
