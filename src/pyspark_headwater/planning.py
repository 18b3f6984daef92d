"""Splitting what is to be read into tasks.

The split depends only on the offsets and the options: not on the time, not on later appends, not on
where the server keeps the data. So a micro-batch that is run again has the same partitions with the
same rows, which the exactly-once sink relies on.

The server does the split, because it knows where appends begin, and reports lost data. Right after
a stream's tail was queried, everything before it is known to exist. If that is no more than one
task reads, it is not split. So no request is needed, and a micro-batch starts that much earlier.
Should it be gone when the task reads it, the task reports that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from headwater.client.errors import ResponseError
from headwater.core.offsets import distance
from pyspark_headwater.options import ReadOptions
from pyspark_headwater.selection import Offsets, data_loss, is_data_loss
from pyspark_headwater.wire import BEGINNING, Wire

PARTITION_BYTES: Final = 16 * 2**20
PARTITION_BYTES_MIN: Final = 64 * 2**10
_WHOLE: Final = 2**40


@dataclass(frozen=True, slots=True)
class StreamRange:
    """A part of one stream."""

    stream: str
    offset: str
    until: str
    bytes: int


class RangesPartition(InputPartition):
    """What one task reads: ranges of one stream or of several small ones."""

    def __init__(self, ranges: Sequence[StreamRange]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)


class Planner:
    def __init__(self, options: ReadOptions, wire: Wire) -> None:
        self._options = options
        self._wire = wire
        self._is_known = False

    def partitions(
        self, start: Offsets, end: Offsets, *, is_known: bool = False
    ) -> list[RangesPartition]:
        """The tasks that read from one place to another, which may be known to exist."""
        self._is_known = is_known and self._options.fail_on_data_loss
        changed = [(name, start.get(name, BEGINNING), end[name]) for name in sorted(end)]
        changed = [(name, first, last) for name, first, last in changed if first != last]
        target = self._target_bytes(changed)
        ranges = [one for what in changed for one in self._ranges(*what, target)]
        return [RangesPartition(group) for group in packed(ranges, target)]

    def _target_bytes(self, changed: list[tuple[str, str, str]]) -> int:
        if self._options.min_partitions is None:
            return PARTITION_BYTES
        total = sum(one.bytes for what in changed for one in self._ranges(*what, _WHOLE))
        wanted = self._options.min_partitions
        return min(PARTITION_BYTES, max(PARTITION_BYTES_MIN, -(-total // wanted)))

    def _ranges(self, stream: str, start: str, end: str, target: int) -> list[StreamRange]:
        size = distance(start, end)
        if self._is_known and size is not None and 0 < size <= target:
            return [StreamRange(stream, start, end, size)]
        try:
            found = self._wire.ranges(stream, start, end, target)
            return [StreamRange(stream, one.offset, one.until, one.bytes) for one in found]
        except ResponseError as error:
            if not is_data_loss(error):
                raise
            if self._options.fail_on_data_loss:
                raise data_loss(stream, error) from error
        return [] if start == BEGINNING else self._ranges(stream, BEGINNING, end, target)


def packed(ranges: Sequence[StreamRange], target_bytes: int) -> list[list[StreamRange]]:
    """Neighbours together in one task, up to a size."""
    groups: list[list[StreamRange]] = []
    room = 0
    for one in ranges:
        if not groups or one.bytes > room:
            groups.append([])
            room = target_bytes
        groups[-1].append(one)
        room -= one.bytes
    return groups
