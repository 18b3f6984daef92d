"""Changes read from PostgreSQL and not stored yet: bounded, in order, split into appends.

How they are split does not matter for correctness: positions are those of the log, and a unit is
never divided. An append takes what was collected during the previous one, within limits. A
transaction larger than an append spans several, with nothing else in between.

Between the units are marks: "everything before this LSN has been received". A mark is passed on
with the last unit before it, so that PostgreSQL learns that it may discard a transaction only when
all of it is stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from headwater.postgres.changes import Unit
from headwater.postgres.position import Position

BATCH_BYTES_MAX: Final = 1 << 20
BATCH_RECORDS_MAX: Final = 5_000
BUFFER_BYTES_MAX: Final = 4 << 20
# A unit costs more than its bytes, and a mark has none.
ITEM_BYTES: Final = 200


@dataclass(slots=True)
class Batch:
    """What one append stores."""

    records: list[bytes] = field(default_factory=list)
    last: Position | None = None
    """The position of the last unit; None if there is none."""
    confirms: int | None = None
    """Once this batch is stored, everything before this LSN is."""


class Buffer:
    """A queue between one reader and one writer on the same event loop."""

    def __init__(self, *, max_bytes: int = BUFFER_BYTES_MAX) -> None:
        self._max_bytes = max_bytes
        self._items: deque[Unit | int] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self._closed = False

    async def put(self, unit: Unit) -> None:
        """Add a unit, waiting while the buffer is full."""
        while self._items and self._bytes > self._max_bytes:
            self._changed.clear()
            await self._changed.wait()
        self._add(unit, unit.size)

    def mark(self, lsn: int) -> None:
        """Everything before this LSN has been added."""
        if self._items and isinstance(self._items[-1], int):
            self._items[-1] = lsn
        else:
            self._add(lsn, 0)

    def close(self) -> None:
        """Return nothing more, not even what is buffered."""
        self._closed = True
        self._changed.set()

    async def take(self, *, units_max: int | None = None) -> Batch | None:
        """The next batch, waiting until there is one; None once it is closed."""
        while not self._items and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        if self._closed:
            return None
        batch = self._gather(units_max)
        self._changed.set()
        return batch

    def _add(self, item: Unit | int, size: int) -> None:
        self._items.append(item)
        self._bytes += size + ITEM_BYTES
        self._changed.set()

    def _gather(self, units_max: int | None) -> Batch:
        batch = Batch()
        size = units = 0
        while self._items:
            item = self._items[0]
            if isinstance(item, int):
                batch.confirms = item
                self._bytes -= ITEM_BYTES
            else:
                grown = size + item.size
                count = len(batch.records) + len(item.records)
                too_large = grown > BATCH_BYTES_MAX or count > BATCH_RECORDS_MAX
                if batch.records and (too_large or units == units_max):
                    break
                batch.records.extend(item.records)
                batch.last = item.position
                self._bytes -= item.size + ITEM_BYTES
                size = grown
                units += 1
            self._items.popleft()
        return batch
