"""What the tasks that work behind the log have in common.

Each does a round, rests, and begins again. What takes time is done on a thread of its own. When a
round fails, nothing is lost: a warning says so, and it is tried again after a while, longer each
time.
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
    """Of the thread, and of the warning that something failed."""

    def __init__(self) -> None:
        self.failures = 0
        self.is_failing = False
        """Whether the last round failed."""
        self._stopping = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"headwater-{self.name}")
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def round(self) -> float:
        """Do what there is to do at this moment; says how long to rest after it, in seconds."""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(_report_end)

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
            except (StreamError, OSError) as error:
                if self._stopping.is_set():
                    break
                self.failures += 1
                self.is_failing = True
                with suppress(OSError, ValueError):
                    event = f"{self.name}_failed"
                    log.warning(event, error=str(error), again_in_s=after_failure_s)
                await self._pause(after_failure_s)
                after_failure_s = min(2 * after_failure_s, _PAUSE_AFTER_FAILURE_S_MAX)
            else:
                self.is_failing = False
                after_failure_s = _PAUSE_AFTER_FAILURE_S
                await self._pause(pause_s)

    async def _pause(self, length_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), length_s)

    async def _aside(self, work: Callable[..., R], *arguments: object) -> R:
        """Do something on the thread that is there for it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, *arguments)


def _report_end(task: asyncio.Task[None]) -> None:
    """Such a task ends when it is stopped, and for no other reason."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background_task_failed", error=repr(error), exc_info=error)
