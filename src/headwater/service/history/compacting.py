"""Compaction in the running log: files that are small or mostly unneeded are slowly merged.

Copying is limited in bytes per second, and the copying thread rests longer than it works, so that
appends and reads are not affected. Work between two commits is done in small slices. See
`headwater.store.history.compaction` for the order of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Final

from headwater.service.clock import Clock
from headwater.service.history.file_task import REST_PER_WORK, FileTask
from headwater.service.writer import Writer
from headwater.store.history.compaction import Rewriting, usable
from headwater.store.history.compaction_choice import FileUse, choose
from headwater.store.history.policies import SealPolicy
from headwater.store.history.sealing import Stopped
from headwater.store.sqlite.history import SqliteHistory

_PAUSE_S: Final = 10.0
_AWAITED_S: Final = 0.2
_REST_PER_LOOK: Final = 100.0


class Compacting(FileTask):
    """Counts the files it replaced since the start, and the bytes it wrote for that."""

    name = "compacting"
    _history: SqliteHistory

    def __init__(
        self,
        history: SqliteHistory,
        policy: SealPolicy,
        writer: Writer,
        clock: Clock,
        *,
        uploads: bool,
    ) -> None:
        """`uploads` if there is object storage and a task that uploads new files."""
        super().__init__(history, policy, writer, clock)
        self._uploads = uploads
        self._unfinished: Rewriting | None = None

    async def _write(self) -> float:
        await self._record()
        began_s = monotonic()
        groups = await self._aside(self._look)
        pause_s = max(_PAUSE_S, _REST_PER_LOOK * (monotonic() - began_s))
        for files in groups:
            if self._stopping.is_set():
                break
            if await self._rewrite(files):
                await self._record()
                self.files += len(files)
        return pause_s

    def _look(self) -> list[list[FileUse]]:
        files = usable(self._history, uploads=self._uploads)
        return choose(files, self._policy.segment_bytes)

    async def _rewrite(self, files: Sequence[FileUse]) -> bool:
        """Write a file that is not recorded yet; False if that was abandoned."""
        try:
            rewriting = await self._aside(Rewriting, self._history, [one.row for one in files])
        except FileNotFoundError:
            # It was removed, or moved to make room: try again later.
            return False
        try:
            while await self._copy(rewriting):
                pass
            await self._aside(rewriting.finish)
            await self._writer.run(lambda: rewriting.note(self._clock()))
            self._unfinished = rewriting
        except Stopped:
            pass
        finally:
            if self._unfinished is None:
                await self._aside(rewriting.end)
        return self._unfinished is not None

    async def _copy(self, rewriting: Rewriting) -> int:
        began_s = monotonic()
        copied = await self._aside(rewriting.copy)
        rest_s = REST_PER_WORK * (monotonic() - began_s)
        self.size_bytes += copied
        await self.pause(max(rest_s, copied / self._policy.compact_bytes_per_second))
        return copied

    async def _record(self) -> None:
        """Record the last written file; if the database refuses, retry later."""
        rewriting = self._unfinished
        if rewriting is None:
            return
        more = True
        while more:
            while self._uploads and await self._aside(rewriting.is_awaited):
                await self.pause(_AWAITED_S)
                if self._stopping.is_set():
                    return
            more = await self._slice(lambda: rewriting.record(uploads=self._uploads))
            if self._stopping.is_set():
                return
        await self._aside(rewriting.end)
        self._unfinished = None
