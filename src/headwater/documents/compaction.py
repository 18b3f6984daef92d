"""Compaction alongside the writes: a document is read, loaded by a worker, and stored as a
snapshot.

The event loop only passes pieces on. Readers and writers of the document continue; what is written
meanwhile comes after the snapshot. A document that no worker can load (it holds a malformed update,
or is too large) is left alone while it is in use, and is read and written as before.

The state of a document is cached for as long as its entry is in memory. If another node owns the
document for a while, it replaces the snapshot, but then the entry here is a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Set
from typing import Final
from weakref import WeakKeyDictionary

import structlog

from headwater.core.documents import addresses
from headwater.core.documents.compaction import droppable_to, is_due
from headwater.core.documents.framing import write_number
from headwater.core.errors import OwnedElsewhere, StreamGone, StreamNotFound
from headwater.core.offsets import Anchor, Offset
from headwater.documents import loading
from headwater.documents.figures import Figures
from headwater.documents.policy import Policy
from headwater.documents.snapshots import Snapshot, Snapshots
from headwater.documents.workers import Job, Unworkable, Workers, WorkersBusy
from headwater.service.background import Watch
from headwater.service.entries import Entry, View
from headwater.service.log import Log

_PAUSE_AFTER_FAILURE_S: Final = 1.0

log = structlog.get_logger()


class Abandoned(Exception):
    """The document is gone, or another one is in its place."""


class Known:
    """The cached state of a document in use."""

    __slots__ = ("is_stopped", "snapshot", "stream_id")

    def __init__(self, stream_id: int, snapshot: Snapshot | None) -> None:
        self.stream_id = stream_id
        self.snapshot = snapshot
        self.is_stopped = False
        """Whether no worker can load it."""


class Compaction:
    def __init__(self, streams: Log, policy: Policy, workers: Workers) -> None:
        self._log = streams
        self._policy = policy
        self._workers = workers
        self.snapshots = Snapshots(streams)
        self.figures = Figures()
        self.figures.running = self._running
        self.watch: Watch = streams.watch("documents")
        self._known: WeakKeyDictionary[Entry, Known] = WeakKeyDictionary()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def _running(self) -> tuple[int, int]:
        return len(self._tasks), len(self._workers.running)

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── Cached state ─────────────────────────────────────────────────────────────────────────

    async def known(self, entry: Entry) -> Known:
        view = self._log.view(entry)
        known = self._of(entry, view)
        if known is None:
            found = Known(view.config.id, await self.snapshots.newest(view))
            # Another task may have been faster, and may have compacted it since.
            known = self._of(entry, view)
            if known is None:
                self._known[entry] = known = found
        return known

    def _of(self, entry: Entry, view: View) -> Known | None:
        known = self._known.get(entry)
        return known if known is not None and known.stream_id == view.config.id else None

    def forget(self, path: str) -> None:
        entry = self._log.ready(path)
        if entry is not None:
            self._known.pop(entry, None)

    # ── When ─────────────────────────────────────────────────────────────────────────────────

    def consider(self, entry: Entry) -> None:
        """Start compaction if a document is due: called when it is written to or opened.

        An opened document may be due because the server stopped, or no worker was free, after the
        last write.
        """
        path, view = entry.path, entry.view
        if view is None or path in self._tasks:
            return
        known = self._of(entry, view)
        if known is None:
            if view.tail >= self._policy.compact_bytes:
                self._start(path)
        elif self._is_due(view, known):
            self._start(path)

    def _is_due(self, view: View, known: Known) -> bool:
        snapshot = known.snapshot
        at, size = (snapshot.offset.position, snapshot.size_bytes) if snapshot else (0, 0)
        due = is_due(view.tail, at, size, self._policy.compact_bytes)
        return due and not known.is_stopped

    def _start(self, path: str) -> None:
        task = asyncio.get_running_loop().create_task(self._run(path))
        self._tasks[path] = task
        task.add_done_callback(lambda _: self._tasks.pop(path, None))

    async def abandon(self, path: str) -> None:
        """A document is being deleted: stop compacting it."""
        self.forget(path)
        task = self._tasks.get(path)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def release(self, shards: Set[int]) -> None:
        """Another node takes over some shards, and compacts the documents in them."""
        for path in [*self._tasks]:
            entry = self._log.ready(path)
            if entry is None or entry.shard in shards:
                await self.abandon(path)

    async def _run(self, path: str) -> None:
        try:
            entry = await self._log.entry(path)
            known = await self.known(entry)
            if self._is_due(self._log.view(entry), known):
                await self._try(path, known)
        except (Abandoned, OwnedElsewhere, StreamNotFound, StreamGone, WorkersBusy):
            # It is gone, or will be considered again when it is next written to or opened, on
            # whichever node that is. If only the snapshot is gone, another one has to be found.
            self.forget(path)
        except Exception as error:
            self.watch.failed(error, _PAUSE_AFTER_FAILURE_S)
            await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)
        else:
            self.watch.succeeded()

    async def _try(self, path: str, known: Known) -> None:
        try:
            await self._compact(path, known)
        except Unworkable as error:
            known.is_stopped = True
            self.figures.stopped[error.reason] += 1
            log.warning(
                "document_not_compacted", path=path, reason=error.reason, problem=error.problem
            )

    # ── How ──────────────────────────────────────────────────────────────────────────────────

    async def _compact(self, path: str, known: Known) -> None:
        began_s = asyncio.get_running_loop().time()
        view = await self._same(path, known)
        offset, former = view.config.lineage.offset_at(view.tail), known.snapshot
        kept = {str(former.offset)} if former else set()
        await self.snapshots.remove_others(path, kept)
        target = await self.snapshots.begin(path, str(offset))
        size = 0

        async def take(piece: bytes) -> None:
            nonlocal size
            await self.snapshots.add(target, piece)
            size += len(piece)

        try:
            await self._workers.run(
                Job(loading.COMPACT), lambda: self.updates(view, former, offset.position), take
            )
            await self._same(path, known)
            await self.snapshots.finish(target)
        except BaseException:
            await self.snapshots.remove(target)
            raise
        known.snapshot = Snapshot(offset, size)
        figures = self.figures
        figures.compactions += 1
        figures.written_bytes += size
        figures.seconds.observe(asyncio.get_running_loop().time() - began_s)
        if former is not None:
            await self.snapshots.remove(addresses.snapshot_of(path, str(former.offset)))
        await self._trim(path, known)

    async def _same(self, path: str, known: Known) -> View:
        """The current document, if it is still the same one."""
        view = self._log.view(await self._log.entry(path))
        if view.config.id != known.stream_id:
            raise Abandoned
        return view

    async def updates(
        self, view: View, snapshot: Snapshot | None, end: int
    ) -> AsyncIterator[bytes]:
        """A document as frames: its snapshot, and what was written after it up to a position."""
        path = view.config.path
        at: Anchor | Offset = Anchor.START
        if snapshot is not None:
            yield write_number(snapshot.size_bytes)
            async for piece in self.snapshots.pieces(path, snapshot):
                yield piece
            self.figures.read_bytes += snapshot.size_bytes
            at = snapshot.offset
        while not isinstance(at, Offset) or at.position < end:
            chunk = await self._log.read(path, at)
            if chunk.config.id != view.config.id:
                raise Abandoned
            data = b"".join(chunk.bodies)[: end - chunk.start]
            self.figures.read_bytes += len(data)
            yield data
            at = chunk.config.lineage.offset_at(chunk.end)

    async def _trim(self, path: str, known: Known) -> None:
        """Drop updates that the snapshot covers and that are old enough."""
        retention_s, snapshot = self._policy.retention_s, known.snapshot
        if not retention_s or snapshot is None:
            return
        view = await self._same(path, known)
        older_end_at = await self._log.position_at_time(
            view, self._log.clock() - 1000 * retention_s
        )
        end = droppable_to(snapshot.offset.position, older_end_at)
        if end > view.config.kept_from:
            await self._log.clear(path, known.stream_id, end)
