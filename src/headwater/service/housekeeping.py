"""What happens without a request: streams expire, and the data of deleted ones is removed.

Both work in small steps through the same writer as everyone else, so neither holds up a commit for
long. Between two rounds this sleeps until something is due, or until the idle interval is over.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from headwater.core.errors import StreamError

if TYPE_CHECKING:
    from headwater.service.log import Log

_EXPIRE_AT_ONCE_MAX: Final = 256
_TRIM_AT_ONCE_MAX: Final = 64
_TRIM_EVERY_MS: Final = 2_000
_REAP_APPENDS: Final = 500
_IDLE_MS: Final = 1_000

log = structlog.get_logger()


class Housekeeping:
    def __init__(self, streams: Log) -> None:
        self._streams = streams
        self._task: asyncio.Task[None] | None = None
        self._next_trim_ms = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            try:
                await self._expire()
                await self._trim()
                await self._reap()
                pause_ms = await self._pause_ms()
            except StreamError as error:
                pause_ms = _IDLE_MS
                with suppress(OSError, ValueError):
                    log.warning("housekeeping_failed", error=error.message)
            await asyncio.sleep(pause_ms / 1000)

    async def _expire(self) -> None:
        streams = self._streams
        due = await streams.in_thread(
            streams.engine.streams.expired, streams.clock(), _EXPIRE_AT_ONCE_MAX
        )
        for path in due:
            await streams.expire(path)

    async def _trim(self) -> None:
        """Let streams forget what they need not keep. A round over all of them now and then."""
        streams = self._streams
        if streams.clock() < self._next_trim_ms:
            return
        self._next_trim_ms = streams.clock() + _TRIM_EVERY_MS
        after_id = 0
        while True:
            due = await streams.in_thread(
                streams.engine.streams.retaining, after_id, _TRIM_AT_ONCE_MAX
            )
            await asyncio.gather(*(self._trim_one(path) for _, path in due))
            if len(due) < _TRIM_AT_ONCE_MAX:
                break
            after_id = due[-1][0]

    async def _trim_one(self, path: str) -> None:
        try:
            await self._streams.trim(path)
        except StreamError as error:
            # Something is wrong with this one; the others are not to suffer for it.
            with suppress(OSError, ValueError):
                log.warning("trimming_failed", stream=path, error=error.message)

    async def _reap(self) -> None:
        streams = self._streams
        more = True
        while more:
            # Each step is a job of its own, so commits get their turn in between.
            more = await streams.writer.run(lambda: streams.engine.reap(_REAP_APPENDS))

    async def _pause_ms(self) -> int:
        deadline = await self._streams.in_thread(self._streams.engine.streams.next_deadline_ms)
        if deadline is None:
            return _IDLE_MS
        return max(50, min(_IDLE_MS, deadline - self._streams.clock()))
