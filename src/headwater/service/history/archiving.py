"""Bringing history to object storage, after sealing as sealing comes after commits.

One task works through what there is to do, a segment at a time. When object storage does not
answer, appends and everything that is on this machine do not notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from headwater.service.background import Background
from headwater.service.clock import Clock
from headwater.service.writer import Writer
from headwater.store.history.policies import ArchivePolicy
from headwater.store.history.segment import SegmentRow
from headwater.store.sqlite.history import SqliteHistory

if TYPE_CHECKING:
    from headwater.store.history.archive import Archive

R = TypeVar("R")


class Storage(Protocol):
    def close(self) -> None:
        """Whoever waits for object storage is told that it does not answer."""


_PAUSE_S: Final = 0.2
_CATALOG_EVERY_S: Final = 30.0
_CATALOG_SOON_S: Final = 2.0
_REST_PER_CATALOG: Final = 20.0
_REST_S_MAX: Final = 300.0
# How long object storage has to finish what is under way when everything ends.
_PATIENCE_S: Final = 2.0


class StorageTask(Background):
    """Waits for object storage, but not for long when everything ends."""

    name = "archiving"

    def __init__(self, storage: Storage, policy: ArchivePolicy, writer: Writer) -> None:
        super().__init__()
        self._storage = storage
        self._policy = policy
        self._writer = writer
        self.uploads = 0
        self.uploaded_bytes = 0
        self._end: asyncio.TimerHandle | None = None

    def wind_down(self) -> None:
        """Begin nothing more. Who still waits for object storage does so for a moment only."""
        self._stopping.set()
        if self._end is None:
            loop = asyncio.get_running_loop()
            self._end = loop.call_later(_PATIENCE_S, self._storage.close)

    async def stop(self) -> None:
        """Finish what is under way if that is possible in time; it is begun again otherwise."""
        self.wind_down()
        await super().stop()
        if self._end is not None:
            self._end.cancel()
        self._storage.close()

    async def _note(self, work: Callable[[SegmentRow], R], row: SegmentRow) -> R:
        return await self._writer.run(lambda: work(row))


class Archiving(StorageTask):
    def __init__(
        self, archive: Archive, policy: ArchivePolicy, writer: Writer, clock: Clock
    ) -> None:
        super().__init__(archive, policy, writer)
        self._archive = archive
        self._clock = clock
        self._catalog_due_s = 0.0
        self._catalog_soon_s = 0.0

    async def round(self) -> float:
        archive = self._archive
        for row in await self._aside(archive.to_upload):
            if self._stopping.is_set():
                return 0.0
            if await self._note(archive.note_begun, row) and await self._aside(archive.upload, row):
                await self._note(archive.note_uploaded, row)
                self.uploads += 1
                self.uploaded_bytes += row.size_bytes
                self._catalog_due_s = min(self._catalog_due_s, self._catalog_soon_s)
        for row in await self._aside(archive.to_evict, self._policy.local_bytes_max):
            await self._note(archive.evict, row)
        await self._catalog()
        for row in await self._aside(archive.to_remove):
            await self._aside(archive.remove, row)
            await self._note(archive.note_removed, row)
        return _PAUSE_S

    async def _catalog(self) -> None:
        """Write a catalog if it is time. The longer that takes, the longer it may be until then."""
        if await self._aside(self._archive.leftovers):
            # They wait for catalogs that do not name them.
            self._catalog_due_s = min(self._catalog_due_s, self._catalog_soon_s)
        elif not await self._aside(self._archive.has_changed):
            return
        began_s = monotonic()
        if began_s < self._catalog_due_s:
            return
        await self._aside(self._archive.catalog, self._clock())
        rest_s = min(_REST_S_MAX, _REST_PER_CATALOG * (monotonic() - began_s))
        self._catalog_soon_s = began_s + max(_CATALOG_SOON_S, rest_s)
        self._catalog_due_s = began_s + max(_CATALOG_EVERY_S, rest_s)


def open_archive(history: SqliteHistory, policy: ArchivePolicy) -> Archive:
    """Raises ValueError when the policy's URL is none that can be used."""
    # The library for object storage takes a while to load, and most have no use for it.
    from headwater.store.history.archive import Archive
    from headwater.store.history.object_storage import Remote

    return Archive(history, Remote(policy.url), policy.cache_bytes_max)
