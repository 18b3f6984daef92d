"""Finding the groups of streams, and keeping those in use in memory."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from itertools import islice
from typing import Final, Self

from headwater.core.errors import (
    GroupNotFound,
    OwnedElsewhere,
    StorageUnavailable,
    StreamError,
    StreamNotFound,
)
from headwater.core.groups.state import GroupState
from headwater.service.background import Retried
from headwater.service.entries import Entry, Event, Pinned
from headwater.service.groups.dead_letters import DeadLetters
from headwater.service.groups.figures import GroupFigures, LagSurvey
from headwater.service.groups.group import Group
from headwater.service.groups.messages import MessageReader
from headwater.service.log import Log
from headwater.service.timers import Timers

_STREAMS_IN_MEMORY_MAX: Final = 10_000
_GROUPS_MAX: Final = 50_000
_LOOKS_MAX: Final = 64
_LOOK_AGAIN_MS: Final = 1_000


class StreamGroups(Pinned):
    """The groups of one stream, while some of them are in use."""

    def __init__(self, entry: Entry, stream_id: int) -> None:
        super().__init__()
        self.entry = entry
        self.stream_id = stream_id
        self.groups: dict[str, Group] = {}
        self.awaited: dict[Group, None] = {}
        """Groups with waiting members: an append checks no others."""
        self.complete = False
        """Whether all groups are loaded and none is void."""
        self.losses = 0
        self.ended = False
        """Whether the stream was deleted. If it is undeleted, its groups are loaded again."""
        self.loading = asyncio.Lock()
        entry.listeners.add(self.on_event)

    def on_event(self, event: Event) -> None:
        if event is not Event.CHANGED:
            self.ended = True
            released = event is Event.RELEASED
            error = OwnedElsewhere(self.entry.shard) if released else self.entry.missing()
            for group in self.groups.values():
                if released:
                    # What is queued now is committed before another node takes over.
                    group.settle_acks()
                    group.store_deliveries()
                group.dismiss(error)
            return
        for group in self.awaited:
            group.kick()

    @property
    def idle(self) -> bool:
        unused = not self.loading.locked() and not self.pins
        return unused and not any(group.busy for group in self.groups.values())

    @property
    def void(self) -> bool:
        """Whether the stream is gone, even if another one took its place."""
        return self.ended or self.entry.shown(self.stream_id) is None

    def close(self) -> None:
        self.entry.listeners.discard(self.on_event)


class GroupRegistry:
    """Groups by the path of their stream and by their own name."""

    def __init__(self, streams: Log, next_group_id: int) -> None:
        self._streams = streams
        self._next_id = next_group_id
        self._timers = Timers(streams.clock, streams.watch("group_timers"))
        self._look_ups = Retried(streams.watch("group_lookups"))
        self._reader = MessageReader(streams)
        self._bury = DeadLetters(streams, self._reader, self._timers, streams.watch("dead_letters"))
        self._by_path: OrderedDict[str, StreamGroups] = OrderedDict()
        self._stopped = False
        self._streams_max = min(_STREAMS_IN_MEMORY_MAX, streams.limits.streams_in_memory_max)
        self.figures = GroupFigures(streams.watch("groups"))
        self.lag_survey = LagSurvey(self._by_path)

    @classmethod
    async def start(cls, streams: Log) -> Self:
        return cls(streams, await streams.in_thread(streams.engine.groups.next_id))

    def stop(self) -> None:
        self._stopped = True
        self._timers.stop()
        self._look_ups.cancel()
        for stream in self._by_path.values():
            for group in stream.groups.values():
                group.store_deliveries()
                group.dismiss(_stopping())

    # ── Finding ──────────────────────────────────────────────────────────────────────────────

    async def of(self, path: str) -> StreamGroups:
        """The groups of an existing stream."""
        while True:
            entry = await self._streams.entry(path)
            view = self._streams.view(entry)
            stream = self._by_path.get(path)
            if stream is not None and (stream.entry is not entry or stream.void):
                self._forget(path)
                stream = None
            if stream is None:
                # The entry stays while this listens, so no decision can be missed.
                self._shrink()
                stream = self._by_path[path] = StreamGroups(entry, view.config.id)
            if stream.complete:
                self._by_path.move_to_end(path)
                return stream
            await self._load(stream)

    async def _load(self, stream: StreamGroups) -> None:
        """Load missing and void groups. Valid copies know more than the engine."""
        async with stream.loading:
            if stream.complete:
                return
            losses = stream.losses
            # Changes to the missing ones may not be committed yet.
            with suppress(StorageUnavailable):
                await self._streams.writer.reply_after_all(None)
            engine = self._streams.engine
            states = await self._streams.in_thread(engine.groups.of_stream, stream.stream_id)
            if stream.void or stream.losses != losses:
                # What was read may be older than what the latest void copy had stored.
                return
            good = {name: group for name, group in stream.groups.items() if not group.gone}
            missing = [state for state in states if state.record.name not in good]
            loaded = {state.record.name: self._group(state, stream) for state in missing}
            for name, group in loaded.items():
                if name in stream.groups:
                    group.continue_from(stream.groups[name])
            stream.groups = loaded | good
            stream.complete = True

    def ready(self, path: str, name: str) -> Group | None:
        """The group if it is in memory: the fast path, without waiting."""
        stream = self._by_path.get(path)
        if stream is None:
            return None
        entry, group = stream.entry, stream.groups.get(name)
        if (
            group is None
            or group.gone
            or self._streams.ready(path) is not entry
            or self._streams.view(entry).config.id != stream.stream_id
        ):
            return None
        self._by_path.move_to_end(path)
        return group

    async def get(self, path: str, name: str) -> Group:
        stream = await self.of(path)
        group = stream.groups.get(name)
        if group is None:
            # Its deletion may not be committed yet.
            await self._streams.writer.reply_after_all(None)
            raise GroupNotFound(name)
        return group

    def _group(self, state: GroupState, stream: StreamGroups) -> Group:
        streams = self._streams
        group = Group(
            state,
            stream.entry,
            streams.writer,
            self._reader,
            self._timers,
            streams.clock,
            self._bury,
            lambda: self._lost(stream),
            self.figures,
            stream.awaited,
        )
        if self._stopped:
            group.dismiss(_stopping())
        # Resume what a restart interrupted: leases that end, given-up messages.
        group.kick()
        return group

    def _lost(self, stream: StreamGroups) -> None:
        """A copy became void. Reload the group soon, even without a request."""
        stream.complete = False
        stream.losses += 1
        self._look_later(stream.entry.path)

    def _look_later(self, path: str) -> None:
        def look() -> None:
            self._look_ups.start(lambda: self._look(path))

        self._timers.at(self._streams.clock() + _LOOK_AGAIN_MS, look)

    async def _look(self, path: str) -> None:
        try:
            await self.of(path)
        except StorageUnavailable:
            self._look_later(path)
        except StreamError:
            # There is nothing left to do.
            return

    def _forget(self, path: str) -> None:
        stream = self._by_path.pop(path)
        stream.close()
        # A caller that still holds it must not use it again.
        stream.complete = False
        for group in stream.groups.values():
            group.dismiss(StreamNotFound(path))

    def _shrink(self) -> None:
        """Make room for one more. Busy ones are not checked again for a while."""
        for path in list(islice(self._by_path, _LOOKS_MAX)):
            if len(self._by_path) < self._streams_max and self.figures.loaded < _GROUPS_MAX:
                return
            if self._by_path[path].idle:
                self._forget(path)
            else:
                self._by_path.move_to_end(path)


def _stopping() -> StreamError:
    return StorageUnavailable("the server is shutting down; try again")
