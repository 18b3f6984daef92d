"""Metrics of groups.

Each group keeps its own share of the numbers up to date as it changes, so reading them takes the
same time however many groups there are. The largest lag cannot be kept that way, because every
append to a stream changes the lag of all its groups. It is surveyed, a bounded number of groups per
call, so with many groups a full lap takes several calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from headwater.core.groups.commands import Ack, Extend, Nack, Reject
from headwater.service.background import Watch

if TYPE_CHECKING:
    from headwater.service.groups.group import Group
    from headwater.service.groups.registry import StreamGroups

LOOKS_MAX: Final = 2_000
WORDS: Final = {Ack: "acked", Nack: "nacked", Reject: "rejected", Extend: "extended"}


class GroupFigures:
    """Totals over all groups."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        # Since the start.
        self.deliveries = 0
        self.redeliveries = 0
        self.dead_letters = 0
        self.settled = dict.fromkeys(WORDS.values(), 0)
        # Current, over the loaded groups.
        self.loaded = 0
        self.in_flight = 0
        self.outstanding = 0
        self.waiting = 0


class LagSurvey:
    """The largest lag of all groups, as far as known without checking all of them."""

    def __init__(self, streams: Mapping[str, StreamGroups]) -> None:
        self._streams = streams
        self._lap = self._walk()
        self._highest = 0
        self._last_lap = 0

    def look(self) -> int:
        """Check some more groups; returns the largest lag of this lap and the last one."""
        for _ in range(LOOKS_MAX):
            group = next(self._lap, None)
            if group is None:
                self._last_lap, self._highest = self._highest, 0
                self._lap = self._walk()
                break
            self._highest = max(self._highest, group.lag)
        return max(self._highest, self._last_lap)

    def _walk(self) -> Iterator[Group]:
        for path in list(self._streams):
            stream = self._streams.get(path)
            if stream is not None:
                # Void copies may have moved to another node, with their lag.
                yield from [group for group in stream.groups.values() if not group.gone]
