"""How quick commits are for a client that writes one thing after another.

Such a client is served best by committing on the loop: handing the batch to somebody else and back
takes a tenth of a millisecond. But a client that connects meanwhile has to wait, and a slow commit
gains little. A single slow commit says little about the disk, so several are needed to change it.
"""

from __future__ import annotations

from typing import Final

QUICK_S: Final = 0.001
ENOUGH: Final = 32
_MOST: Final = 2 * ENOUGH
# A slow commit outweighs this many quick ones.
SLOW: Final = 8


class Pace:
    def __init__(self) -> None:
        self._quick = 0
        self.is_quick = False

    def note(self, took_s: float, requests: int) -> None:
        """A commit for this many requests took this long."""
        if requests > 1:
            self._quick = 0
        elif took_s < QUICK_S:
            self._quick = min(self._quick + 1, _MOST)
        else:
            self._quick = max(self._quick - SLOW, 0)
        self.is_quick = self._quick >= ENOUGH
