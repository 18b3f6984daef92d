"""The creating part of the log: make a stream, or find that it exists.

A fork takes several look-ups, during which anything may happen to its source; the decision uses
only what was true of all of them at the same moment. In a cluster, a new stream belongs to the
shard of its path, or to that of the stream it is made for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from headwater.core import decisions
from headwater.core.content import Prepared
from headwater.core.decisions import Create, CreateReply, expected_config
from headwater.core.errors import StreamError
from headwater.service.appending import LARGE_BYTES, AppendingLog
from headwater.service.entries import Entry
from headwater.service.forks import Forks, MeasuredFork, effects_on, states_of
from headwater.store.engine.membership import IdKind, Membership


class _Scene(NamedTuple):
    """What a creation finds: the entry of its path, what it deletes, and a fork's source."""

    entry: Entry
    ancestors: tuple[Entry, ...]
    fork: MeasuredFork | None
    inherited_ids: set[str]


class CreatingLog(AppendingLog):
    membership: Membership | None
    _forks: Forks
    _next_stream_id: int

    async def create(self, command: Create, beside: Entry | None = None) -> CreateReply:
        """Create a stream, or find that it exists. A stream made for another one must have the same
        owner, so it goes into the same shard.
        """
        new_id = await self.new_id("streams")
        if len(command.body) >= LARGE_BYTES:
            command = await self._prepare_create(command)
        entry, ancestors, fork, inherited_ids = await self._look_around(command)
        family, now_ms = [entry, *ancestors], self.clock()
        if self.membership is not None and not decisions.is_taken(entry.state, now_ms):
            beside = fork.source if fork is not None else beside
            command = self._placed(self.membership, command, entry, beside)
        try:
            fork_point = None
            if fork is not None:
                family.append(fork.source)
                fork_point = fork.point(now_ms)
            decision = decisions.decide_create(
                entry.state,
                states_of(ancestors),
                command,
                fork_point,
                new_id or self._next_stream_id,
                now_ms,
                inherited_ids.__contains__,
                self.limits.messages_per_append_max,
            )
        except StreamError as error:
            if fork is not None:
                await self.writer.reply_after(fork.source, None)
            await self.writer.fail_after(entry, error)
            raise
        if not decision.mutations:
            self.touch(entry, now_ms)
            return await self.writer.reply_after(entry, decision.reply)
        self._next_stream_id += 1
        effects = effects_on(family, decision.mutations)
        return await self.writer.submit(effects, decision.reply, len(command.body))

    async def _look_around(self, command: Create) -> _Scene:
        inherited_ids: set[str] = set()
        while True:
            fork = await self._forks.measure_fork(command)
            try:
                if fork is not None:
                    inherited_ids = await self._forks.inherited_ids(fork, command)
                entry, ancestors = await self._forks.with_ancestors(command.path)
            finally:
                if fork is not None:
                    fork.source.pins -= 1
            if fork is not None:
                is_current = self._registry.ready(fork.source.path) is fork.source
                is_current = is_current and fork.is_current
            else:
                is_current = command.fork is None or decisions.is_taken(entry.state, self.clock())
            if is_current:
                return _Scene(entry, ancestors, fork, inherited_ids)

    async def new_id(self, kind: IdKind) -> int | None:
        """The next id if the engine is shared: only the engine knows it then."""
        if self.membership is None:
            return None
        return await self.in_thread(self.membership.new_id, kind)

    def _placed(
        self, membership: Membership, command: Create, entry: Entry, beside: Entry | None
    ) -> Create:
        """Find the shard of a new stream, which this node must own."""
        if beside is None and entry.state is not None and not entry.state.deleted:
            # It has expired, and is deleted in the same commit.
            beside = entry
        if beside is not None and beside.state is not None:
            entry.shard = beside.shard
            membership.demand(entry.shard)
            return replace(command, beside=beside.state.config.id)
        entry.shard = membership.home(command.path)
        membership.demand(entry.shard)
        return replace(command, shard=entry.shard)

    async def _prepare_create(self, command: Create) -> Create:
        """Parse a large first body off the loop; a fork's is read as its source's would be."""
        if decisions.is_taken((await self._registry.get(command.path)).state, self.clock()):
            return command
        config = expected_config(command)
        if command.fork is not None:
            source = (await self._registry.get(command.fork.source)).state
            config = source.config if source is not None else config
        if not config.is_json:
            return command
        most = self.limits.messages_per_append_max
        prepared = await self.in_thread(
            Prepared.of, config, command.body, command.message_id, most, True
        )
        return replace(command, prepared=prepared)
