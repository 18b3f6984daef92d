"""Housekeeping: expiring streams, trimming them, and removing their data.

Each is its own task, so that none waits for another or fails with it. They work in small steps
through the same writer as everyone else, and find their work in indexes: idle streams cost nothing,
however many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from headwater.core.errors import OwnedElsewhere, StreamError
from headwater.service.background import Background

if TYPE_CHECKING:
    from headwater.service.log import Log

_AT_ONCE_MAX: Final = 64
_REAP_APPENDS: Final = 500
_IDLE_S: Final = 1.0
_SHORTEST_S: Final = 0.05
# Most of the commit thread's time belongs to waiting requests.
_REST_PER_WORK: Final = 2.0
_REST_S_MAX: Final = 0.1

log = structlog.get_logger()


class Expiry(Background):
    """Deletes expired streams."""

    name = "expiry"

    def __init__(self, streams: Log) -> None:
        super().__init__()
        self._streams = streams
        self.before: Callable[[str], Awaitable[None]] | None = None
        """A hook for layers to remove what belongs to a stream. If that is interrupted, the stream
        still exists, and is due again.
        """

    async def round(self) -> float:
        streams = self._streams
        stored = streams.engine.streams
        due = await streams.in_thread(stored.expired, streams.clock(), _AT_ONCE_MAX)
        try:
            for path in due:
                if self.before is not None:
                    await self.before(path)
                await streams.expire(path)
        except OwnedElsewhere:
            # It is moving to another node, which takes care of it. The others are due again.
            return _IDLE_S
        if len(due) == _AT_ONCE_MAX:
            return 0.0
        deadline = await streams.in_thread(stored.next_deadline_ms)
        if deadline is None:
            return _IDLE_S
        return max(_SHORTEST_S, min(_IDLE_S, (deadline - streams.clock()) / 1000))


class Trimming(Background):
    """Drops what streams need not keep, when a check is due."""

    name = "trimming"

    def __init__(self, streams: Log) -> None:
        super().__init__()
        self._streams = streams
        self._not_before_ms: dict[str, int] = {}
        """Streams that could not be trimmed, and when to retry."""

    async def round(self) -> float:
        streams = self._streams
        now_ms = streams.clock()
        later = {path: at for path, at in self._not_before_ms.items() if at > now_ms}
        self._not_before_ms = later
        most = _AT_ONCE_MAX + len(later)
        due = await streams.in_thread(streams.engine.streams.trimmable, now_ms, most)
        due = [path for path in due if path not in later]
        await asyncio.gather(*(self._trim(path) for path in due))
        return 0.0 if len(due) >= _AT_ONCE_MAX else _IDLE_S

    async def _trim(self, path: str) -> None:
        try:
            await self._streams.trim(path)
        except OwnedElsewhere:
            # It is moving to another node, which takes care of it.
            self._not_before_ms[path] = self._streams.clock() + 1_000
        except StreamError as error:
            # Something is wrong with this stream; the others must not be affected.
            self._not_before_ms[path] = self._streams.clock() + 60_000
            self.failures += 1
            with suppress(OSError, ValueError):
                log.warning("trimming_failed", stream=path, error=error.message)


class Collection(Background):
    """Removes unneeded data, a step at a time between commits."""

    name = "collection"

    def __init__(self, streams: Log) -> None:
        super().__init__()
        self._streams = streams
        self._surveyed_to: int | None = 0
        """The id up to which streams that were soft-deleted before this node owned them have been
        checked; None when done.
        """
        self._has_gained = False

    async def gained(self, shards: Set[int]) -> None:
        """This node gained shards, and with them what another node left to collect."""
        self._has_gained = True

    async def round(self) -> float:
        while await self._streams.grace.purge_due():
            pass
        await self._remove_orphans()
        return await self._reap()

    async def _remove_orphans(self) -> None:
        streams = self._streams
        if self._has_gained:
            self._has_gained, self._surveyed_to = False, 0
        if self._surveyed_to is not None:
            stored = streams.engine.streams
            found = await streams.in_thread(stored.soft_deleted, self._surveyed_to, _AT_ONCE_MAX)
            streams.orphans.update({one.path: None for one in found if not one.has_forks})
            self._surveyed_to = found[-1].id if len(found) == _AT_ONCE_MAX else None
        for path in list(streams.orphans):
            # The node that has it by now takes care of it.
            with suppress(OwnedElsewhere):
                await streams.remove_orphan(path)
            streams.orphans.pop(path, None)

    async def _reap(self) -> float:
        """Each step is its own job, so that commits get their turn in between."""
        streams, clock = self._streams, asyncio.get_running_loop()
        more = True
        while more and not self._stopping.is_set() and not streams.orphans:
            began_s = clock.time()
            more = await streams.writer.run(lambda: streams.engine.reap(_REAP_APPENDS))
            rest_s = min(_REST_S_MAX, _REST_PER_WORK * (clock.time() - began_s))
            await self.pause(rest_s if more else 0)
        if self._surveyed_to is not None:
            return _SHORTEST_S
        return 0.0 if more or streams.orphans else _IDLE_S
