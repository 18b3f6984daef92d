"""Producers that were idle for too long are forgotten, a few at a time; see `core.producers`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from headwater.core import decisions
from headwater.core.stream import StreamState
from headwater.service.background import Background
from headwater.service.entries import Entry
from headwater.store.engine import IdleProducer

if TYPE_CHECKING:
    from headwater.service.log import Log

_AT_ONCE_MAX: Final = 256
_IDLE_S: Final = 10.0
_SHORTEST_S: Final = 0.05


class Forgetting(Background):
    """Forgets idle producers. Which they are is asked of an index."""

    name = "forgetting"

    def __init__(self, streams: Log) -> None:
        super().__init__()
        self._streams = streams

    async def round(self) -> float:
        streams = self._streams
        idle = await self._idle()
        if not idle:
            return _IDLE_S
        with ExitStack() as stack:
            # The streams are in memory before the engine is asked again: whoever is used after
            # that is known to be.
            held: dict[str, tuple[Entry, StreamState | None]] = {}
            for path in {one.path for one in idle}:
                entry = await streams.entry(path)
                stack.enter_context(entry.pinned())
                held[path] = entry, entry.state
            by_stream: dict[str, list[IdleProducer]] = {}
            for one in await self._idle():
                by_stream.setdefault(one.path, []).append(one)
            for path, found in by_stream.items():
                if path in held:
                    await self._forget(*held[path], found)
        return _SHORTEST_S

    async def _idle(self) -> list[IdleProducer]:
        streams = self._streams
        before_ms = streams.producer_limits.idle_before(streams.clock())
        stored = streams.engine.streams
        return await streams.in_thread(stored.idle_producers, before_ms, _AT_ONCE_MAX)

    async def _forget(
        self, entry: Entry, state: StreamState | None, found: list[IdleProducer]
    ) -> None:
        streams = self._streams
        if state is None or entry.state is not state:
            return
        ids = [one.producer_id for one in found if one.stream_id == state.config.id]
        decision = decisions.decide_forget(state, ids, streams.producer_limits, streams.clock())
        effects = [(entry, mutation) for mutation in decision.mutations]
        if effects:
            await streams.writer.submit(effects, None)
