"""Sealing: older rows become history, behind every acknowledgement.

A task looks now and then whether there is something to seal. Files are written and verified on a
thread of their own. What then has to happen between two commits is done in small slices, each a
job for the commit thread by itself, so that appends get their turn in between.

When it cannot be done (the disk is full, the database refuses), nothing is lost: the rows stay
where they are, a warning says so, and it is tried again after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Final, TypeVar

import structlog

from headwater.core.errors import StreamError
from headwater.service.clock import Clock
from headwater.service.writer import Writer
from headwater.store.history.ledger import into_files
from headwater.store.history.policies import SealPolicy
from headwater.store.history.sealing import History, Recording, Stopped

R = TypeVar("R")
_REST_PER_WORK: Final = 2.0
_REST_S_MAX: Final = 0.1
_PAUSE_MS_MIN: Final = 20
_PAUSE_MS_MAX: Final = 1_000
_PAUSE_AFTER_FAILURE_MS_MAX: Final = 60_000

log = structlog.get_logger()


def report_end(task: asyncio.Task[None]) -> None:
    """A task that works behind the log ends when it is stopped, and for no other reason."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background_task_failed", error=repr(error), exc_info=error)


class Sealing:
    def __init__(self, history: History, policy: SealPolicy, writer: Writer, clock: Clock) -> None:
        self._history = history
        self._policy = policy
        self._writer = writer
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headwater-seal")
        self._stopping = asyncio.Event()
        self._unfinished: Recording | None = None
        self.files = 0
        self.size_bytes = 0
        """What was sealed since the start."""
        self.failures = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(report_end)

    async def stop(self) -> None:
        """Finish the step that is under way; the next start takes up what is left."""
        self._stopping.set()
        self._history.stopping = True
        if self._task is not None:
            await self._task
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def _run(self) -> None:
        pause_ms = min(_PAUSE_MS_MAX, max(_PAUSE_MS_MIN, self._policy.after_ms // 4))
        after_failure_ms = _PAUSE_MS_MAX
        surveyed = False
        while not self._stopping.is_set():
            try:
                if not surveyed:
                    await self._survey()
                    surveyed = True
                sealed = await self.seal_due()
            except (StreamError, OSError) as error:
                self.failures += 1
                with suppress(OSError, ValueError):
                    log.warning("sealing_failed", error=str(error))
                await self._pause(after_failure_ms)
                after_failure_ms = min(2 * after_failure_ms, _PAUSE_AFTER_FAILURE_MS_MAX)
            else:
                after_failure_ms = _PAUSE_MS_MAX
                # Where something was due, there may well be more.
                await self._pause(_PAUSE_MS_MIN if sealed else pause_ms)

    async def _pause(self, length_ms: int) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), length_ms / 1000)

    async def _survey(self) -> None:
        await self._writer.run(self._history.keep_ledger)
        await self._aside(self._history.survey)

    async def seal_due(self) -> bool:
        """Seal what is due at this moment, about a file of each; says whether there was any."""
        await self._record()
        due = await self._aside(self._history.ledger.due, self._policy, self._clock())
        for runs in into_files(due, self._policy.segment_bytes):
            try:
                self._unfinished = await self._aside(
                    self._history.gather, runs, self._policy.segment_bytes
                )
            except Stopped:
                break
            if self._unfinished is None:
                await self._aside(self._history.forget, runs)
            await self._record()
        return bool(due)

    async def _record(self) -> None:
        """Record the file that was written last, as far as that has not been done.

        If the database refuses, the very same is tried again later: whether a commit that failed
        is really not there is known for certain only after it.
        """
        recording, now_ms = self._unfinished, self._clock()
        if recording is None:
            return

        def record() -> tuple[bool, float]:
            began_s = monotonic()
            return self._history.record(recording, now_ms), monotonic() - began_s

        more = True
        while more:
            more, took_s = await self._writer.run(record)
            # Most of the commit thread's time belongs to those who wait for an answer.
            await asyncio.sleep(min(_REST_S_MAX, _REST_PER_WORK * took_s))
            if self._stopping.is_set():
                return
        await self._aside(self._history.settle, recording)
        self._unfinished = None
        if recording.begun:
            self.files += 1
            self.size_bytes += recording.draft.size_bytes

    async def _aside(self, work: Callable[..., R], *arguments: object) -> R:
        """Do something on the thread that is there for it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, *arguments)
