"""Releases in the memory engine."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from headwater.store.garbage import Release
from headwater.store.memory.tables import Tables
from headwater.store.reachability import Interval, Member

_START = attrgetter("start")


class MemoryReleases:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def member(self, stream_id: int) -> Member | None:
        return self._tables.member(stream_id)

    def forks(self, stream_id: int, before: tuple[int, int], limit: int) -> Sequence[Member]:
        return self._tables.forks_of(stream_id, before, limit)

    def next_release(self) -> Release | None:
        return next(iter(self._tables.releases.values()), None)

    def release(self, release: Release) -> None:
        stream_id, start, end = release
        if (noted := self._tables.releases.get(stream_id)) is not None:
            start, end = min(start, noted.start), max(end, noted.end)
        self._tables.releases[stream_id] = Release(stream_id, start, end)

    def settle(self, release: Release) -> None:
        if self._tables.releases.get(release.stream_id) == release:
            del self._tables.releases[release.stream_id]

    def last_start(self, run: int) -> int:
        appends = self._tables.logs[run].appends
        return appends[-1].start if appends else 0

    def drop(self, run: int, interval: Interval, most: int) -> int:
        appends = self._tables.logs[run].appends
        start, end = interval
        first = bisect_left(appends, start, key=_START)
        last = bisect_left(appends, end, key=_START)
        if last > first and appends[last - 1].end > end:
            last -= 1
        last = max(first, min(last, first + most))
        appends.drop(first, last)
        return last - first
