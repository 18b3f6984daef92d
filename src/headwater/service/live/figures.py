"""Metrics of live streams.

A stream reports when something happened on it. Only those streams are counted again, so neither a
scrape nor the tick of every second looks at idle ones. A stream that lags has work to do and
reports it, so the largest lag is among them too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import msgspec

from headwater.core.live.guard import Mode
from headwater.core.live.state import Totals

if TYPE_CHECKING:
    from headwater.service.live.stream import LiveStream


class _Share:
    """What was counted for a stream."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.templates = 0
        self.totals = Totals()


class LiveFigures:
    """Totals over all streams."""

    def __init__(self) -> None:
        self.totals = Totals()
        """Since the start, including streams that were dropped."""
        self.modes: dict[str, int] = dict.fromkeys(get_args(Mode), 0)
        self.templates = 0
        self._shares: dict[LiveStream, _Share] = {}
        self._active: dict[LiveStream, None] = {}

    def add(self, stream: LiveStream) -> None:
        self._shares[stream] = _Share(stream.state.mode)
        self.modes[stream.state.mode] += 1
        self.note(stream)

    def note(self, stream: LiveStream) -> None:
        """Something happened on a stream, or will."""
        if stream in self._shares:
            self._active[stream] = None

    def count(self) -> int:
        """Update the numbers; returns the largest lag."""
        for stream in self._active:
            self._count(stream)
        return max((stream.lag for stream in self._active), default=0)

    def take_active(self) -> list[LiveStream]:
        """The streams on which something happened since the last call."""
        self.count()
        active = list(self._active)
        self._active = {stream: None for stream in active if stream.lag}
        return active

    def forget(self, stream: LiveStream) -> None:
        """Drop a stream; its totals stay."""
        self._count(stream)
        share = self._shares.pop(stream)
        self.modes[share.mode] -= 1
        self.templates -= share.templates
        self._active.pop(stream, None)

    def _count(self, stream: LiveStream) -> None:
        state = stream.state
        share = self._shares[stream]
        if share.mode != state.mode:
            self.modes[share.mode] -= 1
            share.mode = state.mode
            self.modes[share.mode] += 1
        self.templates += len(state.book.active) - share.templates
        share.templates = len(state.book.active)
        self.totals.grow(share.totals, state.totals)
        share.totals = msgspec.structs.replace(state.totals)
