"""The entries in memory: loaded on demand, dropped when idle, with a shared bound on hot tails."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from itertools import islice

from headwater.core.limits import Limits
from headwater.service.entries import Entry
from headwater.service.hot_tail import HeldBytes
from headwater.store.engine.streams import LoadedStream


class Registry:
    """The entries, most recently used last."""

    def __init__(
        self,
        limits: Limits,
        fetch: Callable[[str], Awaitable[LoadedStream | None]],
        *,
        shared: bool = False,
    ) -> None:
        self._limits = limits
        self._fetch = fetch
        self._shared = shared
        """Whether other nodes can create streams too: a missing one is looked up every time."""
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._held = HeldBytes()

    def __len__(self) -> int:
        return len(self._entries)

    def ready(self, path: str) -> Entry | None:
        """The entry if it is loaded: the fast path, without waiting."""
        entry = self._entries.get(path)
        if entry is None or not entry.loaded or (self._shared and entry.absent):
            return None
        self._entries.move_to_end(path)
        return entry

    async def get(self, path: str) -> Entry:
        """The entry, loaded. Use it before the next await: after that it may have been dropped."""
        while (entry := self.ready(path)) is None:
            loading = self._entries.get(path)
            if loading is None:
                self._shrink()
                loading = self._entries[path] = Entry(path, self._held)
            if self._shared:
                if await self._ask(loading):
                    return loading
            else:
                await loading.load(self._fetch)
        return entry

    async def _ask(self, entry: Entry) -> bool:
        """Load it from an engine that others use too; False if that has to be repeated.

        The result of someone else's query may be from before this call.
        """
        joined = entry.loading
        if entry.loaded:
            entry.forget_state()
        try:
            await entry.load(self._fetch)
        except BaseException:
            # It belongs to another node; what is known of it is useless.
            if self._entries.get(entry.path) is entry and entry.idle:
                del self._entries[entry.path]
            raise
        held = self._entries.get(entry.path) is entry
        return held and entry.loaded and not (joined and entry.absent)

    def release(self, is_over: Callable[[Entry], bool]) -> list[Entry]:
        """Drop streams that another node is about to own, and all that are being loaded: the loaded
        data may be stale by then.
        """
        over = [e for e in self._entries.values() if not e.loaded or is_over(e)]
        for entry in over:
            entry.released = True
            del self._entries[entry.path]
        return over

    @property
    def hot_bytes(self) -> int:
        return self._held.total

    def release_hot(self) -> None:
        """Free memory of hot tails beyond the bound, least recently used first.

        Those with listeners come last: their readers then read from the engine.
        """
        if self._held.total <= self._limits.hot_bytes_max:
            return
        # Somewhat more than needed, so that the next few appends need not check again.
        enough = self._limits.hot_bytes_max - self._limits.hot_bytes_max // 8
        for listened in (False, True):
            for entry in self._entries.values():
                if self._held.total <= enough:
                    return
                if entry.view is not None and bool(entry.listeners) is listened:
                    entry.view.hot.clear()

    def _shrink(self) -> None:
        """Make room for one more."""
        excess = len(self._entries) + 1 - self._limits.streams_in_memory_max
        if excess <= 0:
            return
        # Look a little further than needed: some of the oldest may be busy.
        for entry in list(islice(self._entries.values(), excess + 64)):
            if excess <= 0:
                break
            if entry.idle:
                del self._entries[entry.path]
                excess -= 1
