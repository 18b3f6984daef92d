"""The hot tail: the last part of a stream, kept in memory in stored form.

Live readers are served from here without touching the engine. It always ends at the committed tail;
its size is bounded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from headwater.core.stream import Appended


class HeldBytes:
    """The total size of many hot tails."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class HotTail:
    __slots__ = ("_appends", "_bodies", "_held", "_starts", "end", "size_bytes")

    def __init__(self, end: int, held: HeldBytes | None = None) -> None:
        self.end = end
        self.size_bytes = 0
        self._held = held or HeldBytes()
        self._starts: list[int] = []
        self._bodies: list[bytes] = []
        self._appends: list[Appended | None] = []
        """The metadata of each append; it shares the body."""

    @property
    def start(self) -> int:
        return self._starts[0] if self._starts else self.end

    def push(self, body: bytes, max_bytes: int, append: Appended | None = None) -> None:
        """Add a committed append, and drop the oldest ones beyond the bound."""
        self._starts.append(self.end)
        self._bodies.append(body)
        self._appends.append(append)
        self.end += len(body)
        self.size_bytes += len(body)
        self._held.total += len(body)
        # Trim in strides: dropping one element from the front of a list moves all the others.
        if self.size_bytes > max_bytes + max_bytes // 4 or len(self._bodies) > 16_384:
            self._trim(max_bytes)

    def _trim(self, max_bytes: int) -> None:
        drop, excess = 0, self.size_bytes - max_bytes
        last = len(self._bodies) - 1
        while drop < last and (excess > 0 or last - drop > 8_192):
            excess -= len(self._bodies[drop])
            drop += 1
        dropped = sum(map(len, self._bodies[:drop]))
        self.size_bytes -= dropped
        self._held.total -= dropped
        del self._bodies[:drop], self._starts[:drop], self._appends[:drop]

    def __del__(self) -> None:
        # A reader may have kept it longer than the stream did.
        self._held.total -= self.size_bytes

    def clear(self) -> None:
        self._held.total -= self.size_bytes
        self.size_bytes = 0
        self._starts.clear()
        self._bodies.clear()
        self._appends.clear()

    def read(self, position: int, max_bytes: int) -> list[bytes] | None:
        """Appends from a boundary on, at least one; None if no append here begins there."""
        first = bisect_left(self._starts, position)
        if first == len(self._starts) or self._starts[first] != position:
            return None
        if self.end - position <= max_bytes:
            return self._bodies[first:]
        last = bisect_left(self._starts, position + max_bytes + 1)
        # The append that starts within the limit may end beyond it.
        while last > first + 1 and self._end_of(last - 1) - position > max_bytes:
            last -= 1
        return self._bodies[first:last]

    def append_at(self, start: int) -> Appended | None:
        """The append that begins at a position, if it is here."""
        index = bisect_left(self._starts, start)
        found = index < len(self._starts) and self._starts[index] == start
        return self._appends[index] if found else None

    def boundary(self, position: int) -> int | None:
        """Where the append that holds a position begins; None if it is not here."""
        if position >= self.end:
            return self.end
        index = bisect_right(self._starts, position) - 1
        return self._starts[index] if index >= 0 else None

    def _end_of(self, index: int) -> int:
        return self._starts[index] + len(self._bodies[index])
