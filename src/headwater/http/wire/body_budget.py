"""A budget for bodies: how many bytes of request bodies may be in memory at once.

A body is counted from when it is announced, or turns out to be long, until its request is answered.
All of them share one budget, and no caller takes more than it leaves to others (`core.shares`).
Small bodies are not counted: the number of connections bounds them.
"""

from __future__ import annotations

from typing import Final

from headwater.core.shares import Shares

SMALL_BYTES: Final = 16 * 1024


class Claim:
    """The memory reserved for one body. It may grow, and is released once."""

    __slots__ = ("_budget", "_holder", "size")

    def __init__(self, budget: BodyBudget, holder: str) -> None:
        self._budget = budget
        self._holder = holder
        self.size = 0

    def grow(self, size: int) -> bool:
        """Grow to a total size. False if there is no room for it."""
        more = size - self.size
        if more > 0:
            if not self._budget.shares.allow(self._holder, more):
                self._budget.refusals += 1
                return False
            self._budget.shares.take(self._holder, more)
            self.size = size
        return True

    def release(self) -> None:
        if self.size:
            self._budget.shares.take(self._holder, -self.size)
            self.size = 0


class BodyBudget:
    def __init__(self, bytes_max: int) -> None:
        self.shares = Shares(bytes_max)
        self.refusals = 0

    @property
    def bytes(self) -> int:
        return self.shares.total

    def claim(self, holder: str) -> Claim:
        return Claim(self, holder)
