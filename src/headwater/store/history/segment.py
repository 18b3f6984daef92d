"""Reading a segment file.

Everything is verified: the trailer must be the recorded one, and every block is compared with its
checksum on first access. After that the process remembers that it is good, and the kernel may send
its bytes without passing them through here.

A file stays open as long as anything holds it, so it may be removed from its directory while it is
still being sent.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from headwater.core.errors import DataCorrupt
from headwater.store.engine.appends import FileRange
from headwater.store.history import page_cache, segment_format
from headwater.store.history.extent import Extent
from headwater.store.history.segment_format import (
    BLOCK_BYTES,
    Entry,
    LayoutError,
)


class SegmentRow(NamedTuple):
    """The database row of a segment."""

    id: int
    name: str
    size_bytes: int
    root: str
    local: int = 1
    """Whether the file is on this machine."""
    remote: int = 0
    """Whether it is in object storage: `ABSENT`, `PRESENT` or `PERHAPS`."""


ABSENT: Final = 0
PRESENT: Final = 1
PERHAPS: Final = 2
"""An upload was begun, and may or may not have completed."""


class BlockReader(ABC):
    """A segment, wherever it is. What is read is verified against its checksums."""

    def __init__(self, row: SegmentRow, trailer: segment_format.Trailer) -> None:
        self.row = row
        self._trailer = trailer

    @abstractmethod
    def read(self, offset: int, length: int) -> bytes:
        """Some bytes of it; raises DataCorrupt if they are not what was written."""

    def damaged(self, problem: str) -> DataCorrupt:
        return DataCorrupt(f"segment {self.row.name}: {problem}")

    def require_within(self, offset: int, length: int) -> None:
        if not 0 <= offset <= offset + length <= self._trailer.sums_offset:
            raise self.damaged(f"it has no bytes {offset} to {offset + length}")

    def directory(self) -> list[Entry]:
        offset = self._trailer.directory_offset
        try:
            return segment_format.read_directory(
                self.read(offset, self._trailer.sums_offset - offset)
            )
        except LayoutError as error:
            raise self.damaged(str(error)) from None

    def extent(self, index_offset: int) -> Extent:
        try:
            header = segment_format.read_header(
                self.read(index_offset, segment_format.HEADER_BYTES)
            )
        except LayoutError as error:
            raise self.damaged(str(error)) from None
        return Extent(self, index_offset, header)

    def range(self, offset: int, length: int) -> FileRange:
        """Verified bytes for the kernel to send, possible for files on this machine."""
        raise TypeError(f"segment {self.row.name} is not a file of this machine")


class Segment(BlockReader):
    """One open file, shared by all its readers."""

    def __init__(self, row: SegmentRow, file: int, trailer: segment_format.Trailer) -> None:
        super().__init__(row, trailer)
        self.file = file
        self._known_good = bytearray(len(trailer.sums))

    @classmethod
    def open(cls, path: Path, row: SegmentRow) -> Segment:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return cls(row, file, find_trailer(row, lambda at, size: os.pread(file, size, at)))
        except BaseException:
            os.close(file)
            raise

    def __del__(self) -> None:
        os.close(self.file)

    def ensure(self, offset: int, length: int) -> None:
        """Verify that a range is what was written; raises DataCorrupt otherwise."""
        self.require_within(offset, length)
        for number in segment_format.blocks_of(offset, length):
            if not self._known_good[number]:
                self._check(number)
                self._known_good[number] = 1

    def _check(self, number: int) -> None:
        start = number * BLOCK_BYTES
        size = min(BLOCK_BYTES, self._trailer.sums_offset - start)
        try:
            block = os.pread(self.file, size, start)
        except OSError as error:
            raise self.damaged(f"block {number} cannot be read ({error.strerror})") from None
        if len(block) != size:
            raise self.damaged("it has become shorter")
        check_blocks(self.row, self._trailer, number, block)

    def check_all(self) -> None:
        """Verify every block, known to be good or not."""
        for number in range(len(self._trailer.sums)):
            self._check(number)

    def read(self, offset: int, length: int) -> bytes:
        self.ensure(offset, length)
        data = os.pread(self.file, length, offset)
        if len(data) != length:
            raise self.damaged("it has become shorter")
        return data

    def range(self, offset: int, length: int) -> FileRange:
        """Verified bytes, in memory, to be sent without being read here."""
        self.ensure(offset, length)
        if not page_cache.is_in_memory(self.file, offset, length):
            page_cache.bring(self.file, offset, length)
        return FileRange(self, self.file, offset, length)

    def is_at_hand(self, offset: int, length: int) -> bool:
        """Whether a range is known to be good and can be read without waiting."""
        blocks = segment_format.blocks_of(offset, length)
        is_known = 0 not in self._known_good[blocks.start : blocks.stop]
        return is_known and page_cache.is_in_memory(self.file, offset, length)


def check_blocks(row: SegmentRow, trailer: segment_format.Trailer, first: int, data: bytes) -> None:
    """Verify blocks from a given one on against their checksums."""
    for number in range(first, first + -(-len(data) // segment_format.BLOCK_BYTES)):
        start = (number - first) * segment_format.BLOCK_BYTES
        block = data[start : start + segment_format.BLOCK_BYTES]
        if segment_format.block_sum(number, block) != trailer.sums[number]:
            raise DataCorrupt(f"segment {row.name}: block {number} does not match its checksum")


def find_trailer(row: SegmentRow, read: Callable[[int, int], bytes]) -> segment_format.Trailer:
    """The trailer of a segment, if it is the recorded one; reads it in one go."""
    size = min(row.size_bytes, segment_format.trailer_bytes(row.size_bytes))
    try:
        data = read(row.size_bytes - size, size)
        covered = segment_format.read_sums_offset(data[-segment_format.FOOTER_BYTES :])
        trailer = segment_format.read_trailer(data[covered - row.size_bytes :])
    except (LayoutError, OSError, OverflowError) as error:
        raise DataCorrupt(f"segment {row.name}: {error}") from None
    if trailer.root != row.root:
        raise DataCorrupt(f"segment {row.name}: it is not the one that was recorded")
    return trailer
