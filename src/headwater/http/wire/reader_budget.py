"""A budget for readers: how many live reads there are, and how much slow ones have not read yet.

A live read is an event stream, or a request that waits for data. Connections count them where they
begin and end, so every live resource is counted in the same way.

Unread data is counted by address. An address with more unread than it leaves to others
(`core.shares`) is sent nothing more until it reads, and its event streams are cut off. If the total
is too much, readers that read nothing are cut off, starting with the address that has the most
unread. An answer may be larger than what was left, and slow readers are not cut off at once: until
they are, an address with nothing unread is answered, up to twice the limit.
"""

from __future__ import annotations

from typing import Final, Protocol

import structlog

from headwater.core.errors import BuffersFull, TooManyReadersOfCaller
from headwater.core.limits import Limits
from headwater.core.shares import Shares

NODES: Final = "other nodes"
"""The holder of all feeds to other nodes of a cluster, which serve any number of readers."""

log = structlog.get_logger()


class Measured(Protocol):
    """The part of a connection that matters here."""

    @property
    def address(self) -> str: ...

    def measure(self) -> None:
        """Call `ReaderBudget.measured` with the current unread size."""

    def abort(self) -> None: ...


class ReaderBudget:
    def __init__(self, limits: Limits) -> None:
        self.live = 0
        self.refusals = 0
        self.cut_off = 0
        self._limits = limits
        self._shares = Shares(limits.buffers_bytes_max)
        self._unread: dict[Measured, int] = {}
        self._by_holder: dict[str, int] = {}

    # ── Unread data ──────────────────────────────────────────────────────────────────────────

    @property
    def buffered_bytes(self) -> int:
        """Handed to connections and not read yet; at most a second old."""
        return self._shares.total

    @property
    def is_full(self) -> bool:
        return self._shares.total > self._shares.most

    def check(self, address: str) -> None:
        """Refuse to send more to an address that has too much unread."""
        shares = self._shares
        if not shares.total or shares.allow(address, 0):
            return
        if shares.of(address) or shares.total > 2 * shares.most:
            raise BuffersFull

    def is_too_much(self, address: str, unread_bytes: int) -> bool:
        """Whether a live reader with this much unread should be cut off."""
        if unread_bytes > self._limits.reader_buffer_bytes_max:
            return True
        return not self._shares.allow(address, 0)

    def measured(self, connection: Measured, unread_bytes: int) -> None:
        """Record how much of a connection is unread."""
        before = self._unread.pop(connection, 0)
        if unread_bytes:
            self._unread[connection] = unread_bytes
        if unread_bytes != before:
            self._shares.take(connection.address, unread_bytes - before)

    def measure(self) -> None:
        """Measure again the connections that had something unread; the others have nothing."""
        stalled = []
        for connection, before in list(self._unread.items()):
            try:
                connection.measure()
            except Exception as error:
                log.error("unexpected_error", error=repr(error), exc_info=error)
                connection.abort()
            if self._unread.get(connection, 0) >= before:
                stalled.append(connection)
        if self.is_full:
            self._cut_off(stalled)

    def _cut_off(self, stalled: list[Measured]) -> None:
        def greed(connection: Measured) -> tuple[int, int]:
            return self._shares.of(connection.address), self._unread.get(connection, 0)

        for connection in sorted(stalled, key=greed, reverse=True):
            if not self.is_full:
                return
            self.cut_off += 1
            self.measured(connection, 0)
            connection.abort()

    # ── Live reads ───────────────────────────────────────────────────────────────────────────

    def enter(self, holder: str, address: str) -> None:
        """Count one more live read, or raise the reason why not."""
        limit = self._limits.readers_per_caller_max
        try:
            self.check(address)
        except BuffersFull:
            self.refusals += 1
            raise
        count = self._by_holder.get(holder, 0)
        if limit and count >= limit and holder != NODES:
            self.refusals += 1
            raise TooManyReadersOfCaller(limit)
        self._by_holder[holder] = count + 1
        self.live += 1

    def leave(self, holder: str) -> None:
        self.live -= 1
        left = self._by_holder[holder] - 1
        if left:
            self._by_holder[holder] = left
        else:
            del self._by_holder[holder]
