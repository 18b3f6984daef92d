"""The state of a group, what is stored of it, and how mutations change it.

`GroupState` changes by mutations alone: `evolve` folds one into the state, and the engines store
the very same ones. The heaps in it are indexes over what is outstanding. An entry that is out of
date is harmless, and goes when it comes up or when there are too many of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

import msgspec

from headwater.core.groups.config import GroupConfig

_STALE_NUMBERS_MAX: Final = 1_000


class MessageRef(NamedTuple):
    """Where a message is: its number in the stream, the append it came in, its place in that."""

    number: int
    start: int
    place: int


class Phase(IntEnum):
    LEASED = 0
    WAITING = 1
    BLOCKED = 2
    GIVEN_UP = 3


# Looking up a member of an enumeration costs more than most of what is done to a message here.
LEASED, WAITING, BLOCKED, GIVEN_UP = Phase


class Outstanding(msgspec.Struct, frozen=True):
    """A message that was taken from the stream and is not settled."""

    ref: MessageRef
    phase: Phase
    until_ms: int = 0
    """Leased: when the lease ends. Waiting: from when on it may be delivered."""
    deliveries: int = 0
    token: int = 0
    """Names the last delivery, together with those that went out with it. Random, so that no
    receipt ever fits another delivery."""
    consumer: str | None = None
    key: str | None = None


RECEIPT: Final = b"%x.%x.%x"
"""A receipt: the group's id, the message's number, the token of the delivery."""


def format_receipt(group_id: int, message: Outstanding) -> str:
    return (RECEIPT % (group_id, message.ref.number, message.token)).decode()


class GroupRecord(NamedTuple):
    """What is fixed about a group."""

    id: int
    stream_id: int
    name: str
    created_at_ms: int


@dataclass(slots=True)
class GroupState:
    record: GroupRecord
    config: GroupConfig
    cursor: MessageRef
    paused: bool = False
    outstanding: dict[int, Outstanding] = field(default_factory=dict)
    in_flight: int = 0
    held: dict[str, int] = field(default_factory=dict)
    """Leased messages by consumer."""
    waiting: list[tuple[int, int]] = field(default_factory=list)
    """Heap of (from when on, message number)."""
    leases: list[tuple[int, list[int]]] = field(default_factory=list)
    """Heap of (until when, message numbers, last first). What is handed out together is one
    entry."""
    lease_numbers: int = 0
    """How many message numbers the entries of that heap were made with."""
    keys: dict[str, deque[int]] = field(default_factory=dict)
    """Per key, the unsettled messages in order; the first one may be worked on."""
    given_up: set[int] = field(default_factory=set)
    """Messages on their way to the dead-letter stream."""
    absent: dict[str, int | None] = field(default_factory=dict)
    """Members with messages whose connection ended: until when they may come back. None where the
    server ended it: then they have as long as their leases last. Not stored."""
    unread: set[int] = field(default_factory=set)
    """Leased messages that their member may never have read. Not stored."""

    # ── Looking ──────────────────────────────────────────────────────────────────────────────

    @property
    def room(self) -> int:
        """How many more messages may be leased now."""
        return 0 if self.paused else max(0, self.config.max_in_flight - self.in_flight)

    def due(self, now_ms: int, most: int) -> list[Outstanding]:
        """Messages that wait and may be delivered now, longest waiting first."""
        found: list[Outstanding] = []
        heap = self.waiting
        # The smallest of a heap, in order, without touching it: children come after their parent.
        ahead = [(heap[0], 0)] if heap else []
        while ahead and len(found) < most:
            (until_ms, number), at = heappop(ahead)
            if until_ms > now_ms:
                break
            for child in (2 * at + 1, 2 * at + 2):
                if child < len(heap):
                    heappush(ahead, (heap[child], child))
            message = self.outstanding.get(number)
            if message is not None and message.phase is WAITING and message.until_ms == until_ms:
                found.append(message)
        return found

    def ended(self, now_ms: int) -> Iterator[Outstanding]:
        """Leased messages whose time is over."""
        heap = self.leases
        ahead = [0]
        while ahead:
            at = ahead.pop()
            if at < len(heap) and heap[at][0] <= now_ms:
                ahead += (2 * at + 1, 2 * at + 2)
                until_ms, numbers = heap[at]
                for number in reversed(numbers):
                    message = self.outstanding.get(number)
                    if message and message.phase is LEASED and message.until_ms == until_ms:
                        yield message

    def next_moment_ms(self, now_ms: int) -> int | None:
        """When something happens by itself: a lease or a grace ends, a delay is over."""
        moments = [until_ms for until_ms in self.absent.values() if until_ms is not None]
        if self.leases:
            moments.append(self.leases[0][0])
        if self.waiting and self.waiting[0][0] > now_ms:
            moments.append(self.waiting[0][0])
        return min(moments, default=None)

    def leased_as(self, receipt: str, now_ms: int) -> Outstanding | None:
        """The message that a receipt stands for; None if it stands for nothing any more."""
        try:
            group_id, number, token = receipt.split(".")
            message = self.outstanding.get(int(number, 16))
            if message is None or message.phase is not LEASED or message.until_ms <= now_ms:
                return None
            own = int(token, 16) == message.token and int(group_id, 16) == self.record.id
        except ValueError:
            return None
        return message if own else None

    def held_by(self, consumer: str) -> list[Outstanding]:
        if consumer not in self.held:
            return []
        return [
            message
            for message in self.outstanding.values()
            if message.phase is LEASED and message.consumer == consumer
        ]

    def restore(self, messages: Sequence[Outstanding]) -> None:
        """Start from what was stored."""
        by_number = sorted(messages, key=lambda message: message.ref.number)
        evolve(self, MessagesMarked(self.record.id, tuple(by_number)))


# ── Mutations: what a decision changes, what an engine stores ────────────────────────────────


class GroupCreated(msgspec.Struct, frozen=True):
    record: GroupRecord
    config: GroupConfig
    cursor: MessageRef


class GroupChanged(msgspec.Struct, frozen=True):
    """New settings, paused or resumed."""

    group_id: int
    config: GroupConfig
    paused: bool


class GroupAdvanced(msgspec.Struct, frozen=True):
    """The cursor moved; with `reset`, everything outstanding is forgotten."""

    group_id: int
    cursor: MessageRef
    reset: bool = False


class MessagesLeased(msgspec.Struct, frozen=True):
    """Messages that nobody had go to one member, until one moment. The hot path."""

    group_id: int
    consumer: str
    until_ms: int
    messages: list[Outstanding]


class MessagesMarked(msgspec.Struct, frozen=True):
    """Outstanding messages as they are now."""

    group_id: int
    messages: tuple[Outstanding, ...]


class MessagesSettled(msgspec.Struct, frozen=True):
    group_id: int
    numbers: tuple[int, ...]


class GroupDeleted(msgspec.Struct, frozen=True):
    group_id: int


class MemberAbsent(msgspec.Struct, frozen=True):
    """A member's connection ended. Not stored: after a restart, nobody has one."""

    group_id: int
    consumer: str
    until_ms: int | None
    unread: frozenset[int] = frozenset()
    """Messages that it may not have read."""


