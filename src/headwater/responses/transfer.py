"""One answer on its way from the upstream into its stream.

There are two tasks: one receives, the other stores what was gathered. The buffer between them is
bounded, so an upstream that is faster than the disk waits. Appends are numbered, like those of any
producer, so a retried one is stored once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from headwater.core import decisions
from headwater.core.content_types import DEFAULT
from headwater.core.decisions import Append
from headwater.core.errors import StorageUnavailable, StreamError, TooBusy
from headwater.core.producers import ProducerStamp
from headwater.core.responses.about import Reason
from headwater.core.responses.ending import decide_end
from headwater.core.responses.gathering import Gathering
from headwater.service.batches import Effect
from headwater.service.log import Log

if TYPE_CHECKING:
    import httpx

R = TypeVar("R")
Store = Callable[[str, Append], Awaitable[object]]
_PRODUCER: Final = "response"
_STORING_TRIES: Final = 8
_STORING_PAUSE_S: Final = 0.1


class _TooLarge(Exception):
    """The response exceeded its size limit."""


class Transfer:
    def __init__(
        self, store: Store, path: str, response: httpx.Response, bytes_max: int, idle_s: float
    ) -> None:
        self.size = 0
        self.done = asyncio.Event()
        """Set when it is over, and closed."""
        self.ended: Reason | None = None
        """Why it ended early, if known."""
        self._append_to = store
        self._path = path
        self._response = response
        self._bytes_max = bytes_max
        self._idle_s = idle_s
        self._gathered = Gathering()
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._appends = 0
        self._receiving: asyncio.Task[None] | None = None

    def end(self, reason: Reason) -> None:
        """Stop receiving; what has arrived is stored."""
        if self.ended is None:
            self.ended = reason
            if self._receiving is not None:
                self._receiving.cancel()

    async def run(self) -> Reason | None:
        """Receive the answer. It is closed then, unless there is a reason to close it with."""
        self._receiving = receiving = asyncio.ensure_future(self._receive())
        receiving.add_done_callback(lambda _: self._news.set())
        if self.ended is not None:
            receiving.cancel()
        try:
            await self._store(receiving)
        except StreamError:
            # Deleted, closed by someone else, over a quota, or storage failed for too long.
            self.ended = self.ended or Reason.STORAGE_FAILED
        finally:
            receiving.cancel()
            await asyncio.wait([receiving])
            await self._response.aclose()
        return self.ended

    # ── Receiving ────────────────────────────────────────────────────────────────────────────

    async def _receive(self) -> None:
        parts = self._response.aiter_raw()
        while True:
            async with asyncio.timeout(self._idle_s):
                part = await anext(parts, None)
            if part is None:
                return
            left = self._bytes_max - self.size
            self._gathered.add(part[:left], _now_ms())
            self.size += min(len(part), left)
            self._news.set()
            if len(part) > left:
                raise _TooLarge
            while self._gathered.is_full:
                self._room.clear()
                await self._room.wait()

    def _reason(self, receiving: asyncio.Task[None]) -> Reason | None:
        """Why nothing more comes; None if it is complete."""
        import httpx

        if receiving.cancelled():
            return self.ended
        error = receiving.exception()
        match error:
            case None:
                return None
            case _TooLarge():
                return Reason.TOO_LARGE
            case TimeoutError():
                return Reason.IDLE
            case httpx.HTTPError() | httpx.StreamError() | OSError():
                return Reason.UPSTREAM_FAILED
        raise error

    # ── Storing ──────────────────────────────────────────────────────────────────────────────

    async def _store(self, receiving: asyncio.Task[None]) -> None:
        while not receiving.done() or self._gathered.size:
            await self._gather(receiving)
            over = receiving.done() and (self._reason(receiving) or self.ended) is None
            await self._append(self._gathered.take(), close=over)
            self._room.set()
            if over:
                return
        self.ended = self.ended or self._reason(receiving)
        if self.ended is None:
            await self._append(b"", close=True)

    async def _gather(self, receiving: asyncio.Task[None]) -> None:
        """Wait until there is something to store, and then for what follows immediately."""
        while not self._gathered.size and not receiving.done():
            self._news.clear()
            await self._news.wait()
        while not receiving.done():
            rest_ms = self._gathered.rest_ms(_now_ms())
            if rest_ms <= 0:
                return
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(rest_ms / 1000):
                    await self._news.wait()

    async def _append(self, body: bytes, *, close: bool) -> None:
        if not body and not close:
            return
        stamp = ProducerStamp(_PRODUCER, 0, self._appends)
        command = Append(body, DEFAULT if body else None, close, stamp)
        await persisted(lambda: self._append_to(self._path, command))
        self._appends += 1


async def persisted(work: Callable[[], Awaitable[R]]) -> R:
    """Retry until the disk accepts it, but not forever."""
    pause_s = _STORING_PAUSE_S
    for _ in range(_STORING_TRIES - 1):
        try:
            return await work()
        except (StorageUnavailable, TooBusy):
            await asyncio.sleep(pause_s)
            pause_s *= 2
    return await work()


async def end_response(log: Log, path: str, reason: Reason) -> None:
    """Close a response with the reason, unless it is closed."""

    async def end() -> None:
        entry = await log.entry(path)
        now_ms = log.clock()
        state = decisions.require(entry.state, path, now_ms)
        effects: list[Effect] = [(entry, change) for change in decide_end(state, reason, now_ms)]
        if effects:
            await log.writer.submit(effects, None)

    await persisted(end)


def _now_ms() -> float:
    return monotonic() * 1000
