"""What runs without a request, and how it is kept running.

Whatever it is, somebody has to see when it fails, and it has to go on. A `Watch` counts failures
and logs them; `/readyz` and the metrics ask it. There are three kinds of such work: rounds of a
`Background` task, `Retried` work that is done once, and what is called by a timer or for a change
(`headwater.service.timers`, the heartbeat, listeners), where one failure must not keep others from
their turn.

A background task does a round, rests, and begins again, for as long as the process lives. What
takes time is done on a thread of its own. Whatever a round fails with, nothing is lost: it is
logged and counted, and tried again after a while, longer each time. `/readyz` and the metrics say
which tasks are failing and why.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Final, TypeVar

import structlog

from headwater.core.errors import StreamError

R = TypeVar("R")
_PAUSE_AFTER_FAILURE_S: Final = 1.0
_PAUSE_AFTER_FAILURE_S_MAX: Final = 60.0
_REMEMBERED_S: Final = 60.0

log = structlog.get_logger()


class Watch:
    """How something that runs without a request is doing."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Of the warning that something failed, and for those who watch."""
        self.failures = 0
        self.problem: str | None = None
        """What it failed with last, until it succeeds."""
        self._failed_s = 0.0

    @property
    def is_failing(self) -> bool:
        """Whether it has failed, not succeeded since, and not so long ago as to be forgotten."""
        return self.problem is not None and monotonic() - self._failed_s < _REMEMBERED_S

    def succeeded(self) -> None:
        self.problem = None

    def failed(self, error: Exception, again_in_s: float | None = None) -> None:
        self.failures += 1
        self._failed_s = monotonic()
        expected = isinstance(error, StreamError | OSError)
        self.problem = str(error) if expected else repr(error)
        # The log may well lie on the very disk that is full.
        with suppress(OSError, ValueError):
            trace = None if expected else error
            event = f"{self.name}_failed"
            log.warning(event, error=self.problem, again_in_s=again_in_s, exc_info=trace)


class Retried:
    """Work that nobody waits for, each piece on a task of its own, until it has succeeded."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        pause_s = _PAUSE_AFTER_FAILURE_S
        while True:
            try:
                await work()
            except Exception as error:
                self._watch.failed(error, pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_AFTER_FAILURE_S_MAX)
            else:
                self._watch.succeeded()
                return

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Background(ABC, Watch):
    name: str
    """Of the thread too."""

    def __init__(self) -> None:
        super().__init__(self.name)
        self._stopping = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"headwater-{self.name}")
        self._task: asyncio.Task[None] | None = None

    @property
    def is_failing(self) -> bool:
        """Whether the last round failed."""
        return self.problem is not None

    @abstractmethod
    async def round(self) -> float:
        """Do what there is to do at this moment; says how long to rest after it, in seconds."""

    @property
    def is_started(self) -> bool:
        return self._task is not None

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
                self.failed(error, after_failure_s)
                pause_s = after_failure_s
                after_failure_s = min(2 * after_failure_s, _PAUSE_AFTER_FAILURE_S_MAX)
            else:
                self.succeeded()
                after_failure_s = _PAUSE_AFTER_FAILURE_S
            await self.pause(pause_s)

    async def pause(self, length_s: float) -> None:
        """Rest, or until the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(length_s):
                await self._stopping.wait()

    async def _aside(self, work: Callable[..., R], *arguments: object) -> R:
        """Do something on the thread that is there for it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, *arguments)
