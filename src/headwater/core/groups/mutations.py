"""The mutations of a group: engines store them, and `evolve` folds them into the state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

import msgspec

from headwater.core.groups.config import GroupConfig
from headwater.core.groups.state import (
    GIVEN_UP,
    LEASED,
    WAITING,
    GroupRecord,
    GroupState,
    MessageRef,
    Outstanding,
)

_STALE_NUMBERS_MAX: Final = 1_000


class GroupCreated(msgspec.Struct, frozen=True):
    record: GroupRecord
    config: GroupConfig
    cursor: MessageRef


class GroupChanged(msgspec.Struct, frozen=True):
    """New settings, paused or resumed."""

    group_id: int
    config: GroupConfig
    paused: bool


class GroupAdvanced(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The cursor moved; with `reset`, everything outstanding is forgotten."""

    group_id: int
    cursor: MessageRef
    reset: bool = False


class MessagesLeased(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Lease free messages to members, all until the same time. The hot path.

    Everything that is handed out together is one mutation, however many members share it: most of
    what a mutation costs does not depend on its size.
    """

    group_id: int
    until_ms: int
    messages: list[Outstanding]
    cursor: MessageRef | None = None
    """The new cursor, if the messages were taken from there: none of them was outstanding."""


class MessagesMarked(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The current state of outstanding messages."""

    group_id: int
    messages: tuple[Outstanding, ...]


class MessagesSettled(msgspec.Struct, frozen=True, tag=True, array_like=True):
    group_id: int
    numbers: Sequence[int]


class GroupDeleted(msgspec.Struct, frozen=True):
    group_id: int


class MemberAbsent(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A member's connection ended. Not stored: after a restart, no member has one."""

    group_id: int
    consumer: str
    until_ms: int | None
    unread: frozenset[int] = frozenset()
    """Messages it may not have read."""


class MemberReturned(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A member is back, or its grace period is over. Not stored."""

    group_id: int
    consumer: str


GroupMutation = (
    GroupCreated
    | GroupChanged
    | GroupAdvanced
    | MessagesLeased
    | MessagesMarked
    | MessagesSettled
    | GroupDeleted
    | MemberAbsent
    | MemberReturned
)


def is_stored(mutation: GroupMutation) -> bool:
    """Whether engines store a mutation."""
    return not isinstance(mutation, MemberAbsent | MemberReturned)


def restore(state: GroupState, messages: Sequence[Outstanding]) -> None:
    """Start from the stored messages."""
    by_number = sorted(messages, key=lambda message: message.ref.number)
    evolve(state, MessagesMarked(state.record.id, tuple(by_number)))


def evolve(state: GroupState, mutation: GroupMutation) -> None:
    """Fold one mutation into the state it belongs to."""
    fold = _FOLDS.get(type(mutation))
    # The holder of a state creates and removes it: there is nothing to fold for that.
    if fold is not None:
        fold(state, mutation)


def _lease(state: GroupState, leased: MessagesLeased) -> None:
    messages = leased.messages
    numbers = [message.ref.number for message in messages]
    if state.config.order_by is not None:
        for message in messages:
            if message.key is not None and message.ref.number not in state.outstanding:
                state.keys.setdefault(message.key, deque()).append(message.ref.number)
    count, held = len(numbers), state.held
    state.outstanding.update(zip(numbers, messages, strict=True))
    for message in messages:
        consumer = message.consumer or ""
        held[consumer] = held.get(consumer, 0) + 1
    state.in_flight += count
    numbers.reverse()
    heappush(state.leases, (leased.until_ms, numbers))
    state.lease_numbers += count
    if leased.cursor is not None:
        state.cursor = leased.cursor
    if state.waiting:
        _drop_stale(state)


def _mark_all(state: GroupState, marked: MessagesMarked) -> None:
    for message in marked.messages:
        _mark(state, message)
    _drop_stale(state)


def _mark(state: GroupState, message: Outstanding) -> None:
    """Add or replace a message."""
    number, phase = message.ref.number, message.phase
    before = state.outstanding.get(number)
    if before is message:
        return
    if before is None:
        if message.key is not None:
            state.keys.setdefault(message.key, deque()).append(number)
    elif before.phase is LEASED:
        _uncount(state, [before.consumer or ""])
        state.unread.discard(number)
    state.outstanding[number] = message
    if phase is LEASED:
        state.in_flight += 1
        consumer = message.consumer or ""
        state.held[consumer] = state.held.get(consumer, 0) + 1
        heappush(state.leases, (message.until_ms, [number]))
        state.lease_numbers += 1
    elif phase is WAITING:
        heappush(state.waiting, (message.until_ms, number))
    elif phase is GIVEN_UP:
        state.given_up.add(number)


def _settle(state: GroupState, settled: MessagesSettled) -> None:
    pop, keys = state.outstanding.pop, state.keys
    consumers: list[str] = []
    for number in settled.numbers:
        message = pop(number)
        if message.phase is LEASED:
            consumers.append(message.consumer or "")
        elif message.phase is GIVEN_UP:
            state.given_up.discard(number)
        if keys and message.key is not None:
            queue = keys[message.key]
            queue.remove(number)
            if not queue:
                del keys[message.key]
    _uncount(state, consumers)
    if state.unread:
        state.unread.difference_update(settled.numbers)
    _drop_stale(state)


def _uncount(state: GroupState, consumers: Sequence[str]) -> None:
    """Each of these consumers holds one message less."""
    held = state.held
    state.in_flight -= len(consumers)
    for consumer in consumers:
        left = held[consumer] - 1
        if left:
            held[consumer] = left
        else:
            del held[consumer]
            # Nothing is left to come back for.
            state.absent.pop(consumer, None)


def _advance(state: GroupState, advanced: GroupAdvanced) -> None:
    state.cursor = advanced.cursor
    if advanced.reset:
        state.in_flight = state.lease_numbers = 0
        for index in (state.outstanding, state.held, state.keys, state.absent):
            index.clear()
        for numbers in (state.given_up, state.unread, state.waiting, state.leases):
            numbers.clear()


def _change(state: GroupState, changed: GroupChanged) -> None:
    state.config, state.paused = changed.config, changed.paused


def _miss(state: GroupState, member: MemberAbsent) -> None:
    state.absent[member.consumer] = member.until_ms
    state.unread |= member.unread


def _welcome(state: GroupState, member: MemberReturned) -> None:
    state.absent.pop(member.consumer, None)


_FOLDS: Final[Mapping[type, Callable[[GroupState, Any], None]]] = {
    GroupChanged: _change,
    GroupAdvanced: _advance,
    MessagesLeased: _lease,
    MessagesMarked: _mark_all,
    MessagesSettled: _settle,
    MemberAbsent: _miss,
    MemberReturned: _welcome,
}


def _drop_stale(state: GroupState) -> None:
    """Remove stale entries from the top of the heaps, and rebuild heaps with too many of them."""
    outstanding, waiting, leases = state.outstanding, state.waiting, state.leases
    while waiting:
        until_ms, number = waiting[0]
        message = outstanding.get(number)
        if message and message.phase is WAITING and message.until_ms == until_ms:
            break
        heappop(waiting)
    while leases:
        until_ms, numbers = leases[0]
        while numbers:
            message = outstanding.get(numbers[-1])
            if message and message.phase is LEASED and message.until_ms == until_ms:
                break
            numbers.pop()
            state.lease_numbers -= 1
        if numbers:
            break
        heappop(leases)
    if state.lease_numbers > 2 * len(outstanding) + _STALE_NUMBERS_MAX:
        _rebuild_leases(state)


def _rebuild_leases(state: GroupState) -> None:
    """Rebuild, so that one long lease does not keep all entries that ended before it."""
    by_moment: dict[int, list[int]] = {}
    for number, message in state.outstanding.items():
        if message.phase is LEASED:
            by_moment.setdefault(message.until_ms, []).append(number)
    state.leases = list(by_moment.items())
    heapify(state.leases)
    state.lease_numbers = state.in_flight
