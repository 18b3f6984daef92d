"""Room for readers: how many live reads there are, and how much waits to be taken by slow ones.

A live read is an event stream, or a request that waits for news. Counted where connections begin
and end them, so that every resource that is read live is counted in the same way.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from headwater.core.errors import BuffersFull, TooManyReadersOfCaller
from headwater.core.limits import Limits


class Measured(Protocol):
    """A connection, as far as this is concerned."""

    def measure(self) -> None:
        """Call `Room.measured` with what is unread now."""


class Room:
    def __init__(self, limits: Limits) -> None:
        self.live = 0
        self.buffered_bytes = 0
        """What is handed over to connections and not yet taken; a second old at most."""
        self.refusals = 0
        self.cut_off = 0
        self.is_full = False
        """Whether that is more than it may be."""
        self._limits = limits
        self._unread: dict[Measured, int] = {}
        self._by_holder: Counter[str] = Counter()

    def measured(self, connection: Measured, unread_bytes: int) -> None:
        """So much waits to be taken from a connection."""
        self.buffered_bytes += unread_bytes - self._unread.pop(connection, 0)
        if unread_bytes:
            self._unread[connection] = unread_bytes
        self.is_full = self.buffered_bytes > self._limits.buffers_bytes_max

    def measure(self) -> None:
        """Ask those again who had something to take; the others have nothing."""
        for connection in list(self._unread):
            connection.measure()

    def live_of(self, holder: str) -> int:
        return self._by_holder[holder]

    def enter(self, holder: str) -> None:
        """One more live read, or the reason why not."""
        limit = self._limits.readers_per_caller_max
        if self.is_full:
            self.refusals += 1
            raise BuffersFull
        if limit and self._by_holder[holder] >= limit:
            self.refusals += 1
            raise TooManyReadersOfCaller(limit)
        self._by_holder[holder] += 1
        self.live += 1

    def leave(self, holder: str) -> None:
        self.live -= 1
        self._by_holder[holder] -= 1
        if not self._by_holder[holder]:
            del self._by_holder[holder]
