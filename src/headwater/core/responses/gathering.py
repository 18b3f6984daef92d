"""When received bytes are stored.

Upstreams send tokens, a few bytes at a time, and an append for each would be mostly overhead. So
bytes are gathered until there are `GATHER_BYTES`, or until the first of them has waited for
`GATHER_MS`: that is how far a reader may lag behind. A full `Gathering` accepts nothing until it is
emptied, so a fast upstream waits for the disk instead of filling memory.
"""

from __future__ import annotations

from typing import Final

from headwater.core.limits import KIB

GATHER_BYTES: Final = 4 * KIB
GATHER_MS: Final = 50
HELD_BYTES_MAX: Final = 256 * KIB


class Gathering:
    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytes] = []
        self._due_ms = 0.0

    @property
    def is_full(self) -> bool:
        return self.size >= HELD_BYTES_MAX

    def add(self, part: bytes, now_ms: float) -> None:
        if not self._parts:
            self._due_ms = now_ms + GATHER_MS
        self._parts.append(part)
        self.size += len(part)

    def rest_ms(self, now_ms: float) -> float:
        """How long to wait for more."""
        return 0 if self.size >= GATHER_BYTES else max(0, self._due_ms - now_ms)

    def take(self) -> bytes:
        whole = b"".join(self._parts)
        self._parts, self.size = [], 0
        return whole
