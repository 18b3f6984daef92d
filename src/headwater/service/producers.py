"""Forgetting producers that were idle for too long, a few at a time; see `core.producers`.

That is done in rounds. A stream at its limit is also checked when a new producer arrives, but at
most once a second: a client that invents producers must not slow down others.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from headwater.core import decisions
from headwater.core.stream import StreamState
from headwater.service.background import Background
from headwater.service.entries import Entry
from headwater.store.engine.streams import IdleProducer

if TYPE_CHECKING:
    from headwater.service.log import Log

_AT_ONCE_MAX: Final = 256
_IDLE_S: Final = 10.0
_SHORTEST_S: Final = 0.05
_LOOK_AGAIN_MS: Final = 1_000
_LOOKS_REMEMBERED_MAX: Final = 1_000


class Forgetting(Background):
    """Forgets idle producers, found by an index."""

    name = "forgetting"

    def __init__(self, streams: Log) -> None:
        super().__init__()
        self._streams = streams
        self._looked_ms: dict[int, int] = {}
        """When streams were last checked for a waiting request."""

    async def round(self) -> float:
        streams = self._streams
        idle = await self._idle()
        if not idle:
            return _IDLE_S
        with ExitStack() as stack:
            # Load the streams before asking the engine again: any producer used after that is known
            # in memory.
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
                    entry, state = held[path]
                    ids = [one.producer_id for one in found if one.stream_id == _id_of(state)]
                    await self._forget(entry, state, ids)
        return _SHORTEST_S

    async def make_room(self, entry: Entry) -> None:
        """Forget some idle producers of a stream now, because a new one arrived."""
        streams, state = self._streams, entry.state
        now_ms = streams.clock()
        if state is None or now_ms < self._looked_ms.get(state.config.id, 0) + _LOOK_AGAIN_MS:
            return
        if len(self._looked_ms) >= _LOOKS_REMEMBERED_MAX:
            self._looked_ms.clear()
        self._looked_ms[state.config.id] = now_ms
        before_ms = streams.producer_limits.idle_before(now_ms)
        stored = streams.engine.streams
        with entry.pinned():
            ids = await streams.in_thread(
                stored.idle_producers_of, state.config.id, before_ms, _AT_ONCE_MAX
            )
            await self._forget(entry, state, ids)

    async def _idle(self) -> list[IdleProducer]:
        streams = self._streams
        before_ms = streams.producer_limits.idle_before(streams.clock())
        stored = streams.engine.streams
        return await streams.in_thread(stored.idle_producers, before_ms, _AT_ONCE_MAX)

    async def _forget(self, entry: Entry, state: StreamState | None, ids: list[str]) -> None:
        streams = self._streams
        if state is None or entry.state is not state:
            return
        decision = decisions.decide_forget(state, ids, streams.producer_limits, streams.clock())
        effects = [(entry, mutation) for mutation in decision.mutations]
        if effects:
            await streams.writer.submit(effects, None)


def _id_of(state: StreamState | None) -> int | None:
    return None if state is None else state.config.id
