"""The touch journal of one stream: buckets, generations, and waiters.

Touches collect in a bucket. Closing it (`flush`) assigns the next generation number and wakes the
waiters on its keys. A cursor `<epoch>:<generation>` lies between two buckets: a wait from a cursor
is answered at once if one of its keys was touched in a later generation, and otherwise by the first
bucket that touches one. The open bucket belongs to a generation that no cursor given out so far has
seen.

A bucket with too many keys overflows: it wakes everybody, and every older cursor counts as touched.
The epoch is new whenever the journal starts empty; a cursor of another epoch is stale. Tables are
touched at most once per interval, so that waiters on a busy table are not woken by every bucket;
touches in between take effect when the interval ends.

Waiters with few keys are indexed by them. Those with many are scanned.
"""

from __future__ import annotations

from typing import Final

from headwater.core.live.history import EXACT_KEYS_MAX, Generation, History
from headwater.core.live.profile import TouchSettings
from headwater.core.live.templates import Template
from headwater.core.live.touches import TABLE, Pending

_INTERVALS_KEPT_MAX: Final = 4096


class Waiter:
    """What a client waits for. `everything` if the journal cannot place its keys."""

    __slots__ = ("everything", "ids", "keys", "templates")

    def __init__(
        self,
        keys: frozenset[int],
        ids: frozenset[int] = frozenset(),
        *,
        everything: bool = False,
        templates: tuple[Template, ...] = (),
    ) -> None:
        self.keys = keys
        self.ids = ids
        self.everything = everything
        self.templates = templates


class Journal:
    def __init__(
        self, epoch: str, settings: TouchSettings, exact_keys_max: int = EXACT_KEYS_MAX
    ) -> None:
        memory = settings.memory
        self.epoch = epoch
        self.generation = 0
        self.pending: Pending = {}
        self.history = History(memory.filter_pow2, memory.k, exact_keys_max)
        self.source_seq = 0
        """Messages of the stream that the open bucket or an earlier one has seen."""
        self.flushed_seq = 0
        self.overflow_buckets = 0
        self._pending_max = memory.pending_max_keys
        self._index_keys_max = memory.key_index_max_keys
        self._coarse_interval_ms = settings.coarse_interval_ms
        self.overflowing = False
        self._overflow_generation = 0
        self._last_change = 0
        self._tables_touched_ms: dict[int, int] = {}
        self._tables_held: dict[int, int] = {}
        self._waiters: dict[Waiter, None] = {}
        self._by_key: dict[int, dict[Waiter, None]] = {}
        self._by_id: dict[int, dict[Waiter, None]] = {}
        self._broad: dict[Waiter, None] = {}
        self._everything: dict[Waiter, None] = {}

    @property
    def cursor(self) -> str:
        return f"{self.epoch}:{self.generation}"

    @property
    def settled(self) -> bool:
        """Whether nothing is left to flush."""
        return not self.pending and not self._tables_held and not self.overflowing

    @property
    def due_ms(self) -> int | None:
        """When a held table touch is due, if nothing else causes a flush before."""
        return min(self._tables_held.values(), default=None)

    # ── Touching ─────────────────────────────────────────────────────────────────────────────

    def touch_table(self, key: int, now_ms: int) -> None:
        if key in self.pending or key in self._tables_held:
            return
        last_ms = self._tables_touched_ms.get(key)
        if last_ms is not None and last_ms <= now_ms < last_ms + self._coarse_interval_ms:
            self._tables_held[key] = last_ms + self._coarse_interval_ms
            return
        self.pending[key] = TABLE
        self._tables_touched_ms[key] = now_ms

    def check_overflow(self) -> None:
        """Call this whenever keys were added to `pending`."""
        if self.overflowing or len(self.pending) > self._pending_max:
            self.overflowing = True
            self.pending.clear()

    # ── Flushing ─────────────────────────────────────────────────────────────────────────────

    def flush(self, now_ms: int, *, everything: bool = False) -> list[Waiter]:
        """Close the bucket and return the waiters to wake. `everything` holds nothing back."""
        self._release_tables(now_ms, everything=everything)
        if not self.pending and not self.overflowing:
            self.flushed_seq = self.source_seq
            return []
        self.generation += 1
        closed = Generation(self.generation, self.generation, self.pending)
        self.pending = {}
        self._last_change = self.generation
        self.flushed_seq = self.source_seq
        self.history.record(closed)
        if self.overflowing:
            self.overflowing = False
            self._overflow_generation = self.generation
            self.overflow_buckets += 1
            return [*self._waiters]
        return [*self._find(closed)]

    def _release_tables(self, now_ms: int, *, everything: bool) -> None:
        held = self._tables_held
        for key in [key for key, due_ms in held.items() if everything or due_ms <= now_ms]:
            del held[key]
            self.pending[key] = TABLE
            self._tables_touched_ms[key] = now_ms
        if len(self._tables_touched_ms) > _INTERVALS_KEPT_MAX:
            start_ms = now_ms - self._coarse_interval_ms
            touched = self._tables_touched_ms
            self._tables_touched_ms = {k: at for k, at in touched.items() if at > start_ms}

    def _find(self, closed: Generation) -> dict[Waiter, None]:
        woken: dict[Waiter, None] = {**self._everything}
        for key in closed.keys.keys() & self._by_key.keys():
            woken.update(self._by_key[key])
        if self._by_id:
            for key_id in closed.ids & self._by_id.keys():
                woken.update(self._by_id[key_id])
        keys = closed.keys.keys()
        for waiter in self._broad:
            if not keys.isdisjoint(waiter.keys) or not closed.ids.isdisjoint(waiter.ids):
                woken[waiter] = None
        return woken

    # ── Waiting ──────────────────────────────────────────────────────────────────────────────

    def touched_since(self, generation: int, waiter: Waiter) -> bool:
        return (
            generation < self._overflow_generation
            or (waiter.everything and generation < self._last_change)
            or self.history.touched_since(generation, waiter.keys)
            or self.history.ids_touched_since(generation, waiter.ids)
        )

    def add(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None
        for template in waiter.templates:
            template.waiters += 1
        if waiter.everything:
            self._everything[waiter] = None
        elif self._is_broad(waiter):
            self._broad[waiter] = None
        else:
            for key in waiter.keys:
                self._by_key.setdefault(key, {})[waiter] = None
            for key_id in waiter.ids:
                self._by_id.setdefault(key_id, {})[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        if waiter not in self._waiters:
            return
        del self._waiters[waiter]
        for template in waiter.templates:
            template.waiters -= 1
        if waiter.everything:
            del self._everything[waiter]
        elif self._is_broad(waiter):
            del self._broad[waiter]
        else:
            _drop(self._by_key, waiter.keys, waiter)
            _drop(self._by_id, waiter.ids, waiter)

    def _is_broad(self, waiter: Waiter) -> bool:
        return len(waiter.keys) + len(waiter.ids) > self._index_keys_max

    @property
    def waiters(self) -> list[Waiter]:
        return [*self._waiters]

    @property
    def counts(self) -> tuple[int, int, int]:
        """All waiters, those that are scanned, and those that everything wakes."""
        return len(self._waiters), len(self._broad), len(self._everything)

    @property
    def awaited_keys(self) -> int:
        return len(self._by_key)


def _drop(index: dict[int, dict[Waiter, None]], keys: frozenset[int], waiter: Waiter) -> None:
    for key in keys:
        holders = index[key]
        del holders[waiter]
        if not holders:
            del index[key]
