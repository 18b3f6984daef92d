"""Documents: the interface of this layer for request handlers."""

from __future__ import annotations

from collections.abc import Set
from typing import Final, NamedTuple

from headwater.core.content_types import DEFAULT as OCTET_STREAM
from headwater.core.decisions import Create, CreateReply
from headwater.core.documents import addresses
from headwater.core.errors import (
    InvalidQuery,
    SnapshotNotFound,
    StreamGone,
    StreamNotFound,
    TooBusy,
    UnknownOffset,
)
from headwater.core.expiry import Lifetime
from headwater.core.limits import MIB
from headwater.core.offsets import Anchor, Offset, parse_offset
from headwater.documents.compaction import Compaction
from headwater.documents.policy import Policy
from headwater.documents.snapshots import Snapshot
from headwater.documents.workers import Job, Unclear, Unworkable, Workers, WorkersBusy
from headwater.service.entries import Entry, View
from headwater.service.log import Log
from headwater.store.engine.appends import Piece

CONTENT_BYTES_MAX: Final = 16 * MIB
_ATTEMPTS: Final = 5


class Content(NamedTuple):
    offset: Offset
    body: bytes


class Documents:
    def __init__(self, streams: Log, policy: Policy) -> None:
        self._log = streams
        self.workers = Workers(policy)
        self.compaction = Compaction(streams, policy, self.workers)
        streams.expiry.before = self.expiring

    async def stop(self) -> None:
        await self.compaction.stop()

    async def releasing(self, shards: Set[int]) -> None:
        """Another node is about to own some shards, and will compact their documents."""
        await self.compaction.release(shards)

    def written(self, entry: Entry) -> None:
        """An append to a document was committed."""
        self.compaction.consider(entry)

    # ── Awareness ────────────────────────────────────────────────────────────────────────────

    async def ensure_awareness(self, document: str, name: str) -> CreateReply:
        """Create a stream for awareness, if its document exists."""
        entry = await self._log.entry(document)
        self._log.view(entry)
        path = addresses.awareness_of(document, name)
        lifetime = Lifetime(ttl_s=addresses.AWARENESS_TTL_S)
        return await self._log.create(Create(path, OCTET_STREAM, lifetime=lifetime), beside=entry)

    def has_awareness(self, path: str) -> bool:
        """Whether a stream for awareness exists, as far as is known without a query."""
        entry = self._log.ready(path)
        try:
            return entry is not None and bool(self._log.view(entry))
        except (StreamNotFound, StreamGone):
            return False

    async def renew_awareness(self, document: str, name: str) -> None:
        """The same, unless it exists."""
        try:
            self._log.view(await self._log.entry(addresses.awareness_of(document, name)))
        except (StreamNotFound, StreamGone):
            await self.ensure_awareness(document, name)

    # ── Snapshots ────────────────────────────────────────────────────────────────────────────

    async def newest(self, document: str) -> Snapshot | None:
        entry = await self._log.entry(document)
        snapshot = (await self.compaction.known(entry)).snapshot
        self.compaction.consider(entry)
        return snapshot

    async def snapshot(self, document: str, offset: str) -> tuple[Offset, list[Piece]]:
        """The snapshot at an offset, in pieces."""
        view = self._log.view(await self._log.entry(document))
        at = parse_offset(offset)
        if not isinstance(at, Offset):
            raise SnapshotNotFound
        try:
            pieces = await self._pieces(addresses.snapshot_of(document, offset))
            # It may have been finished while another document was at this path.
            view.config.lineage.locate(at, view.tail)
        except (StreamNotFound, StreamGone, UnknownOffset):
            self.compaction.forget(document)
            raise SnapshotNotFound from None
        return at, pieces

    async def beginning(self, document: str) -> tuple[tuple[Offset, list[Piece]], bool] | None:
        """The snapshot that replaces dropped first updates, and whether nothing follows it."""
        for _ in range(_ATTEMPTS):
            view = self._log.view(await self._log.entry(document))
            newest = await self.newest(document) if view.config.kept_from else None
            if newest is None:
                return None
            try:
                found = await self.snapshot(document, str(newest.offset))
            except SnapshotNotFound:
                # Another snapshot has replaced it.
                continue
            return found, newest.offset.position == view.tail
        raise TooBusy("the document changes too fast to be read; try again shortly")

    async def _pieces(self, path: str) -> list[Piece]:
        entry = await self._log.entry(path)
        if not self._log.view(entry).closed:
            raise StreamNotFound(path)
        pieces: list[Piece] = []
        at: Anchor | Offset = Anchor.START
        while True:
            chunk = await self._log.read_pieces(entry, at)
            pieces += chunk.pieces or []
            if chunk.up_to_date:
                return pieces
            at = chunk.config.lineage.offset_at(chunk.end)

    # ── Content ──────────────────────────────────────────────────────────────────────────────

    async def content(self, document: str, form: str, name: str) -> Content:
        """The current content of a document: all of it, or the part with a name."""
        job = Job(form, name)
        for _ in range(_ATTEMPTS):
            entry = await self._log.entry(document)
            known, view = await self.compaction.known(entry), self._log.view(entry)
            # Anything written while it is loaded comes after this.
            end = view.tail
            try:
                body = await self._content(job, view, known.snapshot, end)
            except (StreamNotFound, StreamGone):
                # Another snapshot has replaced this one, if the document still exists.
                self.compaction.forget(document)
            else:
                return Content(view.config.lineage.offset_at(end), body)
        raise TooBusy("the document changes too fast to be shown; try again shortly")

    async def _content(self, job: Job, view: View, snapshot: Snapshot | None, end: int) -> bytes:
        body = bytearray()

        async def take(piece: bytes) -> None:
            if len(body) + len(piece) > CONTENT_BYTES_MAX:
                raise InvalidQuery(
                    f"the content is over {CONTENT_BYTES_MAX} bytes; read the document's updates"
                )
            body.extend(piece)

        try:
            await self.workers.run(job, lambda: self.compaction.updates(view, snapshot, end), take)
        except WorkersBusy:
            raise TooBusy("too many documents wait to be loaded; try again shortly") from None
        except (Unclear, Unworkable) as error:
            raise InvalidQuery(f"the content cannot be shown: {error}") from None
        return bytes(body)

    # ── Delete ───────────────────────────────────────────────────────────────────────────────

    async def deleted(self, stream: str, *, purge: bool) -> None:
        """A stream was deleted: if it was a document, delete everything that belongs to it."""
        if addresses.is_document(stream):
            await self.compaction.abandon(stream)
            await self.compaction.snapshots.remove_all(stream, purge=purge)

    async def expiring(self, stream: str) -> None:
        """A stream may be about to expire: if it is a document, first delete what belongs to it."""
        if not addresses.is_document(stream):
            return
        entry = await self._log.entry(stream)
        state = entry.state
        if state is not None and state.is_expired(self._log.clock()):
            await self.compaction.abandon(stream)
            await self.compaction.snapshots.remove_all(
                stream, purge=True, unless=lambda: entry.state is not state
            )

    async def undeleted(self, stream: str) -> None:
        """A stream was undeleted: if it is a document, restore its snapshot too; it may need it."""
        if addresses.is_document(stream):
            view = self._log.view(await self._log.entry(stream))
            await self.compaction.snapshots.bring_back(view)
            # Another task may have looked for it meanwhile.
            self.compaction.forget(stream)
