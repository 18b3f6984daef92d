"""Uploading history to object storage, which follows sealing as sealing follows commits.

One task does this, a segment at a time. When object storage does not answer, appends and everything
on this machine are unaffected.
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
        """Everyone waiting for object storage gets the error that it does not answer."""


_PAUSE_S: Final = 0.2
_CATALOG_EVERY_S: Final = 30.0
_CATALOG_SOON_S: Final = 2.0
_REST_PER_CATALOG: Final = 20.0
_REST_S_MAX: Final = 300.0
# How long object storage has to finish pending work at shutdown.
_PATIENCE_S: Final = 2.0


class StorageTask(Background):
    """Waits for object storage, but not for long at shutdown."""

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
        """Start nothing more. Waits for object storage now end quickly."""
        self._stopping.set()
        if self._end is None:
            loop = asyncio.get_running_loop()
            self._end = loop.call_later(_PATIENCE_S, self._storage.close)

    async def stop(self) -> None:
        """Finish pending work if there is time; otherwise it is started again later."""
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
        """Write a catalog if one is due. The longer that takes, the longer the interval."""
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
    """Raises ValueError if the policy's URL is not usable."""
    # The object storage library is slow to import, and most servers do not use it.
    from headwater.store.history.archive import Archive
    from headwater.store.history.object_storage import Remote

    return Archive(history, Remote(policy.url), policy.cache_bytes_max)
