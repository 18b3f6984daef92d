"""Taking, finding and dropping snapshots."""

from __future__ import annotations

from headwater.core import decisions
from headwater.core.errors import SnapshotNotFound
from headwater.core.offsets import Anchor, Offset
from headwater.core.snapshots import (
    SnapshotDropped,
    SnapshotInfo,
    SnapshotTaken,
    check_is_kept,
)
from headwater.service.entries import Entry
from headwater.service.log import Log


class Snapshots:
    def __init__(self, log: Log) -> None:
        self._log = log

    async def take(self, path: str, offset: Offset, content_type: str, body: bytes) -> bool:
        """Store a snapshot; True if there was none at that offset."""
        entry = await self._log.entry(path)
        position = await self._position(entry, offset)
        stream_id = self._log.view(entry).config.id
        kept = await self._log.in_thread(self._log.engine.snapshots.of_stream, stream_id)
        check_is_kept(position, kept)
        # The stream may have been deleted or replaced during the query.
        now_ms = self._log.clock()
        state = decisions.require(entry.state, path, now_ms)
        if state.config.id != stream_id:
            return await self.take(path, offset, content_type, body)
        taken = SnapshotTaken(stream_id, now_ms, position, content_type, body)
        await self._log.writer.submit([(entry, taken)], None, len(body))
        return all(one.position != position for one in kept)

    async def kept(self, path: str) -> list[tuple[Offset, SnapshotInfo]]:
        """The snapshots of a stream, the newest first."""
        view = self._log.view(await self._log.entry(path))
        found = await self._log.in_thread(self._log.engine.snapshots.of_stream, view.config.id)
        return [(view.config.lineage.offset_at(one.position), one) for one in found]

    async def load(self, path: str, offset: Offset | None) -> tuple[Offset, SnapshotTaken]:
        """One snapshot, or the latest."""
        entry = await self._log.entry(path)
        view = self._log.view(entry)
        engine, lineage = self._log.engine, view.config.lineage
        if offset is None:
            kept = await self._log.in_thread(engine.snapshots.of_stream, view.config.id)
            if not kept:
                raise SnapshotNotFound
            position = kept[0].position
        else:
            position = lineage.locate(offset, view.tail)
        found = await self._log.in_thread(engine.snapshots.find, view.config.id, position)
        if found is None:
            raise SnapshotNotFound
        return lineage.offset_at(position), found

    async def drop(self, path: str, offset: Offset) -> None:
        _, found = await self.load(path, offset)
        entry = await self._log.entry(path)
        dropped = SnapshotDropped(found.stream_id, found.position)
        await self._log.writer.submit([(entry, dropped)], None)

    async def _position(self, entry: Entry, offset: Anchor | Offset) -> int:
        view = self._log.view(entry)
        position = view.config.lineage.locate(offset, view.tail)
        if position < view.tail:
            # Not in the middle of an append: nobody could read on from there.
            await self._log.message_number(entry, position)
        return position
