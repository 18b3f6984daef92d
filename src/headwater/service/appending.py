"""Appending: decided at once if everything needed is in memory."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

import msgspec

from headwater.core import decisions
from headwater.core.content import IsKnown, Prepared, nothing_known
from headwater.core.decisions import Append, AppendReply
from headwater.core.errors import SequenceGap, StreamError
from headwater.core.limits import KIB
from headwater.core.producers import ProducerLimits, ProducerStamp, worth_waiting
from headwater.core.stream import StreamConfig
from headwater.service.entries import Entry
from headwater.service.forks import ids_of
from headwater.service.producers import Forgetting
from headwater.service.reordering import WaitingRoom
from headwater.service.replies import Reply, Waiter
from headwater.service.seeking import SeekingLog

# JSON bodies of at least this size are parsed on a thread.
LARGE_BYTES: Final = 128 * KIB


class AppendingLog(SeekingLog):
    producer_limits: ProducerLimits
    forgetting: Forgetting
    _waiting_room: WaitingRoom

    def append_plain(
        self,
        path: str,
        content_type: str | None,
        body: bytes,
        waiter: Waiter,
        stamp: ProducerStamp | None = None,
    ) -> bool:
        """The usual append in the fewest steps: the waiter is settled with what was committed.

        False if nothing was done, because `append` has to decide.
        """
        entry = self._registry.ready(path)
        state = None if entry is None else entry.state
        if entry is None or state is None or len(body) >= LARGE_BYTES:
            return False
        if stamp is not None and entry.waiting:
            # Somebody waits for this one, perhaps.
            return False
        append = decisions.plain_append(
            state, content_type, body, self.clock(), stamp, self.producer_limits
        )
        return append is not None and self.writer.submit_append(entry, append, waiter)

    def append(self, path: str, command: Append) -> Awaitable[AppendReply]:
        """Append or close. Decided at once if the stream is in memory."""
        entry = self._registry.ready(path)
        return self._append_cold(path, command) if entry is None else self.append_to(entry, command)

    def append_to(self, entry: Entry, command: Append) -> Awaitable[AppendReply]:
        """Append to a stream in memory: returns a `Reply` if nothing else has to be loaded."""
        if (
            (command.producer is not None and self._needs_producer(entry, command))
            or _checks_ids(entry)
            or (len(command.body) >= LARGE_BYTES and _is_json(entry))
        ):
            return self._append_cold(entry.path, command)
        return self._append(entry, command)

    def _needs_producer(self, entry: Entry, command: Append) -> bool:
        return self._lacks_producer(entry, command) or self._is_crowded(entry, command)

    def _lacks_producer(self, entry: Entry, command: Append) -> bool:
        return (
            command.producer is not None
            and not entry.producers_complete
            and entry.state is not None
            and command.producer.id not in entry.state.producers
        )

    def _is_crowded(self, entry: Entry, command: Append) -> bool:
        """Whether the stream has as many producers as it may, and this would be one more."""
        state = entry.state
        return (
            command.producer is not None
            and state is not None
            and state.producer_count >= self.producer_limits.count_max
            and command.producer.id not in state.producers
        )

    async def with_producer(self, path: str, command: Append) -> Entry:
        """The stream's entry, with the command's producer loaded from the engine into its state."""
        entry = await self._registry.get(path)
        while self._lacks_producer(entry, command):
            assert entry.state is not None
            assert command.producer is not None
            state, producer_id = entry.state, command.producer.id
            known = await self.in_thread(self.engine.streams.producer, state.config.id, producer_id)
            entry = await self._registry.get(path)
            if entry.state is state and producer_id not in state.producers:
                if known is None or producer_id in entry.in_flight:
                    break
                state.producers[producer_id] = known
        if self._is_crowded(entry, command):
            await self.forgetting.make_room(entry)
            entry = await self._registry.get(path)
        return entry

    async def _append_cold(
        self, path: str, command: Append, *, may_wait: bool = True
    ) -> AppendReply:
        entry = await self.with_producer(path, command)
        if len(command.body) >= LARGE_BYTES and command.prepared is None and _is_json(entry):
            assert entry.state is not None
            command = await self._prepare_append(entry.state.config, command)
            entry = await self.with_producer(path, command)
        if _checks_ids(entry):
            return await self._append_unique(entry, command, may_wait=may_wait)
        return await self._append(entry, command, may_wait=may_wait)

    async def _prepare_append(self, config: StreamConfig, command: Append) -> Append:
        """Parse a large JSON body off the loop."""
        most = self.limits.messages_per_append_max
        prepared = await self.in_thread(Prepared.of, config, command.body, command.message_id, most)
        return msgspec.structs.replace(command, prepared=prepared)

    async def _append_unique(self, entry: Entry, command: Append, *, may_wait: bool) -> AppendReply:
        """Append to a stream that checks ids, which are on disk.

        Look-ups for one stream run one after the other. Uncommitted ids are in `fresh_ids`, which
        is also checked before the look-up because a commit may move ids from there to the disk
        meanwhile.
        """
        async with entry.lock_ids():
            while True:
                # A commit may have failed meanwhile, and the state been dropped.
                entry = await self.with_producer(entry.path, command)
                state = entry.state
                if state is None:
                    return await self._append(entry, command)
                ids = ids_of(state.config, command)
                fresh = entry.fresh_ids.intersection(ids)
                spans = state.config.lineage.spans(0, state.tail)
                stored = await self.in_thread(self.engine.appends.known_ids, spans, ids)
                if self._registry.ready(entry.path) is entry and entry.state is state:
                    break
            taken = stored | fresh | entry.fresh_ids.intersection(ids)
            future = self._append(entry, command, may_wait=may_wait, is_known=taken.__contains__)
        return await future

    def _append(
        self,
        entry: Entry,
        command: Append,
        *,
        may_wait: bool = True,
        is_known: IsKnown = nothing_known,
    ) -> Reply[AppendReply]:
        now_ms = self.clock()
        try:
            state = decisions.require(entry.state, entry.path, now_ms)
            decision = decisions.decide_append(
                state,
                command,
                now_ms,
                is_known,
                None,
                self.limits.messages_per_append_max,
                self.producer_limits,
            )
        except SequenceGap as gap:
            worthwhile = may_wait and worth_waiting(gap, self.limits.producer_window)
            if worthwhile and self._waiting_room.has_room(entry):
                return self._waiting_room.admit(entry, command)
            return self.writer.fail_after(entry, gap)
        except StreamError as error:
            return self.writer.fail_after(entry, error)
        if not decision.mutations:
            self.touch(entry, now_ms)
            return self.writer.reply_after(entry, decision.reply)
        effects = [(entry, mutation) for mutation in decision.mutations]
        try:
            submit = self.writer.submit_relaxed if decision.reply.relaxed else self.writer.submit
            reply = submit(effects, decision.reply, len(command.body))
        except StreamError as error:
            return Reply(error)
        if state.config.lifetime.ttl_s is not None:
            self.touch(entry, now_ms)
        self.admit_followers(entry, command)
        return reply

    def admit_followers(self, entry: Entry, command: Append) -> None:
        """A request was accepted: the one of the same producer that overtook it may continue."""
        if entry.waiting and command.producer is not None:
            self._waiting_room.accepted(entry, command.producer)

    def _append_again(self, entry: Entry, command: Append) -> Awaitable[AppendReply]:
        """Retry after waiting for overtaken requests. It waits only once."""
        simple = not _checks_ids(entry) and not self._lacks_producer(entry, command)
        if simple and self._registry.ready(entry.path) is entry:
            return self._append(entry, command, may_wait=False)
        return self._append_cold(entry.path, command, may_wait=False)


def _checks_ids(entry: Entry) -> bool:
    return entry.state is not None and entry.state.config.unique_ids is not None


def _is_json(entry: Entry) -> bool:
    return entry.state is not None and entry.state.config.is_json
