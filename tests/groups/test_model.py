"""The group state machine under everything that members, clocks and crashes can do to it.

The oracle is naive: it knows each message's fate and who may hold it. What is stored goes through
the memory engine's own tables, and a crash starts again from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import count
from threading import RLock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.core.groups import decisions
from headwater.core.groups.commands import Ack, Command, Extend, Nack, Reject
from headwater.core.groups.config import GroupConfig
from headwater.core.groups.decisions import Outcome, Read
from headwater.core.groups.mutations import GroupCreated, GroupMutation, evolve, is_stored
from headwater.core.groups.state import (
    GroupRecord,
    GroupState,
    MessageRef,
    Outstanding,
    Phase,
    format_receipt,
)
from headwater.core.groups.turns import Taker
from headwater.store.memory.groups import Groups as MemoryGroups

CONSUMERS = st.sampled_from(["ann", "bob", "cem"])
KEYS = st.sampled_from(["red", "blue"])
STREAM = 1
GRACE_MS = 100  # The ack timeout, which is less than 10 s.


class GroupMachine(RuleBasedStateMachine):
    @initialize(
        max_in_flight=st.integers(1, 6),
        max_deliveries=st.sampled_from([0, 0, 2, 3]),
        ordered=st.booleans(),
    )
    def begin(self, max_in_flight: int, max_deliveries: int, ordered: bool) -> None:
        self.now_ms = 1_000
        self.tokens = count(1)
        self.ordered = ordered
        config = GroupConfig(
            max_in_flight=max_in_flight,
            max_deliveries=max_deliveries,
            ack_timeout_ms=100,
            order_by="/key" if ordered else None,
        )
        record = GroupRecord(7, STREAM, "workers", 0)
        self.state = GroupState(record, config, MessageRef(0, 0, 0))
        self.store = MemoryGroups(RLock())
        self.store.apply(GroupCreated(record, config, self.state.cursor))
        # What the oracle knows.
        self.log: list[str] = []
        self.acked: set[int] = set()
        self.dead: set[int] = set()
        self.leases: dict[int, tuple[str, str, int]] = {}
        self.not_before: dict[int, int] = {}
        self.receipts: list[str] = []
        self.absent: dict[str, int | None] = {}
        self.unread: set[int] = set()
        self.counted: dict[int, int] = {}

    # ── Things that happen ───────────────────────────────────────────────────────────────────

    @rule(keys=st.lists(KEYS, min_size=1, max_size=5))
    def publish(self, keys: list[str]) -> None:
        self.log += keys

    @rule(
        wishes=st.lists(st.tuples(CONSUMERS, st.integers(1, 4)), min_size=1, max_size=3),
        most_bytes=st.sampled_from([1, 25, 1000]),
    )
    def fetch(self, wishes: list[tuple[str, int]], most_bytes: int) -> None:
        self.look()
        takers = [Taker(consumer, most, most_bytes) for consumer, most in wishes]
        for taker in takers:
            self.come_back(taker.consumer)
        demand = min(sum(taker.most for taker in takers), self.state.room)
        due = {message.ref.number: 10 for message in self.state.due(self.now_ms, demand)}
        first = self.state.cursor.number
        numbers = range(first, min(len(self.log), first + demand - len(due)))
        refs = [MessageRef(n, n * 10, 0) for n in numbers]
        cursor = MessageRef(first + len(refs), (first + len(refs)) * 10, 0)
        keys = [self.log[ref.number] for ref in refs] if self.ordered else []
        read = Read(due, refs, [10] * len(refs), keys, cursor)
        before = repr(self.state)
        decision = decisions.decide_hand_out(
            self.state, takers, read, self.now_ms, next(self.tokens)
        )
        assert repr(self.state) == before, "a decision changes nothing"
        self.keep(decision.mutations)
        shares = decision.reply.shares
        self.check_turns(takers, shares, decision.reply.turns)
        for taker, share in zip(takers, shares, strict=True):
            for message in share:
                self.check_delivery(message)
                receipt = format_receipt(7, message)
                self.receipts.append(receipt)
                self.leases[message.ref.number] = (taker.consumer, receipt, message.until_ms)
        if sum(map(len, shares)) < demand and most_bytes == 1000:
            self.check_that_nothing_is_held_up()

    def check_turns(
        self, takers: list[Taker], shares: list[list[Outstanding]], turns: list[int]
    ) -> None:
        """Nobody with room has two messages less than another, or has to wait for two turns."""
        assert sorted(turns) == list(range(len(takers)))
        for taker, share in zip(takers, shares, strict=True):
            assert len(share) <= taker.most
            assert len(share) <= 1 or 10 * len(share) <= taker.most_bytes
            has_room = len(share) < taker.most and 10 * (len(share) + 1) <= taker.most_bytes
            if has_room:
                assert max(map(len, shares)) <= len(share) + 1
        served = [index for index in turns if shares[index]]
        assert turns == [index for index in turns if not shares[index]] + served

    def check_that_nothing_is_held_up(self) -> None:
        """There was demand and room: what was not delivered had a reason of its own."""
        settled = self.acked | self.dead
        open_messages = set(range(self.state.cursor.number)) - settled - self.leases.keys()
        for number in open_messages - self.state.given_up:
            waits = self.not_before.get(number, 0) > self.now_ms
            keys = self.log if self.ordered else []
            behind = any(
                keys[n] == keys[number] and n not in settled for n in range(number) if keys
            )
            assert waits or behind, "a message was held up by others"

    def check_delivery(self, message: Outstanding) -> None:
        number = message.ref.number
        assert number not in self.acked, "an acknowledged message was delivered again"
        assert number not in self.dead, "a message was delivered after it was given up"
        assert number not in self.leases, "a message has two holders"
        assert self.not_before.get(number, 0) <= self.now_ms, "a delay was not kept"
        if self.ordered:
            earlier = [n for n in range(number) if self.log[n] == self.log[number]]
            settled = self.acked | self.dead
            assert settled.issuperset(earlier), "a message overtook an earlier one of its key"

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        done = self.command(Ack(data.draw(self.some_receipts())))
        self.acked |= done
        for number in done:
            del self.leases[number]

    @rule(data=st.data(), requests=st.integers(1, 4))
    def acknowledge_together(self, data: st.DataObject, requests: int) -> None:
        """Several requests are decided as if one came after the other."""
        wanted = [data.draw(self.some_receipts()) for _ in range(requests)]
        alone = deepcopy(self.state)
        expected: list[Outcome] = []
        for receipts in wanted:
            decision = decisions.decide(alone, Ack(receipts), self.now_ms)
            expected.append(decision.reply)
            for mutation in decision.mutations:
                evolve(alone, mutation)
        together = decisions.decide_acks(self.state, wanted, self.now_ms)
        assert together.reply == expected
        self.keep(together.mutations)
        assert self.state.outstanding == alone.outstanding
        assert (self.state.held, self.state.keys) == (alone.held, alone.keys)
        for outcome in expected:
            for message in outcome.done:
                self.acked.add(message.ref.number)
                del self.leases[message.ref.number]

    @rule(data=st.data(), delay_ms=st.sampled_from([0, 0, 50, 500]), counts=st.booleans())
    def give_back(self, data: st.DataObject, delay_ms: int, counts: bool) -> None:
        for number in self.command(Nack(data.draw(self.some_receipts()), delay_ms, counts)):
            self.end_lease(number, counts=counts)
            self.not_before[number] = self.now_ms + delay_ms

    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        for number in self.command(Reject(data.draw(self.some_receipts()))):
            del self.leases[number]

    @rule(data=st.data(), more_ms=st.sampled_from([10, 300]))
    def extend(self, data: st.DataObject, more_ms: int) -> None:
        for number in self.command(Extend(data.draw(self.some_receipts()), more_ms)):
            consumer, receipt, _ = self.leases[number]
            self.leases[number] = (consumer, receipt, self.now_ms + more_ms)
            # Members that ask for more time get it.
            self.unread.discard(number)

    @rule(consumer=CONSUMERS)
    def leave(self, consumer: str) -> None:
        """A member closes its connection: it has a while to come back."""
        self.look()
        self.keep(decisions.decide_leave(self.state, consumer, self.now_ms))
        if self.held_by(consumer):
            self.absent[consumer] = self.now_ms + GRACE_MS

    @rule(consumer=CONSUMERS, cut_off=st.booleans())
    def send_away(self, consumer: str, cut_off: bool) -> None:
        """The server ends a member's connection, perhaps before it had read everything."""
        self.look()
        self.keep(decisions.decide_part(self.state, consumer, cut_off=cut_off))
        if self.held_by(consumer):
            self.absent[consumer] = None
            if cut_off:
                self.unread |= self.held_by(consumer)

    @rule(consumer=CONSUMERS)
    def come_back(self, consumer: str) -> None:
        """A member that is back in time has all that it had, under the same receipts."""
        self.look()
        before = {n: lease for n, lease in self.leases.items() if lease[0] == consumer}
        self.keep(decisions.decide_return(self.state, consumer))
        self.absent.pop(consumer, None)
        for receipt in (lease[1] for lease in before.values()):
            assert self.state.leased_as(receipt, self.now_ms) is not None

    @rule(ms=st.sampled_from([1, 60, 200, 700]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def bury(self) -> None:
        self.look()
        given_up = [self.state.outstanding[number] for number in sorted(self.state.given_up)]
        if given_up:
            self.keep(decisions.decide_settle(self.state, given_up))
        self.dead |= {message.ref.number for message in given_up}

    @rule()
    def crash(self) -> None:
        """Everything of the process is gone; what was stored is not."""
        (self.state,) = self.store.of_stream(STREAM)
        # Connections are not stored: after a restart, a lease is a lease.
        self.absent.clear()
        self.unread.clear()

    @precondition(lambda self: len(self.log) > 0)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.log)))
        self.keep(decisions.decide_seek(self.state, MessageRef(number, number * 10, 0)))
        self.absent.clear()
        self.unread.clear()
        self.counted.clear()
        self.acked = set(range(number))
        self.dead = set()
        self.leases.clear()
        self.not_before.clear()

    # ── Helpers ──────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """What comes first whenever messages are handed out."""
        before = repr(self.state)
        expired = decisions.decide_expire(self.state, self.now_ms)
        assert repr(self.state) == before, "a decision changes nothing"
        # Whoever holds nothing any more is not absent after this.
        absent = dict(self.absent)
        self.keep(expired)
        gone = {name for name, until in absent.items() if until and until <= self.now_ms}
        for number, (consumer, _, until_ms) in list(self.leases.items()):
            if until_ms <= self.now_ms or consumer in gone:
                sent_away = absent.get(consumer, 0) is None
                self.end_lease(number, counts=not sent_away and number not in self.unread)
        for name in gone:
            self.absent.pop(name, None)

    def end_lease(self, number: int, *, counts: bool) -> None:
        """A message comes back; deliveries that do not count bring no message to its end."""
        del self.leases[number]
        self.counted[number] = self.counted.get(number, 0) + counts
        self.unread.discard(number)
        limit = self.state.config.max_deliveries
        is_over = number in self.state.given_up
        assert is_over == (limit > 0 and self.counted[number] >= limit)

    def held_by(self, consumer: str) -> set[int]:
        return {number for number, lease in self.leases.items() if lease[0] == consumer}

    def command(self, command: Command) -> set[int]:
        before = repr(self.state)
        decision = decisions.decide(self.state, command, self.now_ms)
        assert repr(self.state) == before, "a decision changes nothing"
        # Without a look first: a lease that has ended counts for nothing, whoever noticed it.
        current = {
            lease[1]: number for number, lease in self.leases.items() if lease[2] > self.now_ms
        }
        chosen, outcome = command.receipts, decision.reply
        assert isinstance(outcome, Outcome)
        expected = {current[receipt] for receipt in chosen if receipt in current}
        assert {message.ref.number for message in outcome.done} == expected
        assert set(outcome.stale) == {receipt for receipt in chosen if receipt not in current}
        self.keep(decision.mutations)
        return expected

    def keep(self, mutations: Sequence[GroupMutation]) -> None:
        for mutation in mutations:
            evolve(self.state, mutation)
            if is_stored(mutation):
                self.store.apply(mutation)
        for consumer in list(self.absent):
            if consumer not in self.state.held:
                del self.absent[consumer]

    def some_receipts(self) -> st.SearchStrategy[list[str]]:
        known = st.sampled_from([*self.receipts[-12:], "7.0.0", "8.1.1", "nonsense"])
        return st.lists(known, min_size=1, max_size=4, unique=True)

    # ── What always holds ────────────────────────────────────────────────────────────────────

    @invariant()
    def leases_are_bounded(self) -> None:
        if not hasattr(self, "state"):
            return
        leased = [m for m in self.state.outstanding.values() if m.phase is Phase.LEASED]
        assert self.state.in_flight == len(leased) <= self.state.config.max_in_flight
        assert sum(self.state.held.values()) == len(leased)

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "state"):
            return
        open_messages = set(range(len(self.log))) - self.acked - self.dead
        ahead = set(range(self.state.cursor.number, len(self.log)))
        assert open_messages == set(self.state.outstanding) | (ahead - self.acked)

    def teardown(self) -> None:
        """After quiet, everything is acknowledged or given up, in finitely many rounds."""
        if not hasattr(self, "state"):
            return
        for _ in range(4 * len(self.log) + 8):
            self.now_ms += 10_000
            self.bury()
            self.fetch([("ann", 4)], 1000)
            for number, lease in list(self.leases.items()):
                self.keep(decisions.decide(self.state, Ack([lease[1]]), self.now_ms).mutations)
                self.acked.add(number)
                del self.leases[number]
        self.bury()
        assert self.acked | self.dead == set(range(len(self.log)))
        assert not self.state.outstanding


TestGroupMachine = pytest.mark.slow(GroupMachine.TestCase)
TestGroupMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
