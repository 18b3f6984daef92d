"""Shares of a budget of bytes: nobody holds more than they leave to others.

A holder may take more while what it then holds is no more than what is then free. Alone, it gets
half of the budget; of two that take all they can, each gets a third; and so on. So some is always
left for one who holds nothing yet, and nobody has to know how many holders there are.
"""

from __future__ import annotations


class Shares:
    __slots__ = ("_held", "most", "total")

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self._held: dict[str, int] = {}

    def __len__(self) -> int:
        """How many hold something."""
        return len(self._held)

    def of(self, holder: str) -> int:
        return self._held.get(holder, 0)

    def allow(self, holder: str, size: int) -> bool:
        """Whether the holder may take so much more."""
        return self._held.get(holder, 0) + size <= self.most - self.total - size

    def take(self, holder: str, size: int) -> None:
        """Hold more, or less with a negative size. What was not allowed is counted as well."""
        self.total += size
        held = self._held.get(holder, 0) + size
        if held:
            self._held[holder] = held
        else:
            self._held.pop(holder, None)
