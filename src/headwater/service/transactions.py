"""Transactions: acknowledge and publish, over any number of streams, all or nothing.

Everything is decided in one go and committed as one. Each publish is decided on top of those before
it with an overlay over the state of its stream, so a refusal leaves no trace of the others, and no
state is copied, however many producers a stream has.

The stream decides what a duplicate id means (`fail` aborts the transaction, `succeed` leaves the
message out), unless the publish does.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from typing import Final

import msgspec

from headwater.core import decisions
from headwater.core.decisions import Append, AppendReply
from headwater.core.errors import PublishRefused, StaleReceipts, StreamError
from headwater.core.groups.commands import Ack
from headwater.core.groups.decisions import decide
from headwater.core.groups.mutations import GroupMutation
from headwater.core.stream import Appended, StreamState, evolve
from headwater.core.unique_ids import Mode
from headwater.service.batches import Effect
from headwater.service.entries import Entry
from headwater.service.groups.group import Group
from headwater.service.groups.operations import Groups
from headwater.service.log import Log
from headwater.service.replies import Reply

PUBLISHES_MAX: Final = 1_000


class Publish(msgspec.Struct, frozen=True):
    stream: str
    command: Append
    on_duplicate: Mode | None = None


class Acknowledge(msgspec.Struct, frozen=True):
    stream: str
    group: str
    receipts: Sequence[str]


class Transactions:
    def __init__(self, streams: Log, groups: Groups) -> None:
        self._streams = streams
        self._groups = groups

    async def run(
        self, acknowledge: Acknowledge | None, publishes: Sequence[Publish]
    ) -> list[AppendReply]:
        paths = sorted({publish.stream for publish in publishes})
        while True:
            async with self._ids_locked(paths):
                entries = {path: await self._streams.entry(path) for path in paths}
                states = {path: entry.state for path, entry in entries.items()}
                known = await self._known_ids(publishes)
                for publish in publishes:
                    await self._streams.with_producer(publish.stream, publish.command)
                group = None
                if acknowledge is not None:
                    group = await self._groups.get(acknowledge.stream, acknowledge.group)
                # No stream may have been dropped or replaced since the look-ups.
                if any(self._streams.ready(path) is not entry for path, entry in entries.items()):
                    continue
                if any(entry.state is not states[path] for path, entry in entries.items()):
                    continue
                try:
                    future = self._decide(group, acknowledge, publishes, entries, known)
                except StreamError:
                    await self._commits_of(*entries.values(), group)
                    raise
            return await future

    async def _commits_of(self, *owners: Entry | Group | None) -> None:
        """Wait until everything that a refusal depends on is committed."""
        for owner in owners:
            if owner is not None:
                await self._streams.writer.reply_after(owner, None)

    @asynccontextmanager
    async def _ids_locked(self, paths: Sequence[str]) -> AsyncIterator[None]:
        """Keep others from looking up ids on the same streams; always in the same order.

        The streams stay in memory meanwhile, however many there are.
        """
        async with AsyncExitStack() as stack:
            for path in paths:
                entry = await self._streams.entry(path)
                stack.enter_context(entry.pinned())
                if entry.state is not None and entry.state.config.unique_ids is not None:
                    await stack.enter_async_context(entry.lock_ids())
            yield

    async def _known_ids(self, publishes: Sequence[Publish]) -> dict[str, set[str]]:
        """By stream, which of the ids to be published it already has."""
        wanted: dict[str, list[str]] = {}
        for index, publish in enumerate(publishes):
            state = (await self._streams.entry(publish.stream)).state
            if state is None or state.config.unique_ids is None:
                continue
            try:
                content = publish.command.content(state.config)
            except StreamError as error:
                raise PublishRefused(index, error) from None
            wanted.setdefault(publish.stream, []).extend(content.ids)
        known: dict[str, set[str]] = {}
        for path, ids in wanted.items():
            entry = await self._streams.entry(path)
            if entry.state is None:
                continue
            # Before the look-up, because a commit may move ids from here to the disk meanwhile.
            known[path] = entry.fresh_ids.intersection(ids)
            spans = entry.state.config.lineage.spans(0, entry.state.tail)
            known[path] |= await self._streams.in_thread(
                self._streams.engine.appends.known_ids, spans, ids
            )
        return known

    def _decide(
        self,
        group: Group | None,
        acknowledge: Acknowledge | None,
        publishes: Sequence[Publish],
        entries: dict[str, Entry],
        known: dict[str, set[str]],
    ) -> Reply[list[AppendReply]]:
        now_ms = self._streams.clock()
        effects: list[Effect] = []
        replies: list[AppendReply] = []
        states: dict[str, StreamState] = {}
        for index, publish in enumerate(publishes):
            entry = entries[publish.stream]
            try:
                if publish.stream not in states:
                    state = decisions.require(entry.state, publish.stream, now_ms)
                    states[publish.stream] = _overlay(state)
                decision = decisions.decide_append(
                    states[publish.stream],
                    publish.command,
                    now_ms,
                    known.setdefault(publish.stream, set()).__contains__,
                    publish.on_duplicate,
                    self._streams.limits.messages_per_append_max,
                    self._streams.producer_limits,
                )
            except StreamError as error:
                raise PublishRefused(index, error) from None
            self._streams.touch(entry, now_ms)
            replies.append(decision.reply)
            for mutation in decision.mutations:
                evolve(states[publish.stream], mutation)
                effects.append((entry, mutation))
                if isinstance(mutation, Appended):
                    known[publish.stream].update(message_id for message_id, _ in mutation.ids)
        size = sum(len(publish.command.body) for publish in publishes)
        if group is None or acknowledge is None:
            future = self._streams.writer.submit(effects, replies, size)
        else:
            acknowledged = _acknowledged(group, acknowledge, now_ms)
            future = group.submit(acknowledged, replies, effects, size)
            group.figures.settled["acked"] += len(acknowledge.receipts)
            group.kick()
        for publish in publishes:
            self._streams.admit_followers(entries[publish.stream], publish.command)
        return future


def _acknowledged(group: Group, acknowledge: Acknowledge, now_ms: int) -> Sequence[GroupMutation]:
    decision = decide(group.state, Ack(list(acknowledge.receipts)), now_ms)
    if decision.reply.stale:
        raise StaleReceipts(decision.reply.stale)
    return decision.mutations


def _overlay(state: StreamState) -> StreamState:
    """A state that can be changed without changing the original."""
    own = copy(state)
    own.producers = ChainMap({}, state.producers)
    return own
