"""Background work, and how it is kept running.

Work without a request must not fail silently, and must continue after a failure. A `Watch` counts
failures and logs them, for `/readyz` and the metrics. There are three kinds of such work: rounds of
a `Background` task, `Retried` work that is done once, and callbacks of timers and changes
(`headwater.service.timers`, the heartbeat, listeners), where one failure must not stop the others.

A background task does a round, rests, and repeats for as long as the process lives. Slow work runs
on the task's own thread. A failed round loses nothing: it is logged and counted, and retried after
a growing pause. `/readyz` and the metrics say which tasks are failing and why.
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
    """The health of something that runs without a request."""

    def __init__(self, name: str) -> None:
        self.name = name
        """For the log event of a failure, and for monitoring."""
        self.failures = 0
        self.problem: str | None = None
        """The last failure, until it succeeds."""
        self._failed_s = 0.0

    @property
    def is_failing(self) -> bool:
        """Whether it failed, has not succeeded since, and the failure is not too old to count."""
        return self.problem is not None and monotonic() - self._failed_s < _REMEMBERED_S

    def succeeded(self) -> None:
        self.problem = None

    def failed(self, error: Exception, again_in_s: float | None = None) -> None:
        self.failures += 1
        self._failed_s = monotonic()
        expected = isinstance(error, StreamError | OSError)
        self.problem = str(error) if expected else repr(error)
        # The log may be on the very disk that is full.
        with suppress(OSError, ValueError):
            trace = None if expected else error
            event = f"{self.name}_failed"
            log.warning(event, error=self.problem, again_in_s=again_in_s, exc_info=trace)


class Retried:
    """Work that nobody waits for, each piece on its own task, retried until it succeeds."""

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
    """Also the name of the thread."""

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
        """Do what is due now; returns how long to rest, in seconds."""

    @property
    def is_started(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Finish the current step; the next start continues from there."""
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
        """Rest, or until the task stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(length_s):
                await self._stopping.wait()

    async def _aside(self, work: Callable[..., R], *arguments: object) -> R:
        """Run something on the task's own thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, *arguments)
