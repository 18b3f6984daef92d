"""Segments on their way to object storage and, when space is short, away from this machine.

1. The database notes that an upload is begun, so that whatever becomes of it is known to be there.
2. The file is sent, read back and compared block by block.
3. The database notes that it is there.
4. When the files of this machine are more than they may be, the database notes that the oldest
   are not here any more, and only then do they go.

Whenever segments were uploaded, and now and then, a catalog follows; see there. A segment that
nobody needs any more is removed from object storage only when a catalog was written that does not
name it, and before its row is.
"""

from __future__ import annotations

from typing import Final

from headwater.store import history_tables as tables
from headwater.store.database import translating
from headwater.store.history.catalog import catalog_name, encode_catalog, make_catalog
from headwater.store.history.remote import Remote
from headwater.store.history.sealing import History
from headwater.store.history.segment import PERHAPS, PRESENT, SegmentRow

_CATALOGS_KEPT: Final = 3


class Archive:
    """The steps one by one. Those that `note` something run on the thread that commits."""

    def __init__(self, history: History, remote: Remote, cache_bytes_max: int) -> None:
        self._history = history
        self._remote = remote
        self._catalogued = -1
        history.shelf.connect(remote, cache_bytes_max)

    # ── What there is to do ──────────────────────────────────────────────────────────────────

    def to_upload(self) -> list[SegmentRow]:
        return tables.not_uploaded(self._history.query)

    def to_evict(self, local_bytes_max: int) -> list[SegmentRow]:
        return tables.evictable(self._history.query, local_bytes_max)

    def to_remove(self) -> list[SegmentRow]:
        if not self._history.has_shrunk_elsewhere:
            return []
        self._history.has_shrunk_elsewhere = False
        found = tables.unused_segments(self._history.query, local=False)
        # If that comes to nothing, it is for the next time.
        self._history.has_shrunk_elsewhere |= bool(found)
        return found

    def has_changed(self) -> bool:
        """Whether anything was committed since a catalog was last made."""
        return self._version() != self._catalogued

    def _version(self) -> int:
        # Changes with every commit of another connection than this thread's own.
        with translating():
            version: int = self._history.reader().pragma("data_version")
        return version

    def catalog(self, now_ms: int) -> None:
        """Write down what there is besides segments."""
        version = self._version()
        with translating():
            content = encode_catalog(make_catalog(self._history.reader(), now_ms))
        self._remote.put_catalog(catalog_name(now_ms), content)
        self._history.step("catalogued")
        for name in self._remote.catalogs()[:-_CATALOGS_KEPT]:
            self._remote.delete_catalog(name)
        self._catalogued = version

    # ── Uploading ────────────────────────────────────────────────────────────────────────────

    def note_begun(self, row: SegmentRow) -> bool:
        """False if nobody needs the segment any more."""
        with self._history.transaction() as write:
            return tables.note_remote(write, row.id, PERHAPS)

    def upload(self, row: SegmentRow) -> bool:
        """Send a file and compare what arrived; False if nobody needed the file any more."""
        path = self._history.directory / row.name
        if not path.exists():
            return False
        self._history.step("upload begun")
        self._remote.upload(path)
        self._history.step("uploaded")
        self._remote.verify(row)
        self._history.step("upload verified")
        return True

    def note_uploaded(self, row: SegmentRow) -> None:
        with self._history.transaction() as write:
            tables.note_remote(write, row.id, PRESENT)
        self._history.step("upload recorded")

    # ── Evicting, removing ───────────────────────────────────────────────────────────────────

    def evict(self, row: SegmentRow) -> None:
        """Note that a file is not here any more, and let it go."""
        with self._history.transaction() as write:
            tables.note_not_local(write, row.id)
        self._history.step("eviction recorded")
        self._history.shelf.drop(row.id)
        (self._history.directory / row.name).unlink(missing_ok=True)
        self._history.step("evicted")

    def remove(self, row: SegmentRow) -> None:
        """Remove a segment that nobody needs from object storage."""
        self._remote.delete(row.name)
        self._history.step("removed from object storage")

    def note_removed(self, row: SegmentRow) -> None:
        with self._history.transaction() as write:
            tables.delete_segment(write, row.id)
        self._history.shelf.drop(row.id)
