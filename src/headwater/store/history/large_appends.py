"""Large appends, which are history from the beginning.

In rows, a large body would be written three times: into the log of the database, into the database,
and later into a segment. So an append of some size goes straight into a file: that is written and
synced first, and then the transaction records an extent instead of inserting a row.

Nothing may follow the rows of a run but rows; see `headwater.store.sql.appends`. So only appends to
runs that have no rows are treated like that. The others wait in rows for sealing, however large.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from headwater.core.limits import KIB
from headwater.core.stream import Appended

# Smaller ones cost less in rows than the syncs of one more file.
LARGE_BYTES: Final = 256 * KIB


def has_any(appends: Sequence[Appended]) -> bool:
    """Whether one is large. Mostly none is, and then there is nothing to choose."""
    return max([len(append.body) for append in appends], default=0) >= LARGE_BYTES


def choose(
    appends: Sequence[Appended], with_rows: Callable[[Collection[int]], Collection[int]]
) -> dict[int, list[Appended]]:
    """The appends of a batch that go into a file, by run.

    `with_rows` says which of some runs have rows.
    """
    runs = {one.stream_id for one in appends if len(one.body) >= LARGE_BYTES}
    if not runs:
        return {}
    in_rows = {*with_rows(runs)}
    chosen: dict[int, list[Appended]] = {}
    for append in appends:
        if append.stream_id in in_rows:
            continue
        if len(append.body) >= LARGE_BYTES:
            chosen.setdefault(append.stream_id, []).append(append)
        else:
            in_rows.add(append.stream_id)
    return chosen
