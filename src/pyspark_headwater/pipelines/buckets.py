"""Parts of a table of entities. A change rewrites the part of its entity. No Spark.

A table starts as one part, and gets more as it grows, so that a change never rewrites much, and a
small table never has many files. An entity's key determines its *slot*, for good; a part is all
slots with the same remainder, so the number of parts is a power of two.
"""

from __future__ import annotations

import math
import zlib
from typing import Final

SLOTS: Final = 1024
PARTS_AT_FIRST: Final = 1
ROWS_IN_A_PART_MAX: Final = 50_000
NOTE: Final = "headwater:buckets"
"""The name under which the commits of a table record its number of parts."""
UNNOTED: Final = 16
"""The number of parts of a table without that record."""


def slot_of(key: str) -> int:
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % SLOTS


def keys_in(slots: int, changes: int) -> int:
    """The approximate number of entities in some changes, by the number of their slots.

    >>> keys_in(1, 1000), keys_in(512, 1_000_000), keys_in(SLOTS, 1_000_000)
    (1, 710, 1000000)
    """
    if slots == SLOTS:
        return changes
    return min(changes, math.ceil(-SLOTS * math.log1p(-slots / SLOTS) - 1e-9 if slots > 1 else 1))


def parts_for(rows: int, now: int) -> int:
    """How many parts a table with this many rows should have. Never fewer than it has.

    >>> parts_for(10, 1), parts_for(1_000_000, 1), parts_for(10, 16)
    (1, 32, 16)
    """
    parts = now
    while parts < SLOTS and rows > parts * ROWS_IN_A_PART_MAX:
        parts *= 2
    return parts
