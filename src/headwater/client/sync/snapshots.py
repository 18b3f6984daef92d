"""The blocking client. Written by scripts/make_sync.py from aio/snapshots.py: DO NOT EDIT."""

from __future__ import annotations

from headwater.client.aio.snapshots import AsyncSnapshots
from headwater.client.protocol.extensions import LATEST, Snapshot, SnapshotInfo
from headwater.client.sync.portal import Blocking


class Snapshots(Blocking[AsyncSnapshots]):
    """States of a stream at an offset, stored on the server for readers to start from.

    stream.snapshots.put(offset, b"...", content_type="application/json")
    state = stream.snapshots.get()
    reader = stream.read(state.offset)
    """

    def get(self, offset: str = LATEST) -> Snapshot:
        """A snapshot; the latest by default."""
        return self._portal.call(self._async.get(offset))

    def put(self, offset: str, data: bytes, *, content_type: str) -> None:
        """Store the state at an offset, replacing one that is there already."""
        self._portal.call(self._async.put(offset, data, content_type=content_type))

    def list(self) -> list[SnapshotInfo]:
        """The snapshots that the server keeps."""
        return self._portal.call(self._async.list())

    def delete(self, offset: str) -> None:
        """Drop the snapshot at an offset."""
        self._portal.call(self._async.delete(offset))
