"""What was touched since when.

The last touch of each key is known exactly as far back as the keys of recent generations fit into
memory (behind `floor`). What is older goes into a filter whose cells hold the highest generation
of any key that falls on them: it may say "touched" too often and never too rarely. The filter
begins small and doubles with what is put into it; a doubled filter starts as two copies of the old.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable
from typing import Final

from headwater.core.live.keys import KEY_ID_MASK

_FIRST_POW2: Final = 8
_CELLS_PER_KEY: Final = 8
_MIX: Final = 0x9E37_79B1
EXACT_KEYS_MAX: Final = 65_536


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

    def add(self, key_id: int, generation: int) -> None:
        self._added += 1
        if self._added * _CELLS_PER_KEY > len(self._cells) and self._pow2 < self._max_pow2:
            self._pow2 += 1
            # A place in the larger filter, cut to the smaller one's size, is the place in that.
            self._cells *= 2
        cells = self._cells
        for place in self._places(key_id):
            if cells[place] < generation:
                cells[place] = generation

    def latest(self, key_id: int) -> int:
        return min(self._cells[place] for place in self._places(key_id))

    def _places(self, key_id: int) -> list[int]:
        mask = len(self._cells) - 1
        step = (key_id * _MIX >> 7 | 1) & KEY_ID_MASK
        return [(key_id + number * step) & mask for number in range(self._hashes)]


class Generation:
    """The keys of one bucket."""

    __slots__ = ("_ids", "keys", "number")

    def __init__(self, number: int, keys: dict[int, int]) -> None:
        self.number = number
        self.keys = keys
        self._ids: frozenset[int] | None = None

    @property
    def ids(self) -> frozenset[int]:
        """The short ids of the keys. Made when somebody asks: few wait by short ids."""
        if self._ids is None:
            self._ids = frozenset([key & KEY_ID_MASK for key in self.keys])
        return self._ids


class History:
    def __init__(self, filter_pow2: int, hashes: int, exact_keys_max: int) -> None:
        self._exact_keys_max = exact_keys_max
        self._filter = AgingFilter(filter_pow2, hashes)
        self._latest: dict[int, int] = {}
        self._template_of: dict[int, int] = {}
        self._generations: deque[Generation] = deque()
        self._held_keys = 0
        self.floor = 0
        """What happened up to here is known by the filter only."""

    @property
    def size_bytes(self) -> int:
        """About what the filter and the exact keys take."""
        return self._filter.size_bytes + 200 * len(self._latest)

    def record(self, generation: Generation) -> None:
        keys = generation.keys
        self._latest.update(dict.fromkeys(keys, generation.number))
        self._template_of.update(keys)
        self._generations.append(generation)
        self._held_keys += len(keys)
        while self._held_keys > self._exact_keys_max and self._generations:
            self._forget(self._generations.popleft())

    def _forget(self, generation: Generation) -> None:
        self._held_keys -= len(generation.keys)
        self.floor = generation.number
        latest, number = self._latest, generation.number
        for key in generation.keys:
            if latest[key] == number:
                del latest[key], self._template_of[key]
                self._filter.add(key & KEY_ID_MASK, number)

    def template_of(self, key: int) -> int | None:
        """What a recently touched key belongs to, as in `Pending`; None if it is not known."""
        return self._template_of.get(key)

    def touched_since(self, generation: int, keys: Iterable[int]) -> bool:
        latest = self._latest
        for key in keys:
            if latest.get(key, 0) > generation:
                return True
            if generation < self.floor and self._filter.latest(key & KEY_ID_MASK) > generation:
                return True
        return False

    def ids_touched_since(self, generation: int, ids: frozenset[int]) -> bool:
        if not ids:
            return False
        for held in reversed(self._generations):
            if held.number <= generation:
                break
            if not held.ids.isdisjoint(ids):
                return True
        if generation >= self.floor:
            return False
        return any(self._filter.latest(key_id) > generation for key_id in ids)
