"""Uploading segments to object storage and, when space is short, removing them from this machine.

1. The database records that an upload has begun, so that whatever becomes of it is known.
2. The file is sent, read back and compared block by block.
3. The database records that it is there.
4. When the files on this machine exceed their limit, the database records that the oldest are no
   longer here, and only then are they removed.

After uploads, and periodically, a catalog follows; see there. An unneeded segment is removed from
object storage only when none of the kept catalogs names it, and before its row is.
"""

from __future__ import annotations

from typing import Final

from headwater.core.errors import DataCorrupt
from headwater.store.history.catalog import catalog_ms, catalog_name, encode_catalog, make_catalog
from headwater.store.history.object_storage import Remote
from headwater.store.history.segment import PERHAPS, PRESENT, SegmentRow
from headwater.store.sqlite import segments as tables
from headwater.store.sqlite.database import translating
from headwater.store.sqlite.history import SqliteHistory

_CATALOGS_KEPT: Final = 3


class Archive:
    """The individual steps. Those that `note` something run on the thread that commits."""

    def __init__(self, history: SqliteHistory, remote: Remote, cache_bytes_max: int) -> None:
        self._history = history
        self._remote = remote
        self._catalogued = -1
        self._catalog_ms = 0
        self._oldest_catalog = ""
        self._leftovers: list[SegmentRow] = []
        self._absent_since: dict[int, str] = {}
        """Unneeded segments, and the first catalog that does not name them."""
        history.open_segments.connect(remote, cache_bytes_max)

    # ── Pending work ─────────────────────────────────────────────────────────────────────────

    def to_upload(self) -> list[SegmentRow]:
        return tables.not_uploaded(self._history.query, self._history.making)

    def to_evict(self, local_bytes_max: int) -> list[SegmentRow]:
        history = self._history
        return tables.evictable(history.query, history.figures().local_bytes, local_bytes_max)

    def leftovers(self) -> list[SegmentRow]:
        """Segments in object storage that nobody needs, whether or not a catalog names them."""
        history = self._history
        if history.has_shrunk_elsewhere:
            history.has_shrunk_elsewhere = False
            self._leftovers = tables.unused_segments(history.query, history.making, local=False)
        return self._leftovers

    def to_remove(self) -> list[SegmentRow]:
        """Those of them that no kept catalog names."""
        since, oldest = self._absent_since, self._oldest_catalog
        return [row for row in self.leftovers() if row.id in since and since[row.id] <= oldest]

    def has_changed(self) -> bool:
        """Whether anything was committed since a catalog was last made."""
        return self._version() != self._catalogued

    def _version(self) -> int:
        # Changes with every commit of a connection other than this thread's own.
        with translating():
            version: int = self._history.reader().pragma("data_version")
        return version

    def catalog(self, now_ms: int) -> None:
        """Write everything besides segments to object storage."""
        version, leftovers = self._version(), self.leftovers()
        with translating():
            content = encode_catalog(make_catalog(self._history.reader(), now_ms))
        known = self._remote.catalogs()
        # The newest must sort last, whatever the clock says.
        newest_ms = max([self._catalog_ms, *map(catalog_ms, known)])
        self._catalog_ms = max(now_ms, newest_ms + 1)
        name = catalog_name(self._catalog_ms)
        self._remote.put_catalog(name, content)
        if self._remote.get_catalog(name) != content:
            raise DataCorrupt(f"catalog {name} did not arrive whole")
        self._history.step("catalogued")
        kept = sorted({*known, name})[-_CATALOGS_KEPT:]
        for superfluous in set(known).difference(kept):
            self._remote.delete_catalog(superfluous)
        self._oldest_catalog = kept[0]
        for row in leftovers:
            self._absent_since.setdefault(row.id, name)
        self._catalogued = version

    # ── Uploading ────────────────────────────────────────────────────────────────────────────

    def note_begun(self, row: SegmentRow) -> bool:
        """False if the segment is no longer needed."""
        with self._history.transaction() as write:
            return tables.note_remote(write, row.id, PERHAPS, self._history.making)

    def upload(self, row: SegmentRow) -> bool:
        """Send a file and compare what arrived; False if the file was no longer needed."""
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
            tables.note_remote(write, row.id, PRESENT, self._history.making)
        self._history.step("upload recorded")

    # ── Evicting, removing ───────────────────────────────────────────────────────────────────

    def evict(self, row: SegmentRow) -> None:
        """Record that a file is no longer here, and remove it."""
        with self._history.transaction() as write:
            tables.note_not_local(write, row.id)
        self._history.step("eviction recorded")
        self._history.open_segments.drop(row.id)
        (self._history.directory / row.name).unlink(missing_ok=True)
        self._history.step("evicted")

    def remove(self, row: SegmentRow) -> None:
        """Remove an unneeded segment from object storage."""
        self._remote.delete(row.name)
        self._history.step("removed from object storage")

    def note_removed(self, row: SegmentRow) -> None:
        with self._history.transaction() as write:
            tables.delete_segment(write, row.id)
        self._history.open_segments.drop(row.id)
        self._leftovers = [one for one in self._leftovers if one.id != row.id]
        self._absent_since.pop(row.id, None)

    def close(self) -> None:
        """Disconnect from object storage: pending calls fail as if it did not answer."""
        self._remote.close()
