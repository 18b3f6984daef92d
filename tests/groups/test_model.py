"""The group state machine under everything that members, clocks and crashes can do to it.

The oracle is naive: it knows each message's fate and who may hold it. What is stored goes through
the memory engine's own tables, and a crash starts again from there.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from threading import RLock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headwater.core.groups import transitions
from headwater.core.groups.config import GroupConfig
from headwater.core.groups.state import (
    GroupCreated,
    GroupMutation,
    GroupRecord,
    GroupState,
    MessageRef,
    Outstanding,
    Phase,
    format_receipt,
)
from headwater.core.groups.transitions import Taken
from headwater.store.memory.groups import Groups

CONSUMERS = st.sampled_from(["ann", "bob", "cem"])
KEYS = st.sampled_from(["red", "blue"])
STREAM = 1


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
        self.store = Groups(RLock())
        self.store.apply(GroupCreated(record, config, self.state.cursor))
        # What the oracle knows.
        self.log: list[str] = []
        self.acked: set[int] = set()
        self.dead: set[int] = set()
        self.leases: dict[int, tuple[str, str, int]] = {}
        self.not_before: dict[int, int] = {}
        self.receipts: list[str] = []

    # ── Things that happen ───────────────────────────────────────────────────────────────────

    @rule(keys=st.lists(KEYS, min_size=1, max_size=5))
    def publish(self, keys: list[str]) -> None:
        self.log += keys

    @rule(consumer=CONSUMERS, most=st.integers(1, 4))
    def fetch(self, consumer: str, most: int) -> None:
        self.look()
        first = self.state.cursor.number
        numbers = range(first, min(len(self.log), first + most))
        refs = [MessageRef(n, n * 10, 0) for n in numbers]
        behind = MessageRef(first + len(refs), (first + len(refs)) * 10, 0)
        # Where keys matter, messages become part of the group before they are handed out.
        keyed = [Taken(ref, self.log[ref.number]) for ref in refs if self.ordered]
        fresh = deque(refs if not self.ordered else [])
        changes = transitions.admit(self.state, keyed, behind, self.now_ms)
        leased, marked = transitions.deliver(
            self.state, consumer, most, self.now_ms, next(self.tokens), fresh
        )
        rest = transitions.admit(self.state, map(Taken, fresh), behind, self.now_ms)
        self.keep([*changes, *marked, *rest])
        for message in leased:
            self.check_delivery(message)
            receipt = format_receipt(7, message)
            self.receipts.append(receipt)
            self.leases[message.ref.number] = (consumer, receipt, message.until_ms)
        if len(leased) < most and self.state.room:
            self.check_that_nothing_is_held_up()

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
        self.look()
        chosen = data.draw(self.some_receipts())
        outcome = transitions.ack(self.state, chosen)
        self.keep(outcome.changes)
        done = self.expect(chosen, outcome)
        self.acked |= done
        for number in done:
            del self.leases[number]

    @rule(data=st.data(), delay_ms=st.sampled_from([0, 0, 50, 500]), counts=st.booleans())
    def give_back(self, data: st.DataObject, delay_ms: int, counts: bool) -> None:
        self.look()
        chosen = data.draw(self.some_receipts())
        outcome = transitions.nack(self.state, chosen, delay_ms, self.now_ms, count=counts)
        self.keep(outcome.changes)
        for number in self.expect(chosen, outcome):
            del self.leases[number]
            self.not_before[number] = self.now_ms + delay_ms

    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        self.look()
        chosen = data.draw(self.some_receipts())
        outcome = transitions.reject(self.state, chosen)
        self.keep(outcome.changes)
        for number in self.expect(chosen, outcome):
            del self.leases[number]

    @rule(data=st.data(), more_ms=st.sampled_from([10, 300]))
    def extend(self, data: st.DataObject, more_ms: int) -> None:
        self.look()
        chosen = data.draw(self.some_receipts())
        outcome = transitions.extend(self.state, chosen, more_ms, self.now_ms)
        self.keep(outcome.changes)
        for number in self.expect(chosen, outcome):
            consumer, receipt, _ = self.leases[number]
            self.leases[number] = (consumer, receipt, self.now_ms + more_ms)

    @rule(consumer=CONSUMERS)
    def die(self, consumer: str) -> None:
        self.look()
        self.keep(transitions.release(self.state, consumer, self.now_ms))
        for number, lease in list(self.leases.items()):
            if lease[0] == consumer:
                del self.leases[number]

    @rule(ms=st.sampled_from([1, 60, 200, 700]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def bury(self) -> None:
        self.look()
        given_up = [self.state.outstanding[number] for number in sorted(self.state.given_up)]
        self.keep(transitions.settle(self.state, given_up))
        self.dead |= {message.ref.number for message in given_up}

    @rule()
    def crash(self) -> None:
        """Everything of the process is gone; what was stored is not."""
        (self.state,) = self.store.of_stream(STREAM)

    @precondition(lambda self: len(self.log) > 0)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.log)))
        self.keep(transitions.seek(self.state, MessageRef(number, number * 10, 0)))
        self.acked = set(range(number))
        self.dead = set()
        self.leases.clear()
        self.not_before.clear()

    # ── Helpers ──────────────────────────────────────────────────────────────────────────────

    def look(self) -> None:
        """What comes first whenever a group is looked at."""
        self.keep(transitions.expire(self.state, self.now_ms))
        for number, lease in list(self.leases.items()):
            if lease[2] <= self.now_ms:
                del self.leases[number]

    def keep(self, changes: list[GroupMutation]) -> None:
        for change in changes:
            self.store.apply(change)

    def some_receipts(self) -> st.SearchStrategy[list[str]]:
        known = st.sampled_from([*self.receipts[-12:], "7.0.0", "8.1.1", "nonsense"])
        return st.lists(known, min_size=1, max_size=4, unique=True)

    def expect(self, chosen: list[str], outcome: transitions.Outcome) -> set[int]:
        """Exactly the receipts of current leases count; all others change nothing."""
        current = {lease[1]: number for number, lease in self.leases.items()}
        expected = {current[receipt] for receipt in chosen if receipt in current}
        assert {message.ref.number for message in outcome.done} == expected
        assert set(outcome.stale) == {receipt for receipt in chosen if receipt not in current}
        return expected

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
            self.fetch("ann", 4)
            for number, lease in list(self.leases.items()):
                self.keep(transitions.ack(self.state, [lease[1]]).changes)
                self.acked.add(number)
                del self.leases[number]
        self.bury()
        assert self.acked | self.dead == set(range(len(self.log)))
        assert not self.state.outstanding


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
