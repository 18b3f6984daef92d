"""What was touched since when.

The keys of recent generations are kept exactly. As they age, neighbours are merged, so that there
are few to search; a cursor inside a merged one may see a touch again. Keys that no longer fit into
memory go into a filter whose cells hold the highest generation of any key that maps to them. It
starts small and doubles as it fills; a doubled filter starts as two copies of the old one. Under a
flood even that would take too long: then everything up to there counts as touched. All of this may
report "touched" too often but never too rarely, and is more accurate for newer cursors.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Iterator, Set
from itertools import chain
from typing import Final

from headwater.core.live.keys import KEY_ID_MASK
from headwater.core.live.touches import Pending

_FIRST_POW2: Final = 8
_CELLS_PER_KEY: Final = 8
_MIX: Final = 0x9E37_79B1
EXACT_KEYS_MAX: Final = 131_072
_BYTES_PER_KEY: Final = 100
_RECENT_MAX: Final = 64
_FILTERED_PER_BUCKET_MAX: Final = 4_096


class AgingFilter:
    """The latest generation at which a key id may have been touched."""

    def __init__(self, max_pow2: int, hashes: int) -> None:
        self._max_pow2 = max_pow2
        self._hashes = hashes
        self._pow2 = min(_FIRST_POW2, max_pow2)
        self._cells = array("Q", bytes(8 << self._pow2))
        self._added = 0

    @property
    def size_bytes(self) -> int:
        return len(self._cells) * self._cells.itemsize

    def add(self, keys: Collection[int], generation: int) -> None:
        """Record keys last touched at a generation, which is never before the previous one."""
        self._added += len(keys)
        while self._added * _CELLS_PER_KEY > len(self._cells) and self._pow2 < self._max_pow2:
            self._pow2 += 1
            # A cell of the larger filter, modulo the smaller size, is the cell in the smaller one.
            self._cells *= 2
        cells, mask, hashes = self._cells, len(self._cells) - 1, range(self._hashes)
        for key in keys:
            place = key & KEY_ID_MASK
            step = _step(place)
            for _ in hashes:
                cells[place & mask] = generation
                place += step

    def latest(self, key_id: int) -> int:
        return min(self._cells[place] for place in self._places(key_id))

    def _places(self, key_id: int) -> list[int]:
        mask, step = len(self._cells) - 1, _step(key_id)
        return [(key_id + number * step) & mask for number in range(self._hashes)]


def _step(key_id: int) -> int:
    """The distance between the cells of a key."""
    return (key_id * _MIX >> 7 | 1) & KEY_ID_MASK


class Generation:
    """The keys of one bucket, or of several merged neighbours."""

    __slots__ = ("_ids", "first", "keys", "last")

    def __init__(self, first: int, last: int, keys: Pending) -> None:
        self.first = first
        self.last = last
        self.keys = keys
        self._ids: frozenset[int] | None = None

    @property
    def ids(self) -> frozenset[int]:
        """The short ids of the keys. Computed on demand: few waiters use short ids."""
        if self._ids is None:
            self._ids = frozenset([key & KEY_ID_MASK for key in self.keys])
        return self._ids

    def joined(self, newer: Generation) -> Generation:
        return Generation(self.first, newer.last, self.keys | newer.keys)


class History:
    def __init__(self, filter_pow2: int, hashes: int, exact_keys_max: int) -> None:
        self._exact_keys_max = exact_keys_max
        self._filter = AgingFilter(filter_pow2, hashes)
        self._recent: deque[Generation] = deque()
        self._older: list[Generation] = []
        self._held_keys = 0
        self._floor = 0
        self._blind = 0

    @property
    def size_bytes(self) -> int:
        """The approximate size of the filter and the exact keys."""
        return self._filter.size_bytes + _BYTES_PER_KEY * self._held_keys

    def record(self, generation: Generation) -> None:
        self._recent.append(generation)
        self._held_keys += len(generation.keys)
        if len(self._recent) > _RECENT_MAX:
            self._older.append(self._recent.popleft())
            self._join_older()
        if self._held_keys > self._exact_keys_max:
            self._forget_oldest()

    def _join_older(self) -> None:
        """Merge neighbours of similar size, so that there are never many."""
        older = self._older
        while len(older) > 1 and len(older[-2].keys) <= 2 * len(older[-1].keys):
            newest, second = older.pop(), older.pop()
            older.append(second.joined(newest))
            self._held_keys += len(older[-1].keys) - len(second.keys) - len(newest.keys)

    def _forget_oldest(self) -> None:
        room = _FILTERED_PER_BUCKET_MAX
        while self._held_keys > self._exact_keys_max:
            oldest = self._older.pop(0) if self._older else self._recent.popleft()
            self._held_keys -= len(oldest.keys)
            self._floor = oldest.last
            room -= len(oldest.keys)
            if room < 0:
                self._blind = oldest.last
                continue
            self._filter.add(oldest.keys, oldest.last)

    def _since(self, generation: int) -> Iterator[Generation]:
        """The generations after a given one, newest first."""
        for held in chain(reversed(self._recent), reversed(self._older)):
            if held.last <= generation:
                break
            yield held

    def templates_of(self, keys: set[int]) -> Pending:
        """The templates of recently touched keys; unknown keys are left out."""
        found: Pending = {}
        for held in chain(self._recent, self._older):
            if not held.keys.keys().isdisjoint(keys):
                found |= {key: held.keys[key] for key in keys if key in held.keys}
        return found

    def touched_since(self, generation: int, keys: Set[int]) -> bool:
        if not keys:
            return False
        if any(not held.keys.keys().isdisjoint(keys) for held in self._since(generation)):
            return True
        return self._touched_long_ago(generation, keys)

    def ids_touched_since(self, generation: int, ids: frozenset[int]) -> bool:
        if not ids:
            return False
        if any(not held.ids.isdisjoint(ids) for held in self._since(generation)):
            return True
        return self._touched_long_ago(generation, ids)

    def _touched_long_ago(self, generation: int, keys: Collection[int]) -> bool:
        if generation >= self._floor:
            return False
        return generation < self._blind or any(
            self._filter.latest(key & KEY_ID_MASK) > generation for key in keys
        )
