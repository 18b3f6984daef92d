"""Snapshots of documents: each is a stream, valid once it is closed.

A snapshot can be large, so it is written in pieces, between everyone else's appends. Closing the
stream publishes it, and only then is the previous one removed. Wherever that is interrupted, the
newest closed snapshot is complete, and the next compaction removes what is left of others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from headwater.core.content_types import DEFAULT as OCTET_STREAM
from headwater.core.decisions import Append, Create
from headwater.core.documents import addresses
from headwater.core.errors import StreamError, StreamGone, StreamNotFound
from headwater.core.offsets import Anchor, Offset, parse_offset
from headwater.service.entries import View
from headwater.service.log import Log
from headwater.store.engine.streams import StreamSummary

_PAGE: Final = 100


class Snapshot(NamedTuple):
    offset: Offset
    """Where to continue reading after it."""
    size_bytes: int


class Snapshots:
    def __init__(self, log: Log) -> None:
        self._log = log

    async def newest(self, view: View) -> Snapshot | None:
        """The newest valid snapshot of a document."""
        found: Snapshot | None = None
        async for stream in self._streams(addresses.snapshots_of(view.config.path)):
            offset = _offset_of(view, stream)
            if offset is not None and stream.closed:
                found = Snapshot(offset, stream.size_bytes)
        return found

    async def pieces(self, document: str, snapshot: Snapshot) -> AsyncIterator[bytes]:
        """The pieces of a snapshot, as it was written."""
        path = addresses.snapshot_of(document, str(snapshot.offset))
        at: Anchor | Offset = Anchor.START
        while True:
            chunk = await self._log.read(path, at)
            for body in chunk.bodies:
                yield body
            if chunk.up_to_date:
                return
            at = chunk.config.lineage.offset_at(chunk.end)

    async def begin(self, document: str, offset: str) -> str:
        """Create an empty stream for a snapshot; publish it with `finish`."""
        path = addresses.snapshot_of(document, offset)
        await self.remove(path)
        beside = await self._log.entry(document)
        await self._log.create(Create(path, OCTET_STREAM), beside)
        return path

    async def add(self, path: str, piece: bytes) -> None:
        await self._log.append(path, Append(piece, OCTET_STREAM))

    async def finish(self, path: str) -> None:
        await self._log.append(path, Append(b"", OCTET_STREAM, close=True))

    async def remove_others(self, document: str, keep: set[str]) -> None:
        """Remove all snapshots of a document, finished or not, except those at given offsets."""
        kept = {addresses.snapshot_of(document, offset) for offset in keep}
        async for stream in self._streams(addresses.snapshots_of(document)):
            if stream.path not in kept:
                await self.remove(stream.path)

    async def remove_all(
        self, document: str, *, purge: bool, unless: Callable[[], bool] = lambda: False
    ) -> None:
        """Remove everything that belongs to a document, unless another one has taken its place."""
        async for stream in self._streams(addresses.belonging_to(document)):
            if unless():
                return
            await self._log.together(partial(self.remove, stream.path, purge=purge))

    async def bring_back(self, view: View) -> None:
        """Undelete the newest valid snapshot that was deleted with a document."""
        document, newest, after = addresses.snapshots_of(view.config.path), "", ""
        while page := await self._log.list_deleted(document, after, _PAGE):
            for deleted in page:
                stream = deleted.summary
                if stream.closed and _offset_of(view, stream) is not None:
                    newest = stream.path
            after = page[-1].summary.path
        if newest:
            with suppress(StreamError):  # it may have expired by now
                await self._log.grace.undelete(newest)

    async def remove(self, path: str, *, purge: bool = True) -> None:
        with suppress(StreamNotFound, StreamGone):
            await self._log.delete(path, purge=purge)

    async def _streams(self, prefix: str) -> AsyncIterator[StreamSummary]:
        after = ""
        while page := await self._log.list_streams(prefix, after, _PAGE):
            for stream in page:
                yield stream
            after = page[-1].path


def _offset_of(view: View, stream: StreamSummary) -> Offset | None:
    """The offset of a snapshot, unless it belongs to an earlier document at the path."""
    try:
        offset = parse_offset(stream.path.rpartition("/")[2])
        view.config.lineage.locate(offset, view.tail)
    except StreamError:
        return None
    return offset if isinstance(offset, Offset) else None
