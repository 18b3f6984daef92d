"""The thread that commits, one job at a time, while the event loop continues."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")


class CommitThread:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._held: list[Callable[[], None]] | None = None
        self._taken = 0
        self._done = 0
        self._thread = threading.Thread(target=self._work, name="headwater-commit", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return self._taken == self._done

    def put(self, job: Callable[[], None]) -> None:
        self._taken += 1
        if self._held is None:
            self._jobs.put(job)
        else:
            self._held.append(job)

    def hold(self) -> None:
        """Begin no job for now: another process is committing."""
        self._held = []

    def release(self) -> None:
        held, self._held = self._held, None
        for job in held or ():
            self._jobs.put(job)

    async def run(self, work: Callable[[], R]) -> R:
        """Run a job in its turn."""
        future: asyncio.Future[R] = self._loop.create_future()

        def job() -> None:
            try:
                outcome: R | Exception = work()
            except Exception as error:
                outcome = error
            self._loop.call_soon_threadsafe(_settle, future, outcome)

        self.put(job)
        return await future

    async def stop(self) -> None:
        """Stop once all jobs are done."""
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            self._done += 1


def _settle(future: asyncio.Future[Any], outcome: object) -> None:
    """Set a future's result, unless the waiting client has hung up."""
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
