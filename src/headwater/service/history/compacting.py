"""Compaction in the running log: files that are small or mostly unneeded are slowly merged.

Copying is limited in bytes per second, and the copying thread rests longer than it works, so that
appends and reads are not affected. Work between two commits is done in small slices. See
`headwater.store.history.compaction` for the order of steps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from headwater.service.clock import Clock
from headwater.service.history.file_task import REST_PER_WORK, FileTask, timed
from headwater.service.writer import Writer
from headwater.store.history.compaction import Copying, Rewriting, usable
from headwater.store.history.compaction_choice import FileUse, choose
from headwater.store.history.policies import SealPolicy
from headwater.store.history.remote import RemoteHistory, RemoteRewriting
from headwater.store.history.sealing import History, Recording, Stopped
from headwater.store.history.segment import SegmentRow
from headwater.store.sqlite.history import SqliteHistory

_PAUSE_S: Final = 10.0
_AWAITED_S: Final = 0.2
_REST_PER_LOOK: Final = 100.0

W = TypeVar("W", bound=Copying)


class CompactingTask(FileTask, Generic[W]):
    """Counts the files it replaced since the start, and the bytes it wrote for that."""

    name = "compacting"

    def __init__(self, history: History, policy: SealPolicy, writer: Writer, clock: Clock) -> None:
        super().__init__(history, policy, writer, clock)
        self._unfinished: W | None = None

    async def _write(self) -> float:
        await self._record()
        groups, took_s = await self._aside(timed(self._look))
        pause_s = max(_PAUSE_S, _REST_PER_LOOK * took_s)
        for files in groups:
            if self._stopping.is_set():
                break
            if await self._rewrite(files):
                await self._record()
                self.files += len(files)
        return pause_s

    def _look(self) -> list[list[FileUse]]:
        return choose(self._uses(), self._policy.segment_bytes)

    @abstractmethod
    def _uses(self) -> list[FileUse]:
        """The files that can be rewritten."""

    @abstractmethod
    def _begin(self, files: Sequence[SegmentRow]) -> W:
        """Raises FileNotFoundError if the files cannot be rewritten now."""

    async def _rewrite(self, files: Sequence[FileUse]) -> bool:
        """Write a file that is not recorded yet; False if that was abandoned."""
        try:
            rewriting = await self._aside(self._begin, [one.row for one in files])
        except FileNotFoundError:
            # It was removed, or moved to make room: try again later.
            return False
        try:
            while await self._copy(rewriting):
                pass
            await self._aside(rewriting.finish)
            await self._note(rewriting)
            self._unfinished = rewriting
        except Stopped:
            pass
        finally:
            if self._unfinished is None:
                await self._aside(rewriting.end)
        return self._unfinished is not None

    async def _copy(self, rewriting: W) -> int:
        copied, took_s = await self._aside(timed(rewriting.copy))
        self.size_bytes += copied
        paced_s = copied / self._policy.compact_bytes_per_second
        await self.pause(max(REST_PER_WORK * took_s, paced_s))
        return copied

    async def _note(self, rewriting: W) -> None:
        """The file is complete."""

    @abstractmethod
    async def _record(self) -> None:
        """Record the last written file; if the database refuses, retry later."""


class Compacting(CompactingTask[Rewriting]):
    """Compaction of files on this machine."""

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

    def _uses(self) -> list[FileUse]:
        return usable(self._history, uploads=self._uploads)

    def _begin(self, files: Sequence[SegmentRow]) -> Rewriting:
        return Rewriting(self._history, files)

    async def _note(self, rewriting: Rewriting) -> None:
        await self._writer.run(lambda: rewriting.note(self._clock()))

    async def _record(self) -> None:
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


class RemoteCompacting(CompactingTask[RemoteRewriting]):
    """Compaction of files that are only in object storage."""

    _history: RemoteHistory

    def __init__(
        self,
        history: RemoteHistory,
        policy: SealPolicy,
        writer: Writer,
        clock: Clock,
        publish: Callable[[Recording], Awaitable[None]],
    ) -> None:
        super().__init__(history, policy, writer, clock)
        self._publish = publish

    def _uses(self) -> list[FileUse]:
        return self._history.uses()

    def _begin(self, files: Sequence[SegmentRow]) -> RemoteRewriting:
        return self._history.rewriting(files)

    async def _record(self) -> None:
        rewriting = self._unfinished
        if rewriting is None:
            return
        more = await self._is_at_its_place(rewriting)
        while more:
            more = await self._slice(rewriting.record)
            if self._stopping.is_set():
                return
        await self._aside(rewriting.end)
        self._unfinished = None

    async def _is_at_its_place(self, rewriting: RemoteRewriting) -> bool:
        """Upload the file; False if it is gone, in which case the old ones stay."""
        recording = rewriting.recording
        assert recording is not None
        if not recording.is_at_its_place:
            try:
                await self._publish(recording)
            except FileNotFoundError:
                return False
        return True
