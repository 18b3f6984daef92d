"""History only in object storage, for nodes that keep nothing on their own disks.

A file is written on this machine as in any other history, and removed when it has been recorded:

1. The database records the segment and its maker. So nothing is ever in object storage that the
   database does not know.
2. The file is sent, read back and compared block by block.
3. In transactions of bounded size, extents are recorded and exactly the rows they hold are dropped.
4. The database records that nothing more will be added to the segment.

The maker of a segment may lose its right to write at any point, and another node seals the same
rows into its own segment. What the first one left is complete as it is: either it has extents, or
it never will. Nobody has to know how an upload ended.

A segment without extents stays for a while, for clients that were told where it is, and for an
abandoned upload. Then the object is removed, and after it the row.

Object storage records its `owner`, so that a node with the wrong address neither misses the history
of its own database nor removes that of another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.core.errors import HistoryUnavailable
from headwater.store.engine.figures import HistoryFigures
from headwater.store.history.compaction import Copying
from headwater.store.history.compaction_choice import FileUse
from headwater.store.history.sealing import History, Recording
from headwater.store.history.segment import SegmentRow
from headwater.store.history.segment_writer import SegmentDraft, Step, nothing
from headwater.store.rows import Query

if TYPE_CHECKING:
    from headwater.store.history.object_storage import Remote


class RemoteHistory(History):
    def __init__(self, directory: Path, query: Query, owner: str, step: Step = nothing) -> None:
        super().__init__(directory, query, step)
        self.figures = HistoryFigures()
        """As of the last look."""
        self._owner = owner
        self._is_claimed = False
        self._remote: Remote | None = None

    def connect(self, remote: Remote, cache_bytes_max: int) -> None:
        self._remote = remote
        self.open_segments.connect(remote, cache_bytes_max)

    @property
    def remote(self) -> Remote:
        assert self._remote is not None, "object storage is connected before anything is sealed"
        return self._remote

    def close(self) -> None:
        """Disconnect from object storage: pending calls fail as if it did not answer."""
        self.remote.close()

    def claim(self) -> None:
        """Check that object storage answers and is this database's; raises HistoryUnavailable."""
        owner = self.remote.owner()
        if owner is None:
            if self.figures.remote_files:
                raise HistoryUnavailable(f"{self.remote.url} does not hold this database's history")
            self.remote.put_owner(self._owner)
        elif owner != self._owner:
            raise HistoryUnavailable(f"{self.remote.url} holds the history of another database")
        self._is_claimed = True

    # ── Making a segment ─────────────────────────────────────────────────────────────────────

    def _recording(self, draft: SegmentDraft, cut: Set[int]) -> Recording:
        # What is left of a run is computed from its ends.
        return Recording(draft, is_at_its_place=False)

    @abstractmethod
    def announce(self, recording: Recording, now_ms: int) -> None:
        """Record a segment that is about to be uploaded. On the thread that commits."""

    def publish(self, recording: Recording) -> None:
        """Upload an announced file, and compare what arrived. May be retried.

        Raises FileNotFoundError if the directory was emptied meanwhile.
        """
        draft = recording.draft
        path = self.directory / draft.name
        path.stat()
        if not self._is_claimed:
            self.claim()
        self.step("upload begun")
        self.remote.upload(path)
        self.step("uploaded")
        self.remote.verify(draft.row())
        self.step("upload verified")
        recording.is_at_its_place = True

    def settle(self, recording: Recording) -> None:
        super().settle(recording)
        (self.directory / recording.draft.name).unlink(missing_ok=True)

    # ── Rewriting segments ───────────────────────────────────────────────────────────────────

    @abstractmethod
    def uses(self) -> list[FileUse]:
        """How much this node has of each segment that can be rewritten."""

    @abstractmethod
    def rewriting(self, files: Sequence[SegmentRow]) -> RemoteRewriting:
        """Raises FileNotFoundError if this node has no extents left in them."""

    # ── Removing segments ────────────────────────────────────────────────────────────────────

    @abstractmethod
    def look(self) -> bool:
        """Update the figures; returns whether a node that is gone has left segments."""

    @abstractmethod
    def adopt(self) -> None:
        """Record that nothing more is added to such segments. On the thread that commits."""

    @abstractmethod
    def to_remove(self, kept_ms: int) -> list[SegmentRow]:
        """Some segments that have had no extents for that long."""

    def remove(self, row: SegmentRow) -> None:
        if not self._is_claimed:
            self.claim()
        self.step("before removing")
        self.remote.delete(row.name)
        self.step("removed")

    @abstractmethod
    def note_removed(self, row: SegmentRow) -> None:
        """On the thread that commits."""


class RemoteRewriting(Copying):
    """A new segment made of this node's extents in some old ones.

    It is announced and uploaded like any other before any extent points to it. So a killed node
    leaves what sealing would leave: segments that are complete as they are, and empty ones.
    """

    recording: Recording | None = None
    """The new file, from when it is complete."""

    def finish(self) -> SegmentDraft:
        draft = super().finish()
        self.recording = Recording(draft, is_at_its_place=False)
        return draft

    @abstractmethod
    def record(self) -> bool:
        """Move some extents to it, once it is in its place; True if there are more.

        On the thread that commits."""

    def end(self) -> None:
        """Nothing more will be recorded."""
        self._segments = {}
        if self.recording is None:
            self._history.give_up(self._builder)
        else:
            (self._history.directory / self.draft.name).unlink(missing_ok=True)
            self._history.made(self.draft.id)
