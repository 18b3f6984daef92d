"""The open segment files, least recently used first.

Local files are opened as they are. Those only in object storage have a file in the cache with what
was fetched of them; the cache is bounded and starts empty.
"""

from __future__ import annotations

import resource
import shutil
from collections import OrderedDict
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from headwater.core.errors import HistoryUnavailable
from headwater.core.limits import MIB
from headwater.store.history.cold_segments import ColdSegment, FetchNeeded
from headwater.store.history.segment import PRESENT, Segment, SegmentRow
from headwater.store.permissions import make_directory

if TYPE_CHECKING:
    from headwater.store.history.object_storage import Remote

DIRECTORY_NAME: Final = "segments"
CACHE_NAME: Final = "cache"
_OPEN_MAX: Final = 512
# The rest of the descriptors is for connections and for writing.
_OPEN_SHARE: Final = 16
_OPEN_MIN: Final = 8
# However small the cache is, a read that needs a few segments at once must be able to finish.
_COLD_MIN: Final = 4


def _open_max() -> int:
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return _OPEN_MAX
    return max(_OPEN_MIN, min(_OPEN_MAX, allowed // _OPEN_SHARE))


class OpenSegments:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._cache = directory.with_name(CACHE_NAME)
        self._open: OrderedDict[int, Segment] = OrderedDict()
        self._open_max = _open_max()
        self._cold: OrderedDict[int, ColdSegment] = OrderedDict()
        self._cold_bytes = 0
        self._cold_bytes_max = 1024 * MIB
        self._remote: Remote | None = None
        self._lock = Lock()

    def connect(self, remote: Remote, cache_bytes_max: int) -> None:
        """From now on segments can come from object storage too."""
        self._remote = remote
        self._cold_bytes_max = cache_bytes_max
        shutil.rmtree(self._cache, ignore_errors=True)
        make_directory(self._cache)

    def locations(self, row: SegmentRow) -> tuple[str | None, Path | None]:
        """Where clients find a segment: in object storage, on this machine."""
        url = self._remote.location(row.name) if self._remote and row.remote == PRESENT else None
        return url, (self.directory / row.name).absolute() if row.local else None

    @property
    def cached_bytes(self) -> int:
        """What was fetched from object storage and is still here."""
        return self._cold_bytes

    def segment(self, row: SegmentRow) -> Segment:
        """A segment to read from. Raises FileNotFoundError if the file is gone."""
        if not row.local:
            return self._cold_segment(row)
        with self._lock:
            held = self._open.get(row.id)
            if held is not None:
                self._open.move_to_end(row.id)
                return held
        opened = Segment.open(self.directory / row.name, row)
        with self._lock:
            # Another thread may have opened it meanwhile and verified some blocks already.
            kept = self._open.setdefault(row.id, opened)
            while len(self._open) > self._open_max:
                self._open.popitem(last=False)
        return kept

    def held(self, segment_id: int) -> Segment | None:
        """A segment if it is open. Needs no lock: a dict look-up is atomic."""
        return self._open.get(segment_id) or self._cold.get(segment_id)

    def _cold_segment(self, row: SegmentRow) -> ColdSegment:
        with self._lock:
            held = self._cold.get(row.id)
            if held is not None:
                self._cold.move_to_end(row.id)
                return held
        if self._remote is None:
            raise HistoryUnavailable("this server was started without its --history-store")
        raise FetchNeeded((row.id, -1, -1), partial(self._open_cold, row, self._remote))

    def _open_cold(self, row: SegmentRow, remote: Remote) -> None:
        opened = ColdSegment.begin(self._cache / row.name, row, remote)
        with self._lock:
            self._cold.setdefault(row.id, opened)
            self._shrink()

    def fetched(self, size_bytes: int) -> None:
        """This much was added to the cache."""
        with self._lock:
            self._cold_bytes += size_bytes
            self._shrink()

    def _shrink(self) -> None:
        while self._cold_bytes > self._cold_bytes_max and len(self._cold) > _COLD_MIN:
            self._drop_cold(next(iter(self._cold)))

    def _drop_cold(self, segment_id: int) -> None:
        dropped = self._cold.pop(segment_id, None)
        if dropped is not None:
            self._cold_bytes -= dropped.cached_bytes
            (self._cache / dropped.row.name).unlink(missing_ok=True)

    def drop(self, segment_id: int) -> None:
        """Stop handing this one out; current readers may finish."""
        with self._lock:
            self._open.pop(segment_id, None)
            self._drop_cold(segment_id)

    def close(self) -> None:
        with self._lock:
            self._open.clear()
            self._cold.clear()
