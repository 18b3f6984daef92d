"""Bringing history to object storage, behind sealing as sealing is behind the commits.

One task works through what there is to do, a segment at a time. When object storage does not
answer, a warning says so, and it is tried again after a while, longer each time. Appends and
everything that is on this machine do not notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from headwater.core.errors import StreamError
from headwater.service.clock import Clock
from headwater.service.history.sealing import report_end
from headwater.service.writer import Writer
from headwater.store.history.policies import ArchivePolicy
from headwater.store.history.sealing import History
from headwater.store.history.segment import SegmentRow

if TYPE_CHECKING:
    from headwater.store.history.archive import Archive

R = TypeVar("R")
_PAUSE_S: Final = 0.2
_CATALOG_EVERY_S: Final = 30.0
_CATALOG_SOON_S: Final = 2.0
_PAUSE_AFTER_FAILURE_S: Final = 1.0
_PAUSE_AFTER_FAILURE_S_MAX: Final = 60.0

log = structlog.get_logger()


class Archiving:
    def __init__(
        self, archive: Archive, policy: ArchivePolicy, writer: Writer, clock: Clock
    ) -> None:
        self._archive = archive
        self._policy = policy
        self._writer = writer
        self._clock = clock
        self.uploads = 0
        self.uploaded_bytes = 0
        self.failures = 0
        self.is_down = False
        """Whether object storage did not answer when it was last asked."""
        self._catalog_due_s = 0.0
        self._catalog_soon_s = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headwater-archive")
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(report_end)

    async def stop(self) -> None:
        """Finish the step that is under way; the next start takes up what is left."""
        self._stopping.set()
        if self._task is not None:
            await self._task
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def _run(self) -> None:
        pause_s = _PAUSE_AFTER_FAILURE_S
        while not self._stopping.is_set():
            try:
                await self.round()
            except (StreamError, OSError) as error:
                self.failures += 1
                self.is_down = True
                with suppress(OSError, ValueError):
                    log.warning("archiving_failed", error=str(error), again_in_s=pause_s)
                await self._pause(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_AFTER_FAILURE_S_MAX)
            else:
                self.is_down = False
                pause_s = _PAUSE_AFTER_FAILURE_S
                await self._pause(_PAUSE_S)

    async def _pause(self, length_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), length_s)

    async def round(self) -> None:
        """Do everything that there is to do at this moment."""
        archive = self._archive
        for row in await self._aside(archive.to_upload):
            if self._stopping.is_set():
                return
            if await self._note(archive.note_begun, row) and await self._aside(archive.upload, row):
                await self._note(archive.note_uploaded, row)
                self.uploads += 1
                self.uploaded_bytes += row.size_bytes
                self._catalog_due_s = min(self._catalog_due_s, self._catalog_soon_s)
        for row in await self._aside(archive.to_evict, self._policy.local_bytes_max):
            await self._note(archive.evict, row)
        superfluous = await self._aside(archive.to_remove)
        await self._catalog(at_once=bool(superfluous))
        for row in superfluous:
            await self._aside(archive.remove, row)
            await self._note(archive.note_removed, row)

    async def _catalog(self, *, at_once: bool) -> None:
        """Write a catalog if it is time. The longer that takes, the longer it may be until then."""
        began_s = monotonic()
        if not at_once and (
            began_s < self._catalog_due_s or not await self._aside(self._archive.has_changed)
        ):
            return
        await self._aside(self._archive.catalog, self._clock())
        rest_s = 20 * (monotonic() - began_s)
        self._catalog_soon_s = began_s + max(_CATALOG_SOON_S, rest_s)
        self._catalog_due_s = began_s + max(_CATALOG_EVERY_S, rest_s)

    async def _note(self, work: Callable[[SegmentRow], R], row: SegmentRow) -> R:
        return await self._writer.run(lambda: work(row))

    async def _aside(self, work: Callable[..., R], *arguments: object) -> R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, work, *arguments)


def open_archive(history: History, policy: ArchivePolicy) -> Archive:
    """Raises ValueError when the policy's URL is none that can be used."""
    # The library for object storage takes a while to load, and most have no use for it.
    from headwater.store.history.archive import Archive
    from headwater.store.history.remote import Remote

    return Archive(history, Remote(policy.url), policy.cache_bytes_max)
