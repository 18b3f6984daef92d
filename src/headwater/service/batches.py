"""What is committed together, who waits for it, and whom it concerns."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from headwater.core import histograms
from headwater.core.limits import Limits
from headwater.core.mutations import AnyMutation
from headwater.service.entries import Event
from headwater.service.replies import Waiter


class Owner(Protocol):
    """What a mutation changes: a stream's entry, a group, a subscription.

    The defaults do nothing; subclasses override what they need.
    """

    pending: object | None = None
    """The last batch with a mutation of this owner, until it is committed."""

    def apply(self, mutation: Any) -> None:
        """Advance the state that decisions build on."""
        return

    def publish(self, mutation: Any, limits: Limits) -> Event | None:
        """The mutation is committed: show it to readers."""
        return None

    def notify(self, event: Event) -> None:
        """Notify listeners."""
        return

    def forget_state(self) -> None:
        """A commit failed: drop everything decided since."""
        return


Effect = tuple[Owner, AnyMutation]


class CommitFigures:
    """What the writer has done since the start, for monitoring."""

    __slots__ = ("appended_bytes", "appends", "batch_requests", "messages", "seconds")

    def __init__(self) -> None:
        self.appends = 0
        self.appended_bytes = 0
        self.messages = 0
        self.batch_requests = histograms.Histogram(histograms.COUNTS)
        self.seconds = histograms.Histogram(histograms.SECONDS)


class Commit(NamedTuple):
    """A finished commit."""

    requests: int
    size_bytes: int
    took_s: float
    failed: bool


class Batch:
    """Mutations to commit together, and the replies that wait for them."""

    __slots__ = ("acknowledged", "effects", "size_bytes", "waiters")

    def __init__(self) -> None:
        self.acknowledged = 0
        """Requests in it that were answered before the commit."""
        self.effects: list[Effect] = []
        self.waiters: list[tuple[Waiter, Any]] = []
        self.size_bytes = 0

    @property
    def is_awaited(self) -> bool:
        return bool(self.waiters or self.acknowledged)
