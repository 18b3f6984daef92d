"""One timer for everything that is due at some time: a heap, and a single wake-up.

A failed action is retried after a growing pause, and does not delay the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

from headwater.service.background import Watch
from headwater.service.clock import Clock

_PAUSE_MS: Final = 1_000
_DOUBLINGS_MAX: Final = 6


class WakeUp:
    """A loop timer that fires at the earliest time requested since it last fired."""

    def __init__(self, clock: Clock, action: Callable[[], None]) -> None:
        self._clock = clock
        self._action = action
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def at(self, due_ms: int) -> None:
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        delay_s = max(0, due_ms - self._clock()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._action()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Timers:
    def __init__(self, clock: Clock, watch: Watch) -> None:
        self._clock = clock
        self._watch = watch
        self._heap: list[tuple[int, int, Callable[[], None], int]] = []
        self._order = count()
        self._wake_up = WakeUp(clock, self._run)

    def at(self, due_ms: int, action: Callable[[], None]) -> None:
        """Do something at a time, or as soon as possible if that has passed."""
        self._push(due_ms, action)
        self._plan()

    def _push(self, due_ms: int, action: Callable[[], None], failures: int = 0) -> None:
        heappush(self._heap, (due_ms, next(self._order), action, failures))

    def _plan(self) -> None:
        if self._heap:
            self._wake_up.at(self._heap[0][0])

    def _run(self) -> None:
        now_ms = self._clock()
        all_well = True
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, action, failures = heappop(self._heap)
            try:
                action()
            except Exception as error:
                all_well = False
                pause_ms = _PAUSE_MS << min(failures, _DOUBLINGS_MAX)
                self._watch.failed(error, pause_ms / 1000)
                self._push(now_ms + pause_ms, action, failures + 1)
        if all_well:
            self._watch.succeeded()
        self._plan()

    def stop(self) -> None:
        self._wake_up.cancel()
        self._heap.clear()


class Alarm:
    """Calls back at the earliest time that was set since it last fired."""

    def __init__(self, timers: Timers, action: Callable[[], None]) -> None:
        self.due_ms: int | None = None
        self._timers = timers
        self._action = action

    def set(self, due_ms: int) -> None:
        if self.due_ms is None or due_ms < self.due_ms:
            self.due_ms = due_ms
            self._timers.at(due_ms, self._ring)

    def _ring(self) -> None:
        self.due_ms = None
        self._action()
