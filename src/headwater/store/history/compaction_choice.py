"""Which history files are worth rewriting.

Those that are more than half unneeded: writing them costs less than it frees. And small ones that
together make a larger one. Writing the same bytes again and again for a small addition would be
wasteful, so a file waits for others of about its own size. Eight of a size make one of the next, so
a byte is rewritten only a few times, and a few files of each size remain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headwater.store.history.segment import SegmentRow

COMPANY: Final = 8
# Bounds memory and open files.
_FILES_MAX: Final = 128
_EXTENTS_MAX: Final = 50_000


class FileUse(NamedTuple):
    """How much of a file is needed."""

    row: SegmentRow
    extents: int
    needed_bytes: int
    bodies_bytes: int
    """Everything that was written. Exact while all of it is needed, and never too little."""

    @property
    def is_wasteful(self) -> bool:
        return 2 * self.needed_bytes < self.bodies_bytes


def choose(
    files: Sequence[FileUse], segment_bytes: int, company: int = COMPANY
) -> list[list[FileUse]]:
    """Groups of files to merge, as many as are worth it."""
    chosen = [*_grouped([one for one in files if one.is_wasteful], segment_bytes)]
    alike: dict[int, list[FileUse]] = {}
    for one in files:
        if not one.is_wasteful and 2 * one.row.size_bytes < segment_bytes:
            # Without waiting for others, sizes do not matter either.
            size = _size_class(one, segment_bytes) if company == COMPANY else 0
            alike.setdefault(size, []).append(one)
    for _, small in sorted(alike.items(), reverse=True):
        for group in _grouped(small, segment_bytes):
            full = 2 * sum(one.needed_bytes for one in group) >= segment_bytes
            if len(group) >= company or (full and len(group) > 1):
                chosen.append(group)
    return chosen


def _size_class(one: FileUse, segment_bytes: int) -> int:
    """Eight files of a class together have the class below."""
    return (segment_bytes // one.row.size_bytes).bit_length() // 3


def _grouped(files: Sequence[FileUse], segment_bytes: int) -> Iterator[list[FileUse]]:
    """Neighbours, as many as fit into one file."""
    group: list[FileUse] = []
    size = extents = 0
    for one in files:
        full = size + one.needed_bytes > segment_bytes or extents + one.extents > _EXTENTS_MAX
        if group and (full or len(group) == _FILES_MAX):
            yield group
            group, size, extents = [], 0, 0
        group.append(one)
        size, extents = size + one.needed_bytes, extents + one.extents
    if group:
        yield group
