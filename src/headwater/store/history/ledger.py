"""How much of each run is still in rows, and since when.

The ledger only says where to look. It is updated by commits and by sealing, and starts from a
survey of the rows, so it may be off by what happens during the survey; the rows themselves decide
what is sealed.

It is asked every second what is due, and mostly nothing is. So it keeps the sum of all sizes, an
upper bound of the sizes and a lower bound of the times. As long as these rule out that anything is
due, the runs are not examined; when they are, the bounds become exact again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from operator import itemgetter
from threading import Lock
from typing import Final, NamedTuple

from headwater.core.limits import MIB
from headwater.core.stream import Appended
from headwater.store.history.policies import SealPolicy

# Smaller shares of a stream would be slow to read.
_SHARE_BYTES_MIN: Final = MIB
# A file is worth filling with streams that have this part of what makes one due by itself.
_LONG_PART: Final = 8
# The ledger looks for those when there is this part of a file more.
_LOOK_PART: Final = 16


class Due(NamedTuple):
    run: int
    size_bytes: int


class Ledger:
    def __init__(self) -> None:
        self._runs: dict[int, tuple[int, int]] = {}
        self._since: dict[int, tuple[int, int] | None] = {}
        """Runs being looked up in the database, and what was committed to them since."""
        self._lock = Lock()
        self._kept = False
        self._barred: set[int] = set()
        self._total = 0
        self._largest = 0
        self._oldest_ms: float = inf
        self._look_at_total = 0
        """At which total there may be enough for a file."""

    def bar(self, run: int) -> None:
        """Rows of this run are damaged: nothing after them can be sealed."""
        with self._lock:
            self._barred.add(run)
            self._put(run, None)

    def keep(self) -> None:
        """Start recording commits."""
        self._kept = True

    def note(self, appends: Iterable[Appended]) -> None:
        """These were committed."""
        if not self._kept:
            return
        with self._lock:
            runs, since = self._runs, self._since
            for append in appends:
                if since and append.stream_id in since:
                    before = since[append.stream_id] or (0, append.at_ms)
                    since[append.stream_id] = (before[0] + len(append.body), before[1])
                known = runs.get(append.stream_id)
                if known is None:
                    self._add(append.stream_id, len(append.body), append.at_ms)
                else:
                    size = known[0] + len(append.body)
                    runs[append.stream_id] = (size, known[1])
                    self._total += len(append.body)
                    if size > self._largest:
                        self._largest = size

    def with_rows(self, runs: Iterable[int]) -> list[int]:
        """Those of some runs that it knows to have rows."""
        return [run for run in runs if run in self._runs]

    def survey(self, found: Iterable[tuple[int, int, int]]) -> None:
        """Runs, their size and the time of their first append, as of the call of `keep`."""
        with self._lock:
            for run, size, oldest_ms in found:
                self._add(run, size, oldest_ms)

    def _add(self, run: int, size: int, at_ms: int) -> None:
        known = self._runs.get(run)
        if run in self._barred:
            return
        if known is None:
            self._put(run, (size, at_ms))
        else:
            self._put(run, (known[0] + size, min(known[1], at_ms)))

    def _put(self, run: int, value: tuple[int, int] | None) -> None:
        before = self._runs.pop(run, None)
        if before is not None:
            self._total -= before[0]
        if value is not None:
            self._runs[run] = value
            self._total += value[0]
            self._largest = max(self._largest, value[0])
            self._oldest_ms = min(self._oldest_ms, value[1])

    def seal(self, run: int, size_bytes: int, until_ms: int) -> None:
        """The first rows of a run, up to a time, were sealed; others are left."""
        with self._lock:
            known = self._runs.get(run)
            if known is not None:
                self._put(run, (max(0, known[0] - size_bytes), until_ms))

    def look(self, runs: Iterable[int]) -> None:
        """The database is about to be asked what is left of these; `settle` takes the answer."""
        with self._lock:
            self._since = dict.fromkeys(runs)

    def settle(self, run: int, left: tuple[int, int] | None) -> None:
        """What is left in rows of a run, size and oldest, after some of it was sealed.

        That may or may not include what was committed since. Counting it twice does no harm.
        """
        with self._lock:
            since = self._since.pop(run, None)
            if since is not None:
                left = since if left is None else (left[0] + since[0], left[1])
            self._put(run, None if run in self._barred else left)

    def due(self, policy: SealPolicy, now_ms: int) -> list[Due]:
        """What is worth sealing now, in the order of runs."""
        with self._lock:
            if not self._may_be_due(policy, now_ms):
                return []
            self._look_at_total = self._total + policy.segment_bytes // _LOOK_PART
            runs = list(self._runs.items())
            self._largest = max((size for _, (size, _) in runs), default=0)
            self._oldest_ms = min((oldest for _, (_, oldest) in runs), default=inf)
        # Those that will be due soon go along: a file for each would be wasteful.
        due: set[int] = set()
        if any(size >= policy.after_bytes for _, (size, _) in runs):
            due.update(run for run, (size, _) in runs if size >= policy.after_bytes // 2)
        if _fill_a_file(runs, policy):
            due.update(run for run, (size, _) in runs if size >= _long_bytes(policy) // 2)
        if any(oldest <= now_ms - policy.after_ms for _, (_, oldest) in runs):
            ripe_ms = now_ms - policy.after_ms // 2
            due.update(run for run, (_, oldest) in runs if oldest <= ripe_ms)
        due |= _largest(
            [(run, size) for run, (size, _) in runs if run not in due], policy.database_bytes_max
        )
        return [Due(run, size) for run, (size, _) in sorted(runs) if run in due]

    def _may_be_due(self, policy: SealPolicy, now_ms: int) -> bool:
        return (
            self._largest >= policy.after_bytes
            or self._oldest_ms <= now_ms - policy.after_ms
            or self._total > policy.database_bytes_max
            or (
                self._largest >= _long_bytes(policy)
                and self._total >= max(_enough_bytes(policy), self._look_at_total)
            )
        )


def _fill_a_file(runs: Iterable[tuple[int, tuple[int, int]]], policy: SealPolicy) -> bool:
    """Whether long streams have enough for a file together.

    Sealing them early costs the same, but it does not come all at once later, and what is read and
    dropped is still in the caches.
    """
    long_bytes = _long_bytes(policy)
    return sum(size for _, (size, _) in runs if size >= long_bytes) >= _enough_bytes(policy)


def _enough_bytes(policy: SealPolicy) -> int:
    """Less than a file: what comes until it is written has room in it as well."""
    return policy.segment_bytes * 3 // 4


def _long_bytes(policy: SealPolicy) -> int:
    return max(2 * _SHARE_BYTES_MIN, policy.after_bytes // _LONG_PART)


def _largest(runs: Sequence[tuple[int, int]], most: int) -> set[int]:
    """The largest runs, to seal when all together exceed the limit; half of it stays."""
    left = sum(size for _, size in runs)
    chosen: set[int] = set()
    if left > most:
        for run, size in sorted(runs, key=itemgetter(1), reverse=True):
            if left <= most // 2:
                break
            chosen.add(run)
            left -= size
    return chosen


def into_files(due: Sequence[Due], segment_bytes: int) -> list[list[Due]]:
    """How much of which run goes into each file.

    Streams written at the same time share pages of the database. So a file takes a share of each of
    them, from the same time, and whole pages become free: dropping one stream after the other would
    write every page as often as there are streams on it.
    """
    number = max(1, -(-sum(one.size_bytes for one in due) // segment_bytes))
    largest_first = sorted(due, key=lambda one: -one.size_bytes)
    left = [(one, max(_SHARE_BYTES_MIN, -(-one.size_bytes // number))) for one in largest_first]
    files: list[list[Due]] = []
    while left:
        files += _one_round(left, segment_bytes)
        left = [
            (Due(one.run, one.size_bytes - share), share)
            for one, share in left
            if one.size_bytes > share
        ]
    return files


def _one_round(shares: Sequence[tuple[Due, int]], segment_bytes: int) -> Iterator[list[Due]]:
    """A share of each run, in one file if there is room."""
    file: list[Due] = []
    size = 0
    for one, share in shares:
        taken = min(share, one.size_bytes)
        if file and size + taken > segment_bytes:
            yield file
            file, size = [], 0
        file.append(Due(one.run, taken))
        size += taken
    yield file
