"""What runs without a request, and how it is kept running.

A background task does a round, rests, and begins again, for as long as the process lives. What
takes time is done on a thread of its own. Whatever a round fails with, nothing is lost: it is
logged and counted, and tried again after a while, longer each time. `/readyz` and the metrics say
which tasks are failing and why.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

import structlog

from headwater.core.errors import StreamError

R = TypeVar("R")
_PAUSE_AFTER_FAILURE_S: Final = 1.0
_PAUSE_AFTER_FAILURE_S_MAX: Final = 60.0

log = structlog.get_logger()


class Background(ABC):
    name: str
    """Of the thread, of the warning that something failed, and for those who watch."""

    def __init__(self) -> None:
        self.failures = 0
        self.problem: str | None = None
        """What the last round failed with, until one succeeds."""
        self._stopping = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"headwater-{self.name}")
        self._task: asyncio.Task[None] | None = None

    @property
    def is_failing(self) -> bool:
        return self.problem is not None

    @abstractmethod
    async def round(self) -> float:
        """Do what there is to do at this moment; says how long to rest after it, in seconds."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Finish the step that is under way; the next start takes up what is left."""
        self._stopping.set()
        if self._task is not None:
            await self._task
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def _run(self) -> None:
        after_failure_s = _PAUSE_AFTER_FAILURE_S
        while not self._stopping.is_set():
            try:
                pause_s = await self.round()
            except Exception as error:
                if self._stopping.is_set():
                    break
                self._report(error, after_failure_s)
                pause_s = after_failure_s
                after_failure_s = min(2 * after_failure_s, _PAUSE_AFTER_FAILURE_S_MAX)
            else:
                self.problem = None
                after_failure_s = _PAUSE_AFTER_FAILURE_S
            await self.pause(pause_s)

    def _report(self, error: Exception, again_in_s: float) -> None:
        self.failures += 1
        expected = isinstance(error, StreamError | OSError)
        self.problem = str(error) if expected else repr(error)
        # The log may be on the disk that is full.
        with suppress(OSError, ValueError):
            trace = None if expected else error
            event = f"{self.name}_failed"
            log.warning(event, error=self.problem, again_in_s=again_in_s, exc_info=trace)

    async def pause(self, length_s: float) -> None:
        """Rest, or until the end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), length_s)

    async def _aside(self, work: Callable[..., R], *arguments: object) -> R:
        """Do something on the thread that is there for it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, *arguments)
