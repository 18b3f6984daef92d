"""Workers: processes that load a document, bounded in memory, time and number."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec

from headwater.core.limits import KIB
from headwater.documents import loading
from headwater.documents.policy import Policy

PIECE_BYTES: Final = 256 * KIB
"""How much of a result is passed on at a time."""
_REASON_BYTES_MAX: Final = 4 * KIB

Feed = Callable[[], AsyncIterator[bytes]]
Take = Callable[[bytes], Awaitable[None]]

_REASONS: Final = {loading.MALFORMED: "malformed", loading.TOO_LARGE: "too_large"}


class Unworkable(Exception):
    """A document that no worker can load, now or later."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason
        self.problem = problem


class Unclear(Exception):
    """The requested part does not exist, or was not named."""


class WorkersBusy(Exception):
    pass


class Job(msgspec.Struct, frozen=True):
    form: str
    name: str = ""


class Workers:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._turns = asyncio.Semaphore(policy.workers)
        self._waiting = 0
        self.running: set[int] = set()
        """Process ids, for monitoring."""

    async def run(self, job: Job, feed: Feed, take: Take) -> None:
        """Run one job: sends what `feed` yields, and passes the output to `take`.

        `take` is called only if the job succeeds.
        """
        if self._waiting >= self._policy.waiting_max:
            raise WorkersBusy
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            async with asyncio.timeout(self._policy.worker_timeout_s):
                await self._run(job, feed, take)
        except TimeoutError:
            raise Unworkable("timed_out", "it takes longer than a worker may") from None
        finally:
            self._turns.release()

    async def _run(self, job: Job, feed: Feed, take: Take) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", loading.__name__),
            *(str(self._policy.worker_memory_bytes), job.form, job.name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=PIECE_BYTES,
        )
        self.running.add(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            await _give(process.stdin, feed)
            reason = b""
            # Nothing is written before the work is done.
            if await process.stdout.read(1) == loading.SUCCESS:
                while piece := await process.stdout.read(PIECE_BYTES):
                    await take(piece)
            else:
                reason = await process.stdout.read(_REASON_BYTES_MAX)
            status = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            self.running.discard(process.pid)
        if status == loading.UNCLEAR:
            raise Unclear(reason.decode())
        if status in _REASONS:
            raise Unworkable(_REASONS[status], reason.decode(errors="replace"))
        if status != loading.DONE:
            raise Unworkable("too_large", "the worker was ended, most likely for lack of memory")


async def _give(stdin: asyncio.StreamWriter, feed: Feed) -> None:
    # A worker that has given up stops reading, and says why when it exits.
    with suppress(BrokenPipeError, ConnectionResetError):
        async for piece in feed():
            stdin.write(piece)
            await stdin.drain()
        stdin.close()
        await stdin.wait_closed()
