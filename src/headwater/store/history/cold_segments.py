"""Segments that are only in object storage: read through a bounded cache on this machine.

A cold segment has a file of the same size that is empty at first. Blocks are fetched into it on
demand, each verified against its checksum, and are then read and sent like those of any other
segment.

Fetching takes as long as the network does. So the reader that needs a block does not do it: it gets
`FetchNeeded`, which says how to fetch what is missing, so that it can be done elsewhere, once for
all who wait, and the read repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from headwater.store.history import segment_format
from headwater.store.history.segment import Segment, SegmentRow, check_blocks
from headwater.store.history.segment_format import BLOCK_BYTES
from headwater.store.permissions import FILE_MODE

if TYPE_CHECKING:
    from headwater.store.history.object_storage import Remote

_FETCH_BLOCKS_MIN: Final = 8
_FETCH_BLOCKS_MAX: Final = 64

R = TypeVar("R")
Key = tuple[int, int, int]


class FetchNeeded(Exception):
    """Something has to be fetched from object storage first."""

    def __init__(self, key: Key, fetch: Callable[[], object]) -> None:
        super().__init__(key)
        self.key = key
        """Equal for the same missing data."""
        self.fetch = fetch


def fetching(work: Callable[[], R]) -> R:
    """Run something that needs object storage, for callers that can wait."""
    while True:
        try:
            return work()
        except FetchNeeded as need:
            need.fetch()


class ColdSegment(Segment):
    def __init__(
        self, row: SegmentRow, file: int, trailer: segment_format.Trailer, remote: Remote
    ) -> None:
        super().__init__(row, file, trailer)
        self._remote = remote
        self.cached_bytes = 0

    @classmethod
    def begin(cls, path: Path, row: SegmentRow, remote: Remote) -> ColdSegment:
        """Start with an empty file. Reads the end of the segment from object storage."""
        trailer = remote.trailer(row)
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        return cls(row, file, trailer, remote)

    def ensure(self, offset: int, length: int) -> None:
        self.require_within(offset, length)
        missing = [n for n in segment_format.blocks_of(offset, length) if not self._known_good[n]]
        if missing:
            # Some more than requested: the reader will most likely read on.
            first, count = missing[0], len(self._trailer.sums)
            last = max(missing[-1] + 1, first + _FETCH_BLOCKS_MIN)
            last = min(last, first + _FETCH_BLOCKS_MAX, count)
            raise FetchNeeded((self.row.id, first, last), partial(self.fetch, first, last))

    def fetch(self, first: int, last: int) -> int:
        """Fetch blocks and return how many bytes they are."""
        start = first * BLOCK_BYTES
        size = min(last * BLOCK_BYTES, self._trailer.sums_offset) - start
        data = self._remote.read(self.row, start, size)
        check_blocks(self.row, self._trailer, first, data)
        written = os.pwrite(self.file, data, start)
        if written != size:
            raise OSError("the cache of history could not be written")
        new = self._known_good.count(0, first, last) * BLOCK_BYTES
        self._known_good[first:last] = b"\x01" * (last - first)
        self.cached_bytes += new
        return new

    def check_all(self) -> None:
        self._remote.verify(self.row)
