"""Shares of a byte budget: no holder has more than it leaves to others.

A holder may take more as long as it then holds no more than is still free. A single holder gets
half of the budget; two that take all they can get a third each; and so on. So something is always
left for a new holder, and the number of holders need not be known.
"""

from __future__ import annotations


class Shares:
    __slots__ = ("_held", "most", "total")

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self._held: dict[str, int] = {}

    def __len__(self) -> int:
        """The number of holders."""
        return len(self._held)

    def of(self, holder: str) -> int:
        return self._held.get(holder, 0)

    def allow(self, holder: str, size: int) -> bool:
        """Whether the holder may take this much more."""
        return self._held.get(holder, 0) + size <= self.most - self.total - size

    def take(self, holder: str, size: int) -> None:
        """Hold more, or less with a negative size. It counts even if it was not allowed."""
        self.total += size
        held = self._held.get(holder, 0) + size
        if held:
            self._held[holder] = held
        else:
            self._held.pop(holder, None)
