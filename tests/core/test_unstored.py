"""Deliveries that wait before they are stored.

At any moment, the stored state is one that the group could have been in, and nothing that was
settled comes back.
"""

from collections.abc import Sequence
from threading import RLock

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headwater.core.groups.config import GroupConfig
from headwater.core.groups.mutations import (
    GroupAdvanced,
    GroupCreated,
    GroupMutation,
    MessagesLeased,
    MessagesMarked,
    MessagesSettled,
    evolve,
)
from headwater.core.groups.state import LEASED, GroupRecord, GroupState, MessageRef, Outstanding
from headwater.core.groups.unstored import Unstored
from headwater.store.memory.groups import Groups

RECORD = GroupRecord(1, 1, "g", 0)
BYTES = 10


def ref(number: int) -> MessageRef:
    return MessageRef(number, number * BYTES, 0)


class Copy:
    """A group with its engine, and commits that may fail."""

    def __init__(self) -> None:
        self.engine = Groups(RLock())
        self.engine.apply(GroupCreated(RECORD, GroupConfig(), ref(0)))
        self.state = self.loaded()
        self.unstored = Unstored()
        self.now_ms = 0
        self.batches: list[Sequence[GroupMutation]] = []
        """Handed on and not committed."""

    def loaded(self) -> GroupState:
        (state,) = self.engine.of_stream(1)
        return state

    def deliver(self, count: int) -> None:
        self.now_ms += 1
        first = self.state.cursor.number
        # Dealt to members in turn, so they are not in order.
        numbers = [*range(first, first + count, 2), *range(first + 1, first + count, 2)]
        messages = [Outstanding(ref(n), LEASED, self.now_ms, 1, n, "ann") for n in numbers]
        leased = MessagesLeased(1, self.now_ms, messages, ref(first + count))
        self.unstored.wait(leased)
        evolve(self.state, leased)

    def change(self, mutations: Sequence[GroupMutation]) -> None:
        self._store(*self.unstored.with_changes(self.state, mutations))
        for mutation in mutations:
            evolve(self.state, mutation)

    def store_until(self, number: int) -> None:
        self._store(*self.unstored.until(self.state, number))

    def _store(self, mutations: Sequence[GroupMutation], passed: int) -> None:
        self.batches.append(mutations)
        for mutation in mutations:
            if isinstance(mutation, GroupAdvanced) and mutation.reset:
                self.unstored.moved()
        self.unstored.store(passed)

    def commit(self, count: int | None = None) -> None:
        for batch in self.batches[:count]:
            for mutation in batch:
                self.engine.apply(mutation)
            for mutation in batch:
                if isinstance(mutation, MessagesLeased) and mutation.cursor is not None:
                    self.unstored.committed(mutation.cursor)
                elif isinstance(mutation, GroupAdvanced) and mutation.reset:
                    self.unstored.move_committed()
        del self.batches[:count]

    def check(self) -> None:
        """The stored state, as it will be when everything handed on is committed."""
        self.commit()
        stored, live = self.loaded(), self.state
        assert stored.cursor.number <= live.cursor.number
        before = {n: m for n, m in live.outstanding.items() if n < stored.cursor.number}
        assert stored.outstanding == before
        after = range(stored.cursor.number, live.cursor.number)
        assert all(live.outstanding[number].deliveries == 1 for number in after)
        assert len(self.unstored) == len(after)


CHOICES = st.lists(
    st.tuples(st.sampled_from(["deliver", "settle", "extend", "store"]), st.integers(0, 2**16)),
    max_size=40,
)


def take_step(copy: Copy, what: str, choice: int) -> None:
    numbers = sorted(copy.state.outstanding)
    some = [number for at, number in enumerate(numbers) if choice >> (at % 16) & 1]
    if what == "deliver":
        copy.deliver(1 + choice % 7)
    elif what == "settle" and some:
        copy.change([MessagesSettled(1, some)])
    elif what == "extend" and some:
        held = [replace(copy.state.outstanding[n], until_ms=10**6 + choice) for n in some]
        copy.change([MessagesMarked(1, tuple(held))])
    elif what == "store":
        copy.store_until(choice % (copy.unstored.end + 1))


@given(CHOICES)
def test_what_is_stored_is_a_state_that_the_group_could_have_been_in(
    choices: list[tuple[str, int]],
) -> None:
    copy = Copy()
    for what, choice in choices:
        take_step(copy, what, choice)
        copy.check()


@given(CHOICES, st.integers(0, 100))
def test_after_a_failed_commit_deliveries_are_as_they_were_made(
    choices: list[tuple[str, int]], percent_committed: int
) -> None:
    copy = Copy()
    delivered: dict[int, Outstanding] = {}
    for what, choice in choices:
        if what != "extend":
            take_step(copy, what, choice)
            delivered |= copy.state.outstanding
    copy.commit(len(copy.batches) * percent_committed // 100)
    again = copy.loaded()
    kept = {n: m for n, m in delivered.items() if n >= again.cursor.number} | again.outstanding
    leased = copy.unstored.after(again)
    if leased is not None:
        evolve(again, MessagesMarked(1, tuple(leased.messages)))
        assert leased.cursor is not None
        evolve(again, GroupAdvanced(1, leased.cursor))
    assert again.outstanding == kept
    assert again.cursor == copy.state.cursor


def test_settled_at_once_leaves_only_a_cursor() -> None:
    copy = Copy()
    copy.deliver(3)
    copy.change([MessagesSettled(1, [0, 1, 2])])
    assert copy.batches == [[MessagesLeased(1, 0, [], ref(3))]]


def test_what_was_skipped_is_stored_and_what_follows_waits() -> None:
    copy = Copy()
    copy.deliver(4)
    copy.change([MessagesSettled(1, [1])])
    ((stored,),) = copy.batches
    assert isinstance(stored, MessagesLeased)
    assert [message.ref.number for message in stored.messages] == [0]
    assert stored.cursor == ref(2)
    copy.change([MessagesSettled(1, [0, 3])])
    copy.check()
    assert sorted(copy.loaded().outstanding) == [2]


def test_a_group_that_was_moved_forgets_what_led_elsewhere() -> None:
    copy = Copy()
    copy.deliver(4)
    copy.change([GroupAdvanced(1, ref(0), reset=True)])
    copy.deliver(2)
    leased = copy.unstored.after(copy.loaded())
    assert leased is not None
    assert [message.ref.number for message in leased.messages] == [0, 1]
