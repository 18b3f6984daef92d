"""Deliveries that are not stored yet.

Most messages are settled soon after they were delivered. If storing a delivery waits a moment,
often nothing has to be stored but a cursor that has moved.

What is stored is always a state that the group could have been in: each message before the stored
cursor is settled or outstanding. So when a message is settled whose delivery is not stored, the
stored cursor moves past it, and deliveries before it that are still open are stored with it. Those
after it can wait. To a group that is loaded after a crash, deliveries that were not stored never
happened: it makes them again.

Only first deliveries wait. Any other change of a message is stored, and then everything before it
has to be.

A delivery is remembered until it is committed. If that fails, the next copy of the group takes over
what the last one had delivered, and receipts stay valid.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from headwater.core.groups.mutations import (
    GroupMutation,
    MessagesLeased,
    MessagesSettled,
)
from headwater.core.groups.state import GroupState, MessageRef, Outstanding

_NUMBER: Final = attrgetter("ref.number")


class ToStore(NamedTuple):
    """What to store, and how many of the deliveries that waited it is about."""

    mutations: Sequence[GroupMutation]
    passed: int


class Unstored:
    __slots__ = ("_cursor", "_moves", "_storing", "_waiting")

    def __init__(self) -> None:
        self._storing: deque[Outstanding] = deque()
        """By number. They are being stored, or need not be any more."""
        self._waiting: deque[Outstanding] = deque()
        """The ones that follow. What is stored knows nothing of these and of anything after."""
        self._cursor: MessageRef | None = None
        """Where the group was after the last of them; None if it was moved since."""
        self._moves = 0
        """How often it was moved without that being committed yet."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def end(self) -> int:
        """The number after the last one that waits; 0 if none does."""
        return self._waiting[-1].ref.number + 1 if self._waiting else 0

    def wait(self, leased: MessagesLeased) -> None:
        """Let first deliveries wait."""
        messages = sorted(leased.messages, key=_NUMBER)
        storing = self._storing
        if storing and not self._waiting and storing[-1].ref.number + 1 != messages[0].ref.number:
            # The group was moved, or has stored something itself.
            storing.clear()
        self._waiting.extend(messages)
        self._cursor = leased.cursor

    # ── What to store ────────────────────────────────────────────────────────────────────────

    def with_changes(self, state: GroupState, changes: Sequence[GroupMutation]) -> ToStore:
        """What to store when something changes in this state."""
        if not self._waiting or not changes:
            return ToStore(changes, 0)
        if len(changes) == 1 and isinstance(changes[0], MessagesSettled):
            return self._settled(state, changes[0])
        before = self.until(state, self.end)
        return ToStore([*before.mutations, *changes], before.passed)

    def until(self, state: GroupState, end: int) -> ToStore:
        """What to store of the deliveries before a number."""
        open_ones = [message for message in self._waiting if message.ref.number < end]
        return self._passing(state, open_ones, len(open_ones))

    def _settled(self, state: GroupState, settled: MessagesSettled) -> ToStore:
        first = self._waiting[0].ref.number
        fresh = {number for number in settled.numbers if number >= first}
        if not fresh:
            return ToStore([settled], 0)
        last, passed = max(fresh), 0
        open_ones: list[Outstanding] = []
        for message in self._waiting:
            number = message.ref.number
            if number > last:
                break
            passed += 1
            if number not in fresh:
                open_ones.append(message)
        to_store = self._passing(state, open_ones, passed)
        stored = [number for number in settled.numbers if number < first]
        if not stored:
            return to_store
        return ToStore([*to_store.mutations, MessagesSettled(state.record.id, stored)], passed)

    def _passing(self, state: GroupState, open_ones: list[Outstanding], passed: int) -> ToStore:
        """Move the stored cursor past the first ones, some of which are still open."""
        if not passed:
            return ToStore((), 0)
        # It is where the next message was taken from.
        cursor = self._waiting[passed].ref if passed < len(self._waiting) else state.cursor
        until_ms = max((message.until_ms for message in open_ones), default=0)
        return ToStore([MessagesLeased(state.record.id, until_ms, open_ones, cursor)], passed)

    # ── What became of it ────────────────────────────────────────────────────────────────────

    def store(self, passed: int) -> None:
        """The first ones do not wait any more."""
        storing, waiting = self._storing, self._waiting
        if passed == len(waiting):
            storing.extend(waiting)
            waiting.clear()
        else:
            storing.extend([waiting.popleft() for _ in range(passed)])

    def moved(self) -> None:
        """The group continues elsewhere. Whether that is stored or not, nothing leads on."""
        self._cursor = None
        self._moves += 1

    def move_committed(self) -> None:
        self._moves -= 1

    def committed(self, cursor: MessageRef) -> None:
        """What comes before this cursor is stored."""
        if self._moves:
            # It is from before the group was moved.
            return
        storing, number = self._storing, cursor.number
        while storing and storing[0].ref.number < number:
            storing.popleft()

    def recalls(self, message: Outstanding) -> bool:
        """Whether a delivery may be taken over by the next copy."""
        remembered = self._storing or self._waiting
        return bool(remembered) and remembered[0].ref.number <= message.ref.number

    def after(self, state: GroupState) -> MessagesLeased | None:
        """What was delivered after a stored state, whether or not it was settled since."""
        number = state.cursor.number
        messages = [m for m in (*self._storing, *self._waiting) if m.ref.number >= number]
        if not messages or messages[0].ref != state.cursor or self._cursor is None:
            return None
        return MessagesLeased(state.record.id, messages[-1].until_ms, messages, self._cursor)