class MemberReturned(msgspec.Struct, frozen=True):
    """A member is back, or will not be waited for any longer. Not stored."""

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
    """Whether a mutation is for engines too."""
    return not isinstance(mutation, MemberAbsent | MemberReturned)


def evolve(state: GroupState, mutation: GroupMutation) -> None:
    """Fold one mutation into the state it belongs to."""
    # The two of the hot path first, and without the price of a pattern.
    if isinstance(mutation, MessagesLeased):
        _lease(state, mutation.consumer, mutation.until_ms, mutation.messages)
        return
    if isinstance(mutation, MessagesSettled):
        _settle(state, mutation.numbers)
        return
    match mutation:
        case MessagesMarked(_, messages):
            for message in messages:
                _mark(state, message)
            _drop_stale(state)
        case GroupAdvanced(_, cursor, reset):
            state.cursor = cursor
            if reset:
                _reset(state)
        case GroupChanged(_, config, paused):
            state.config, state.paused = config, paused
        case MemberAbsent(_, consumer, until, unread):
            state.absent[consumer] = until
            state.unread |= unread
        case MemberReturned(_, consumer):
            state.absent.pop(consumer, None)
        case GroupCreated() | GroupDeleted():
            # The state begins and ends with whoever holds it.
            pass


def _lease(
    state: GroupState, consumer: str, until_ms: int, messages: Sequence[Outstanding]
) -> None:
    numbers = [message.ref.number for message in messages]
    if state.config.order_by is not None:
        for message in messages:
            if message.key is not None and message.ref.number not in state.outstanding:
                state.keys.setdefault(message.key, deque()).append(message.ref.number)
    state.outstanding.update(zip(numbers, messages, strict=True))
    state.in_flight += len(numbers)
    state.held[consumer] = state.held.get(consumer, 0) + len(numbers)
    numbers.reverse()
    heappush(state.leases, (until_ms, numbers))
    state.lease_numbers += len(numbers)
    _drop_stale(state)


def _mark(state: GroupState, message: Outstanding) -> None:
    """Add a message, or replace what is known of it."""
    number, phase = message.ref.number, message.phase
    before = state.outstanding.get(number)
    if before is message:
        return
    if before is None:
        if message.key is not None:
            state.keys.setdefault(message.key, deque()).append(number)
    elif before.phase is LEASED:
        _uncount(state, before.consumer or "", 1)
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


def _settle(state: GroupState, numbers: Sequence[int]) -> None:
    pop = state.outstanding.pop
    freed: dict[str, int] = {}
    for number in numbers:
        message = pop(number)
        if message.phase is LEASED:
            consumer = message.consumer or ""
            freed[consumer] = freed.get(consumer, 0) + 1
        elif message.phase is GIVEN_UP:
            state.given_up.discard(number)
        if message.key is not None:
            queue = state.keys[message.key]
            queue.remove(number)
            if not queue:
                del state.keys[message.key]
    for consumer, count in freed.items():
        _uncount(state, consumer, count)
    if state.unread:
        state.unread.difference_update(numbers)
    _drop_stale(state)


def _uncount(state: GroupState, consumer: str, count: int) -> None:
    """Messages are not with a member any more."""
    state.in_flight -= count
    left = state.held[consumer] - count
    if left:
        state.held[consumer] = left
        return
    del state.held[consumer]
    # There is nothing left to come back for.
    if state.absent:
        state.absent.pop(consumer, None)


def _reset(state: GroupState) -> None:
    state.outstanding.clear()
    state.in_flight = state.lease_numbers = 0
    for index in (state.held, state.keys, state.absent):
        index.clear()
    state.given_up.clear()
    state.unread.clear()
    state.waiting.clear()
    state.leases.clear()


def _drop_stale(state: GroupState) -> None:
    """Leave what is current at the top of the heaps, and not too much else in them."""
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
    """One lease that lasts must not keep all those that ended long before it."""
    by_moment: dict[int, list[int]] = {}
    for number, message in state.outstanding.items():
        if message.phase is LEASED:
            by_moment.setdefault(message.until_ms, []).append(number)
    state.leases = list(by_moment.items())
    heapify(state.leases)
    state.lease_numbers = state.in_flight
