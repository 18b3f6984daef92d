"""Fetching from object storage, without delaying anyone who does not need it.

A read that needs something from there is interrupted, the data is fetched on dedicated threads,
once for all who wait for it, and then the read starts again. When object storage does not answer,
reads that need it fail at once for a while, instead of each waiting in vain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Final

import structlog

from headwater.core.errors import HistoryUnavailable
from headwater.service.waiting import shared
from headwater.store.history.cold_segments import FetchNeeded, Key

_THREADS: Final = 8
_UNDER_WAY_MAX: Final = 256
_REST_S: Final = 1.0

log = structlog.get_logger()


class Fetching:
    def __init__(self, fetched: Callable[[int], None]) -> None:
        self._fetched = fetched
        self._threads: ThreadPoolExecutor | None = None
        self._under_way: dict[Key, asyncio.Future[None]] = {}
        self._failed: HistoryUnavailable | None = None
        self._resting_until = 0.0

    async def bring(self, need: FetchNeeded) -> None:
        """Fetch something, or wait for a fetch that is already running."""
        future = self._under_way.get(need.key)
        if future is None:
            if self._failed is not None and monotonic() < self._resting_until:
                raise HistoryUnavailable(self._failed.problem)
            if len(self._under_way) >= _UNDER_WAY_MAX:
                raise HistoryUnavailable("too many wait for it already")
            future = asyncio.ensure_future(self._fetch(need))
            self._under_way[need.key] = future
            future.add_done_callback(lambda done: self._done(need.key, done))
        # One client that hangs up does not cancel it for the others.
        await shared(future)

    async def _fetch(self, need: FetchNeeded) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="headwater-fetch")
        loop = asyncio.get_running_loop()
        try:
            size = await loop.run_in_executor(self._threads, need.fetch)
        except HistoryUnavailable as error:
            if self._failed is None:
                log.warning("history_unavailable", error=error.problem)
            self._failed, self._resting_until = error, monotonic() + _REST_S
            raise
        except OSError as error:
            raise HistoryUnavailable(f"the cache cannot be written: {error}") from None
        self._failed = None
        if isinstance(size, int):
            await loop.run_in_executor(self._threads, self._fetched, size)

    def _done(self, key: Key, done: asyncio.Future[None]) -> None:
        del self._under_way[key]
        # The waiting readers have seen the failure; there may be none left.
        if not done.cancelled():
            done.exception()

    def stop(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
