"""Removing what no stream and no fork needs any more, a little at a time.

A stream that is trimmed or deleted *releases* positions: its own, and inherited ones. The
transaction that does it records the release, so nothing has to be searched for after a start. Each
release is then processed on its own, in steps of bounded size:

1. Find which of the stream's positions others need; see `headwater.store.reachability`.
2. Drop the appends of its run that nobody needs.
3. Pass released inherited positions that nobody here needs on, as a release of the source.

So the cost follows what is dropped. A deleted fork of a live stream releases positions that its
source needs itself, and that ends it, however large the family.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from headwater.core.stream import Deleted, Mutation, SoftDeleted, Trimmed, Undeleted
from headwater.store.reachability import END, Family, Interval, Member, Search

VISITS_PER_STEP: Final = 200
RELEASING: Final = (Trimmed, SoftDeleted, Deleted)
"""Mutations after which less may be needed than before."""


class Release(NamedTuple):
    """Positions that a stream, or a fork of it, no longer needs."""

    stream_id: int
    start: int
    end: int


class Releases(Family, Protocol):
    """An engine, as the collector sees it."""

    def next_release(self) -> Release | None: ...

    def release(self, release: Release) -> None:
        """Record a release; an existing one of the same stream grows."""

    def settle(self, release: Release) -> None:
        """Remove a release, unless it has grown."""

    def last_start(self, run: int) -> int:
        """Where the last append of a run begins."""

    def drop(self, run: int, interval: Interval, most: int) -> int:
        """Drop some appends in an interval; returns how many, 0 when none is left."""


class Collector:
    def __init__(self) -> None:
        self._release: Release | None = None
        self._search: Search | None = None
        self._unneeded: list[Interval] | None = None
        self._known: dict[int, int] = {}
        self.visits = 0
        """Streams visited since the start."""

    def begin_again(self) -> None:
        """What was found so far may no longer be valid."""
        self._release = self._search = self._unneeded = None
        self._known.clear()

    def forget_known(self) -> None:
        """Something was released, so less may be needed than was found."""
        self._known = {}

    def step(self, releases: Releases, most: int) -> bool:
        """Process a release, or a part of it; False when there is none."""
        if self._release is None or self._search is None:
            release = releases.next_release()
            if release is None:
                return False
            member = releases.member(release.stream_id)
            if member is None or _covers(member, release):
                # It is deleted, which is a release of its own; or it needs all of these positions
                # itself.
                releases.settle(release)
                return True
            self._release, self._unneeded = release, None
            self._search = Search(member, min(release.start, member.base), self._known)
        self._work_off(releases, self._release, self._search, most)
        return True

    def _work_off(self, releases: Releases, release: Release, search: Search, most: int) -> None:
        member = releases.member(release.stream_id)
        if member is None:
            self.begin_again()
            return
        visits = search.visits
        done = search.step(releases, VISITS_PER_STEP)
        self.visits += search.visits - visits
        if not done:
            return
        if self._unneeded is None:
            if member.live:
                # It shows where the stream ends, needed or not. Inherited ones do not.
                search.need(max(releases.last_start(member.id), member.base), END)
            self._unneeded = search.unneeded(member.base, END)
        while self._unneeded:
            if releases.drop(member.id, self._unneeded[-1], most):
                return
            self._unneeded.pop()
        inherited = search.unneeded(release.start, min(release.end, member.base))
        if inherited and member.source_id is not None:
            releases.release(Release(member.source_id, inherited[0][0], inherited[-1][1]))
        releases.settle(release)
        self._release = self._search = self._unneeded = None


def _covers(member: Member, release: Release) -> bool:
    return member.live and member.kept_from <= min(release.start, member.base)


def note_release(collector: Collector, releases: Releases, mutation: Mutation) -> None:
    """Record what a mutation releases; call this before it is stored."""
    if isinstance(mutation, Undeleted):
        # More is needed than was found, and its earlier releases may be forgotten.
        collector.begin_again()
        if kept_from := mutation.state.config.kept_from:
            releases.release(Release(mutation.stream_id, 0, kept_from))
        return
    if not isinstance(mutation, RELEASING):
        return
    collector.forget_known()
    member = releases.member(mutation.stream_id)
    if member is None:
        return
    if isinstance(mutation, Trimmed):
        # At least one position, so that a release in progress grows by it.
        until = max(mutation.config.kept_from, member.kept_from + 1)
        releases.release(Release(member.id, member.kept_from, until))
    elif isinstance(mutation, SoftDeleted):
        releases.release(Release(member.id, member.kept_from, END))
    elif member.source_id is not None and member.kept_from < member.base:
        # Its own run is dropped with it.
        releases.release(Release(member.source_id, member.kept_from, member.base))
