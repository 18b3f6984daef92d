"""The grace period of deleted streams: undeleting and purging them.

The rules are in `headwater.core.decisions.undelete`. Whether a deleted stream is still kept is
looked up in the engine, so undeleting and purging take turns. The number of kept streams is
bounded, and on a full disk none is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from headwater.core import decisions
from headwater.core.errors import OwnedElsewhere, StreamError
from headwater.core.stream import Purged, StreamState
from headwater.service.batches import Owner
from headwater.service.entries import Entry
from headwater.store.engine.streams import LoadedStream

if TYPE_CHECKING:
    from headwater.service.log import Log

AT_ONCE_MAX: Final = 64
_FOREVER_MS: Final = 2**62


class _Nobody(Owner):
    """An owner for mutations that no entry needs to see."""


class Grace:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._stored = log.engine.streams
        self._lock = asyncio.Lock()
        self._grown = True
        """Whether more may be kept than the bound allows."""
        self.may_keep: Callable[[StreamState], bool] = lambda state: True
        """Whether the quotas of a stream allow keeping it."""

    def period_ms(self, state: StreamState | None) -> int:
        """How long a stream deleted now is kept."""
        if self._log.writer.full or (state is not None and not self.may_keep(state)):
            return 0
        self._grown = True
        return 1000 * self._log.limits.undelete_grace_s

    async def undelete(self, path: str) -> str:
        """Undelete a stream; returns its tail."""
        log = self._log
        # If the stream at the path has expired, it is not in the way.
        await log.expire(path)
        async with self._lock:
            while True:
                entry = await log.entry(path)
                await log.writer.reply_after(entry, None)
                with entry.pinned():
                    taken = entry.state
                    loaded = await log.in_thread(self._stored.load_deleted, path)
                    source = await self._source_of(loaded)
                    # Nothing is being committed at the path, and nothing has happened there
                    # meanwhile.
                    family = [one for one in (entry, source) if one is not None]
                    quiet = entry.pending is None and entry.state is taken
                    if quiet and all(log.holds(one) for one in family):
                        return await self._undelete(path, entry, loaded, source)

    async def _source_of(self, loaded: LoadedStream | None) -> Entry | None:
        source_id = loaded.state.config.source_id if loaded is not None else None
        if source_id is None:
            return None
        path = await self._log.in_thread(self._stored.path_of, source_id)
        return None if path is None else await self._log.entry(path)

    async def _undelete(
        self, path: str, entry: Entry, loaded: LoadedStream | None, source: Entry | None
    ) -> str:
        log = self._log
        source_state: StreamState | None = source.state if source is not None else None
        deleted = loaded.state if loaded is not None else None
        try:
            decision = decisions.decide_undelete(
                deleted, path, entry.state, source_state, log.clock()
            )
        except StreamError as error:
            await log.writer.fail_after(source or entry, error)
            raise
        owners = (entry, source) if source is not None else (entry,)
        return await log.writer.submit(
            list(zip(owners, decision.mutations, strict=True)), decision.reply
        )

    async def purge(self, path: str) -> bool:
        """Purge everything that was deleted at a path; returns whether there was anything."""
        purged = False
        async with self._lock:
            while (
                loaded := await self._log.in_thread(self._stored.load_deleted, path)
            ) is not None:
                await self._purge([(loaded.state.config.id, path)])
                purged = True
        return purged

    async def purge_due(self) -> bool:
        """Purge some streams whose grace period is over; True if there may be more."""
        log = self._log
        now_ms = _FOREVER_MS if log.writer.full else log.clock()
        async with self._lock:
            due = await log.in_thread(self._stored.purgeable, now_ms, AT_ONCE_MAX)
            if not due and self._grown:
                most = log.limits.deleted_streams_max
                due = await log.in_thread(self._stored.kept_beyond, most, AT_ONCE_MAX)
                self._grown = len(due) == AT_ONCE_MAX
            await self._purge(due)
        return len(due) == AT_ONCE_MAX

    async def _purge(self, due: Sequence[tuple[int, str]]) -> None:
        replies = []
        for stream_id, path in due:
            owner: Owner
            try:
                owner = await self._log.entry(path)
            except OwnedElsewhere:
                # Another stream, on another node, has the path now; this does not concern it.
                owner = _Nobody()
            replies.append(self._log.writer.submit([(owner, Purged(stream_id))], None))
        for reply in replies:
            await reply
