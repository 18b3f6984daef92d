"""What sealing and compacting share: they write files, and record them between commits.

A file would take the space reserved for deleting, so nothing is written while the disk is full.
Work between two commits is done in slices, each its own job for the commit thread, with a rest
after it: most of that thread's time belongs to waiting requests.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from time import monotonic
from typing import Final, TypeVar

from headwater.service.background import Background
from headwater.service.clock import Clock
from headwater.service.writer import Writer
from headwater.store.history.policies import SealPolicy
from headwater.store.history.sealing import History

REST_PER_WORK: Final = 2.0
_PAUSE_WHEN_FULL_S: Final = 1.0
R = TypeVar("R")


class FileTask(Background):
    rest_s_max = float("inf")

    def __init__(self, history: History, policy: SealPolicy, writer: Writer, clock: Clock) -> None:
        super().__init__()
        self._history = history
        self._policy = policy
        self._writer = writer
        self._clock = clock
        self.files = 0
        self.size_bytes = 0

    async def round(self) -> float:
        return _PAUSE_WHEN_FULL_S if self._writer.full else await self._write()

    @abstractmethod
    async def _write(self) -> float:
        """A round while there is space."""

    async def _slice(self, step: Callable[[], bool]) -> bool:
        """Run one slice between two commits; returns whether there is more to do."""

        more, took_s = await self._writer.run(timed(step))
        await asyncio.sleep(min(self.rest_s_max, REST_PER_WORK * took_s))
        return more


def timed(step: Callable[[], R]) -> Callable[[], tuple[R, float]]:
    """Work for a thread, that also tells how long it took, without the wait for its turn."""

    def run() -> tuple[R, float]:
        began_s = monotonic()
        return step(), monotonic() - began_s

    return run
