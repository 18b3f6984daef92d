"""The snapshots of a stream."""

from __future__ import annotations

from headwater.client.aio.sender import Sender
from headwater.client.protocol.extensions import (
    LATEST,
    Snapshot,
    SnapshotInfo,
    SnapshotList,
    snapshot,
    snapshot_url,
)
from headwater.client.protocol.streams import Request


class AsyncSnapshots:
    """States of a stream at an offset, stored on the server for readers to start from.

    await stream.snapshots.put(offset, b"...", content_type="application/json")
    state = await stream.snapshots.get()
    reader = stream.read(state.offset)
    """

    def __init__(self, sender: Sender, url: str) -> None:
        self._sender = sender
        self._url = url

    async def get(self, offset: str = LATEST) -> Snapshot:
        """A snapshot; the latest by default."""
        request = Request("GET", snapshot_url(self._url, offset))
        return snapshot((await self._sender.perform(request)).response)

    async def put(self, offset: str, data: bytes, *, content_type: str) -> None:
        """Store the state at an offset, replacing one that is there already."""
        url, headers = snapshot_url(self._url, offset), {"Content-Type": content_type}
        await self._sender.perform(Request("PUT", url, headers=headers, body=data))

    async def list(self) -> list[SnapshotInfo]:
        """The snapshots that the server keeps."""
        request = Request("GET", snapshot_url(self._url))
        return (await self._sender.ask(request, SnapshotList)).snapshots

    async def delete(self, offset: str) -> None:
        """Drop the snapshot at an offset."""
        await self._sender.perform(Request("DELETE", snapshot_url(self._url, offset)))
