"""What is due when, for many items of which few are due at a time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", int, str, tuple[int, str])


class Schedule(Generic[K]):
    """What is due when: a heap, and which of its entries are still valid."""

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []

    def set(self, key: K, due_ms: int | None) -> None:
        if due_ms is None:
            self._due.pop(key, None)
        elif self._due.get(key) != due_ms:
            self._due[key] = due_ms
            heappush(self._heap, (due_ms, key))
            if len(self._heap) > 2 * len(self._due) + 64:
                self._heap = [(due, key) for key, due in self._due.items()]
                heapify(self._heap)

    def get(self, key: K) -> int | None:
        return self._due.get(key)

    def next_ms(self) -> int | None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int, limit: int) -> list[K]:
        """What is due, longest overdue first."""
        found: dict[K, int] = {}
        while len(found) < limit and (due_ms := self.next_ms()) is not None and due_ms <= now_ms:
            found[self._heap[0][1]] = due_ms
            heappop(self._heap)
        for key, due_ms in found.items():
            heappush(self._heap, (due_ms, key))
        return list(found)
