"""Metrics of subscriptions: each keeps its own share up to date as it changes."""

from __future__ import annotations

from typing import NamedTuple

from headwater.core.subscriptions.state import Phase, SubscriptionState


class Share(NamedTuple):
    """What one subscription contributes."""

    phase: Phase
    is_failing: bool
    """Whether its last wake could not be announced."""
    pending: int
    """Streams with something unacknowledged."""

    @classmethod
    def of(cls, state: SubscriptionState) -> Share:
        return cls(state.wake.phase, state.wake.attempts > 0, len(state.pending))


class SubscriptionFigures:
    """Totals over all subscriptions."""

    def __init__(self) -> None:
        self.phases = dict.fromkeys(Phase, 0)
        self.failing = 0
        self.pending = 0

    def add(self, share: Share, times: int = 1) -> None:
        self.phases[share.phase] += times
        self.failing += times * share.is_failing
        self.pending += times * share.pending

    def drop(self, share: Share) -> None:
        self.add(share, -1)
