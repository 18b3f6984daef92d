"""History that is only in object storage: files are uploaded before anything relies on them.

Sealing writes a file and hands it over here. When object storage does not answer, the file waits,
the rows stay in the database, and appends are unaffected. Another task looks for files left by
nodes that are gone, and removes what is no longer needed.
"""

from __future__ import annotations

from typing import Final

from headwater.core.errors import HistoryUnavailable
from headwater.service.clock import Clock
from headwater.service.history.archiving import StorageTask
from headwater.service.writer import Writer
from headwater.store.history.policies import ArchivePolicy
from headwater.store.history.remote import RemoteHistory
from headwater.store.history.sealing import Recording

_PAUSE_S: Final = 10.0


class Publishing(StorageTask):
    def __init__(
        self, history: RemoteHistory, policy: ArchivePolicy, writer: Writer, clock: Clock
    ) -> None:
        super().__init__(history, policy, writer)
        self._history = history
        self._clock = clock

    async def publish(self, recording: Recording) -> None:
        """Upload a file. Raises HistoryUnavailable, and may be retried."""
        if self._stopping.is_set():
            raise HistoryUnavailable("the server is stopping")
        now_ms = self._clock()
        await self._writer.run(lambda: self._history.announce(recording, now_ms))
        try:
            await self._aside(self._history.publish, recording)
        except HistoryUnavailable as error:
            self.failed(error)
            raise
        self.uploads += 1
        self.uploaded_bytes += recording.draft.size_bytes

    async def round(self) -> float:
        history = self._history
        is_left = await self._aside(history.look)
        if self.is_failing:
            # Otherwise this round would only appear to have succeeded.
            await self._aside(history.claim)
        if is_left:
            await self._writer.run(history.adopt)
        for row in await self._aside(history.to_remove, self._policy.unused_kept_ms):
            if self._stopping.is_set():
                break
            await self._aside(history.remove, row)
            await self._note(history.note_removed, row)
        return _PAUSE_S


def connect(history: RemoteHistory, policy: ArchivePolicy) -> None:
    """Raises ValueError if the policy's URL is not usable."""
    # The object storage library is slow to import, and most servers do not use it.
    from headwater.store.history.object_storage import Remote

    history.connect(Remote(policy.url), policy.cache_bytes_max)
