"""Waits, and their timeouts: one heap and one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Literal

import msgspec

from headwater.core.live.journal import Waiter
from headwater.service.background import Watch
from headwater.service.timers import WakeUp

_DEAD_ENTRIES_MIN: Final = 1024


Outcome = Literal["touched", "timeout", "stale"]


class WaitResult(msgspec.Struct):
    """How a wait ended. Everyone woken by the same bucket shares one."""

    outcome: Outcome
    cursor: str
    source_seq: int
    flushed_at_ms: int
    bucket_start_ms: int
    encoded: dict[str, bytes] = {}
    """The answers encoded from it so far, by kind."""


class Wait:
    __slots__ = ("done", "due_ms", "fine", "future", "on_time_out", "waiter")

    def __init__(
        self, waiter: Waiter, due_ms: int, on_time_out: Callable[[Wait], None], *, fine: bool
    ) -> None:
        self.fine = fine
        self.waiter = waiter
        self.due_ms = due_ms
        self.on_time_out = on_time_out
        self.future: asyncio.Future[WaitResult] = asyncio.get_running_loop().create_future()
        self.done = False

    def answer(self, result: WaitResult) -> None:
        """Send the result, unless the client has hung up."""
        if not self.future.done():
            self.future.set_result(result)


class Deadlines:
    def __init__(self, clock: Callable[[], int], watch: Watch) -> None:
        self._clock = clock
        self._watch = watch
        self._heap: list[tuple[int, int, Wait]] = []
        self._order = count()
        self._dead = 0
        self._wake_up = WakeUp(clock, self._run)

    def add(self, wait: Wait) -> None:
        heappush(self._heap, (wait.due_ms, next(self._order), wait))
        self._plan()

    def drop(self, wait: Wait) -> None:
        """The wait is over. It stays in the heap until too many are dead."""
        wait.done = True
        self._dead += 1
        if self._dead > _DEAD_ENTRIES_MIN and self._dead > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if not entry[2].done]
            heapify(self._heap)
            self._dead = 0

    def _plan(self) -> None:
        if self._heap:
            self._wake_up.at(self._heap[0][0])

    def _run(self) -> None:
        now_ms = self._clock()
        while self._heap and self._heap[0][0] <= now_ms:
            wait = heappop(self._heap)[2]
            if wait.done:
                self._dead -= 1
            else:
                try:
                    wait.on_time_out(wait)
                except Exception as error:
                    self._fail(wait, error)
                # It was already taken out of the heap.
                self._dead -= 1
        self._plan()

    def _fail(self, wait: Wait, error: Exception) -> None:
        """Answer anyway, and continue with the others."""
        self._watch.failed(error)
        if not wait.done:
            self.drop(wait)
        if not wait.future.done():
            wait.future.set_exception(error)

    def stop(self) -> None:
        self._wake_up.cancel()
        self._heap.clear()
