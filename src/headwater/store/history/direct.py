"""Segments read by clients directly, from where the server says they are.

A location is a URL: of an object, which is read with the client's own credentials, or of a file on
this machine. What is found there is compared with the name and the checksums from the server, so a
wrong place gives an error and never wrong data.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from headwater.core.errors import HistoryUnavailable
from headwater.store.history import segment_format
from headwater.store.history.object_storage import SEGMENTS, Remote
from headwater.store.history.segment import BlockReader, Segment, SegmentRow, check_blocks
from headwater.store.history.segment_format import BLOCK_BYTES

_SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
# An index is read in many small steps: the surroundings of each are worth keeping.
_AHEAD_BLOCKS: Final = 8
_HELD_BLOCKS_MAX: Final = 64


def open_segment(location: str, name: str, size_bytes: int, checksum: str) -> BlockReader:
    """A segment to read from. Raises HistoryUnavailable or DataCorrupt."""
    row = SegmentRow(0, name, size_bytes, checksum)
    parts = urlsplit(location)
    if parts.scheme == "file":
        try:
            return Segment.open(Path(url2pathname(parts.path)), row)
        except OSError as error:
            raise HistoryUnavailable(f"{location}: {error.strerror}") from None
    base, _, found = location.rpartition(f"/{SEGMENTS}/")
    if parts.scheme not in _SCHEMES or found != name:
        raise HistoryUnavailable(f"{location} is not the location of this segment")
    remote = _remote(base)
    return ObjectSegment(row, remote.trailer(row), remote)


@lru_cache(8)
def _remote(url: str) -> Remote:
    """One for all segments there, because it keeps its connections."""
    try:
        return Remote(url)
    except ValueError as error:
        raise HistoryUnavailable(str(error)) from None


class ObjectSegment(BlockReader):
    """A segment in object storage, read in place by a caller that can wait."""

    def __init__(self, row: SegmentRow, trailer: segment_format.Trailer, remote: Remote) -> None:
        super().__init__(row, trailer)
        self._remote = remote
        self._held: dict[int, bytes] = {}

    def read(self, offset: int, length: int) -> bytes:
        self.require_within(offset, length)
        numbers = segment_format.blocks_of(offset, length)
        if not length:
            return b""
        if all(number in self._held for number in numbers):
            data = b"".join([self._held[number] for number in numbers])
        elif len(numbers) > _AHEAD_BLOCKS:
            data = self._fetch(numbers[0], numbers[-1] + 1)
        else:
            data = self._fetch(numbers[0], numbers[0] + _AHEAD_BLOCKS)
            self._hold(numbers[0], data)
        start = offset - numbers[0] * BLOCK_BYTES
        return data[start : start + length]

    def _fetch(self, first: int, last: int) -> bytes:
        start = first * BLOCK_BYTES
        size = min(last * BLOCK_BYTES, self._trailer.sums_offset) - start
        data = self._remote.read(self.row, start, size)
        check_blocks(self.row, self._trailer, first, data)
        return data

    def _hold(self, first: int, data: bytes) -> None:
        if len(self._held) >= _HELD_BLOCKS_MAX:
            self._held.clear()
        for number, start in enumerate(range(0, len(data), BLOCK_BYTES), start=first):
            self._held[number] = data[start : start + BLOCK_BYTES]
