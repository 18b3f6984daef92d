"""Forks and their sources.

Deleting a stream also deletes those of its sources that nothing else needs, and a fork begins where
its source was at one moment. Both take several look-ups, and anything may happen to the streams
meanwhile: what is returned from here was true of all of them at the same moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from headwater.core import decisions
from headwater.core.decisions import Append, Create, ForkPoint
from headwater.core.errors import StreamError, UnknownOffset
from headwater.core.lineage import ForkRequest, measure_sub_offset
from headwater.core.retention import locate
from headwater.core.stream import Created, Mutation, StreamConfig, StreamState
from headwater.service.batches import Effect
from headwater.service.entries import Entry, View
from headwater.service.registry import Registry
from headwater.service.seeking import SeekingLog

# How many sources may be deleted with a stream; see `headwater.core.decisions.remove`.
_ANCESTORS_MAX: Final = 64


class MeasuredFork(NamedTuple):
    """Where a fork leaves its source, valid while the source is the same stream."""

    source: Entry
    view: View
    position: int
    messages: int

    @property
    def is_current(self) -> bool:
        return self.source.shows(self.view)

    def point(self, now_ms: int) -> ForkPoint:
        state = decisions.require_source(self.source.state, self.source.path, now_ms)
        return ForkPoint(state, self.position, self.messages)


class Forks:
    def __init__(self, streams: SeekingLog, registry: Registry) -> None:
        self._streams = streams
        self._registry = registry

    async def with_ancestors(self, path: str) -> tuple[Entry, tuple[Entry, ...]]:
        """An entry and the sources that are deleted with it, all loaded at the same moment."""
        while True:
            family: list[Entry] = []
            try:
                await self._gather_family(path, family)
                if self._is_family(family):
                    return family[0], tuple(family[1:])
            finally:
                for member in family:
                    member.pins -= 1

    async def _gather_family(self, path: str, family: list[Entry]) -> None:
        """Load a stream and its next sources, pinned: all must be in memory at once."""
        path_of = self._streams.engine.streams.path_of
        next_path: str | None = path
        while next_path is not None:
            family.append(await self._registry.get(next_path))
            family[-1].pins += 1
            source_id = _next_ancestor(family) if len(family) <= _ANCESTORS_MAX else None
            next_path = None
            if source_id is not None:
                next_path = await self._streams.in_thread(path_of, source_id)

    def _is_family(self, entries: Sequence[Entry]) -> bool:
        """Whether all are in memory, and each is the source of the one before it.

        While one was being loaded, another may have been dropped or replaced.
        """
        return all(self._registry.ready(entry.path) is entry for entry in entries) and all(
            fork.state is not None
            and source.state is not None
            and fork.state.config.source_id == source.state.config.id
            for fork, source in pairwise(entries)
        )

    # ── Where a fork begins ──────────────────────────────────────────────────────────────────

    async def measure_fork(self, command: Create) -> MeasuredFork | None:
        """Where the requested fork leaves its source; None if there is none to make.

        The source is pinned; the caller has to unpin it.
        """
        fork = command.fork
        while fork is not None:
            entry = await self._registry.get(command.path)
            if decisions.is_taken(entry.state, self._streams.clock()):
                break
            source = await self._registry.get(fork.source)
            source.pins += 1
            measured = None
            try:
                # A fork inherits only what is committed, so none of it can be rolled back.
                await self._streams.writer.reply_after(source, None)
                measured = await self._measure(source, fork)
                if measured is not None:
                    return measured
            finally:
                if measured is None:
                    source.pins -= 1
        return None

    async def _measure(self, source: Entry, fork: ForkRequest) -> MeasuredFork | None:
        """Measure a fork; None if the source became another stream meanwhile."""
        view = source.view
        try:
            decisions.require_source(source.state, source.path, self._streams.clock())
            view = source.require_view()
            return MeasuredFork(source, view, *await self._fork_position(view, fork))
        except StreamError as error:
            if source.shows(view):
                await self._streams.writer.fail_after(source, error)
        return None

    async def _fork_position(self, view: View, fork: ForkRequest) -> tuple[int, int]:
        """The position and message count where a fork leaves its source."""
        lineage, json = view.config.lineage, view.config.is_json
        # Unlike a read, a fork cannot begin past the tail.
        lineage.locate(fork.anchor(), view.tail)
        position = locate(view.config, fork.anchor(), view.tail)
        if position == view.tail:
            measure_sub_offset(None, fork.sub_offset, json=json)
            return position, view.messages
        span = lineage.spans(position, view.tail)[0]
        append = await self._streams.in_thread(
            self._streams.engine.appends.append_at, span.run, position
        )
        if append is None:
            raise UnknownOffset(lineage.token_at(position))
        # Inherited data may end inside an append of the stream that wrote it.
        stored = append.body[: span.end - append.start]
        size, count = measure_sub_offset(stored, fork.sub_offset, json=json)
        return append.start + size, append.first_message + count

    async def inherited_ids(self, measured: MeasuredFork, command: Create) -> set[str]:
        """Which ids of a fork's first body are already in what it inherits."""
        config = measured.view.config
        if not command.body or config.unique_ids is None:
            return set()
        append = Append(command.body, message_id=command.message_id, prepared=command.prepared)
        ids = ids_of(config, append)
        spans = config.lineage.spans(0, measured.position)
        return await self._streams.in_thread(self._streams.engine.appends.known_ids, spans, ids)


def _next_ancestor(family: Sequence[Entry]) -> int | None:
    """The source of the last one, if it may be deleted together with the first."""
    state = family[-1].state
    if state is None or state.deleted:
        return None
    if len(family) == 1:
        goes = state.forks == 0
    else:
        goes = state.soft_deleted and state.forks <= 1
    return state.config.source_id if goes else None


def ids_of(config: StreamConfig, command: Append) -> tuple[str, ...]:
    """The ids to look up. The decision reports what is wrong with the request."""
    try:
        return command.content(config).ids
    except StreamError:
        return ()


def states_of(entries: tuple[Entry, ...]) -> tuple[StreamState, ...]:
    return tuple(entry.state for entry in entries if entry.state is not None)


def effects_on(family: Sequence[Entry], mutations: Sequence[Mutation]) -> list[Effect]:
    """Find the entry that each mutation belongs to; a created stream belongs to its path."""
    by_id = {entry.state.config.id: entry for entry in family if entry.state is not None}
    by_path = {entry.path: entry for entry in family}
    effects: list[Effect] = []
    for mutation in mutations:
        if isinstance(mutation, Created):
            entry = by_id[mutation.config.id] = by_path[mutation.config.path]
        else:
            entry = by_id[mutation.stream_id]
        effects.append((entry, mutation))
    return effects
