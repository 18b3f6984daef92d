"""Sealing: moving older rows into history, after they were acknowledged.

A task checks periodically whether there is something to seal. Files are written and verified on a
separate thread. The work between two commits is then done in small slices, each its own job for the
commit thread, so that appends get their turn in between.

If sealing fails (the disk is full, the database refuses), the rows stay in the database.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from headwater.service.clock import Clock
from headwater.service.history.file_task import FileTask
from headwater.service.writer import Writer
from headwater.store.history.ledger import into_files
from headwater.store.history.policies import SealPolicy
from headwater.store.history.sealing import History, Recording, Stopped

_PAUSE_S_MIN: Final = 0.02
_PAUSE_S_MAX: Final = 1.0


class Sealing(FileTask):
    """Counts the files it wrote since the start, and their bytes."""

    name = "sealing"
    rest_s_max = 0.1

    def __init__(
        self,
        history: History,
        policy: SealPolicy,
        writer: Writer,
        clock: Clock,
        publish: Callable[[Recording], Awaitable[None]] | None = None,
    ) -> None:
        """`publish` uploads a file, if files do not stay on this machine."""
        super().__init__(history, policy, writer, clock)
        self._publish = publish
        self._unfinished: Recording | None = None

    async def stop(self) -> None:
        self._history.stopping = True
        await super().stop()

    async def _write(self) -> float:
        if self._history.needs_survey:
            await self._survey()
        # If something was due, there is probably more.
        if await self.seal_due():
            return _PAUSE_S_MIN
        return min(_PAUSE_S_MAX, max(_PAUSE_S_MIN, self._policy.after_ms / 4000))

    async def _survey(self) -> None:
        await self._writer.run(self._history.keep_ledger)
        await self._aside(self._history.survey)

    async def seal_due(self) -> bool:
        """Seal what is due now, about a file of each; returns whether there was anything."""
        await self._record()
        due = await self._aside(self._history.ledger.due, self._policy, self._clock())
        for runs in into_files(due, self._policy.segment_bytes):
            try:
                self._unfinished = await self._aside(
                    self._history.gather, runs, self._policy.segment_bytes
                )
            except Stopped:
                break
            if self._unfinished is None:
                await self._aside(self._history.forget, runs)
            await self._record()
        return bool(due)

    async def _record(self) -> None:
        """Record the last written file, unless that is done.

        If the database refuses, this is retried later: only that shows for certain whether the
        failed commit took effect.
        """
        recording, now_ms = self._unfinished, self._clock()
        if recording is None:
            return
        more = await self._is_at_its_place(recording)
        while more:
            more = await self._slice(lambda: self._history.record(recording, now_ms))
            if self._stopping.is_set():
                return
        await self._aside(self._history.settle, recording)
        self._unfinished = None
        if recording.begun:
            self.files += 1
            self.size_bytes += recording.draft.size_bytes

    async def _is_at_its_place(self, recording: Recording) -> bool:
        """Move a file to where it will be read; False if it is gone, and the rows stay."""
        if self._publish is not None and not recording.is_at_its_place:
            try:
                await self._publish(recording)
            except FileNotFoundError:
                return False
        return True
