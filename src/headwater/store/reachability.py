"""Which positions of a run are still needed.

A fork shares the positions of its source: a stream needs every position from the first that it
keeps, its own and inherited ones alike. A soft-deleted stream needs nothing itself; its forks do,
each up to its base. What nobody needs may be dropped.

To find what is needed of a run, its forks and theirs are visited, those with the highest base
first. A live fork that keeps everything covers all with lower bases and all its own forks, so most
of a family is never visited. `Search` visits a bounded number of streams per step: a family may
change between two steps, but only so that less is needed, never more, because a fork needs nothing
that its source did not need. (Undeleting a stream is the exception: it requires a new search.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

END: Final = 2**63 - 1
_PAGE: Final = 32

Interval = tuple[int, int]


class Member(NamedTuple):
    """A stream as its family sees it."""

    id: int
    source_id: int | None
    base: int
    """Where its own run begins, which is where it leaves its source."""
    kept_from: int
    live: bool


class Family(Protocol):
    def member(self, stream_id: int) -> Member | None:
        """A stream that is live or soft-deleted."""

    def forks(self, stream_id: int, before: tuple[int, int], limit: int) -> Sequence[Member]:
        """Its forks by (base, id) descending, those that sort before a pair."""


class Search:
    """Finds the needed positions of a stream, a bounded number of streams at a time."""

    def __init__(self, stream: Member, lowest: int, known: dict[int, int] | None = None) -> None:
        """Positions below `lowest` are ignored.

        `known` says up to where the forks of a stream need everything. Searches share and extend
        it, for as long as nothing in any family needs less than before.
        """
        self.visits = 0
        self._known = {} if known is None else known
        self._members: dict[int, Member] = {}
        self._above: dict[int, Member] = {}
        """For each stream, the one it was found as a fork of."""
        self._lowest = lowest
        self._needs: list[Interval] = []
        self._covered = lowest
        """Everything from `lowest` up to here is needed."""
        self._open: list[tuple[int, int, tuple[int, int]]] = []
        """Streams whose forks are still to be visited: which, up to where, and from which on."""
        self._visit(stream, END)

    def step(self, family: Family, most: int) -> bool:
        """Visit some more forks; True when there are no more."""
        while self._open and most > 0:
            stream_id, end, before = self._open.pop()
            if end <= self._covered:
                continue
            forks = family.forks(stream_id, before, min(most, _PAGE))
            most -= max(1, len(forks))
            if not forks or min(end, forks[0].base) <= self._covered:
                # Those with higher bases come first: the others are covered as well.
                continue
            last = forks[-1]
            self._open.append((stream_id, end, (last.base, last.id)))
            opened = len(self._open)
            above = self._members[stream_id]
            for fork in forks:
                self._above[fork.id] = above
                self._visit(fork, min(end, fork.base))
            self._open[opened:] = reversed(self._open[opened:])
        return not self._open

    def _visit(self, stream: Member, end: int) -> None:
        self.visits += 1
        if end <= self._covered:
            return
        if stream.live:
            self.need(stream.kept_from, end)
            if stream.kept_from == 0:
                self._remember(stream)
            if stream.kept_from <= self._lowest:
                return
        elif (known := self._known.get(stream.id, 0)) > 0:
            self.need(0, min(known, end))
            if end <= self._covered:
                return
        self._members[stream.id] = stream
        self._open.append((stream.id, end, (END, END)))

    def need(self, start: int, end: int) -> None:
        """Keep this: a stream needs it, or the caller does."""
        if start >= end:
            # A fork that keeps nothing of this. An empty need would still cut an append in two.
            return
        self._needs.append((start, end))
        if start <= self._covered:
            self._covered = max(self._covered, end)

    def _remember(self, stream: Member) -> None:
        """A stream keeps everything: record how much it needs of those it was found through."""
        end = stream.base
        while (above := self._above.get(stream.id)) is not None:
            if self._known.get(above.id, 0) >= end:
                break
            self._known[above.id] = end
            end, stream = min(end, above.base), above

    def unneeded(self, start: int, end: int) -> list[Interval]:
        """The largest unneeded intervals between two positions."""
        found: list[Interval] = []
        for need_start, need_end in sorted(self._needs):
            if start < min(need_start, end):
                found.append((start, min(need_start, end)))
            start = max(start, need_end)
        if start < end:
            found.append((start, end))
        return found
