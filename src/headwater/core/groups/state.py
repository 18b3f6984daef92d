"""The state of a group, the changes to it that are stored, and receipts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from typing import Final, NamedTuple

import msgspec

from headwater.core.groups.config import GroupConfig


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
    """Heap of (from when on, message number); entries may be out of date."""
    leases: list[tuple[int, list[int]]] = field(default_factory=list)
    """Heap of (until when, message numbers, last first); entries may be out of date. What is
    handed out together is one entry."""
    keys: dict[str, deque[int]] = field(default_factory=dict)
    """Per key, the unsettled messages in order; the first one may be worked on."""
    given_up: set[int] = field(default_factory=set)
    """Messages on their way to the dead-letter stream."""

    def put(self, message: Outstanding) -> None:
        """Add a message, or replace what is known of it."""
        number = message.ref.number
        before = self.outstanding.get(number)
        if before is not None and before.phase is LEASED:
            self._uncount(before)
        phase = message.phase
        if phase is LEASED:
            self.put_leases([message], message.consumer or "", message.until_ms)
            return
        self.outstanding[number] = message
        if phase is WAITING:
            heappush(self.waiting, (message.until_ms, number))
        elif phase is GIVEN_UP:
            self.given_up.add(number)

    def put_leases(self, leased: Sequence[Outstanding], consumer: str, until_ms: int) -> None:
        """Messages that nobody has go to a member."""
        numbers = [message.ref.number for message in leased]
        self.outstanding.update(zip(numbers, leased, strict=True))
        self.in_flight += len(numbers)
        self.held[consumer] = self.held.get(consumer, 0) + len(numbers)
        numbers.reverse()
        heappush(self.leases, (until_ms, numbers))

    def drop(self, messages: Iterable[Outstanding]) -> None:
        """Messages are settled."""
        for message in messages:
            del self.outstanding[message.ref.number]
            if message.phase is LEASED:
                self._uncount(message)
            elif message.phase is GIVEN_UP:
                self.given_up.discard(message.ref.number)

    def _uncount(self, lease: Outstanding) -> None:
        self.in_flight -= 1
        consumer = lease.consumer or ""
        left = self.held[consumer] - 1
        if left:
            self.held[consumer] = left
        else:
            del self.held[consumer]

    @property
    def room(self) -> int:
        """How many more messages may be leased now."""
        return 0 if self.paused else max(0, self.config.max_in_flight - self.in_flight)

    def first_waiting(self) -> Outstanding | None:
        """The next message to deliver, whenever its time may be."""
        while self.waiting:
            until_ms, number = self.waiting[0]
            message = self.outstanding.get(number)
            if message and message.phase is WAITING and message.until_ms == until_ms:
                return message
            heappop(self.waiting)
        return None

    def first_lease(self) -> Outstanding | None:
        """The lease that ends next."""
        while self.leases:
            until_ms, numbers = self.leases[0]
            while numbers:
                message = self.outstanding.get(numbers[-1])
                if message and message.phase is LEASED and message.until_ms == until_ms:
                    return message
                numbers.pop()
            heappop(self.leases)
        return None

    def leased_as(self, receipt: str) -> Outstanding | None:
        """The message that a receipt stands for; None if it stands for nothing any more."""
        try:
            group_id, number, token = receipt.split(".")
            message = self.outstanding.get(int(number, 16))
            if message is None or message.phase is not LEASED:
                return None
            own = int(token, 16) == message.token and int(group_id, 16) == self.record.id
        except ValueError:
            return None
        return message if own else None

    def restore(self, messages: list[Outstanding]) -> None:
        """Start from what was stored."""
        for message in sorted(messages, key=lambda message: message.ref.number):
            self.put(message)
            if message.key is not None:
                self.keys.setdefault(message.key, deque()).append(message.ref.number)


# ── Changes: what is stored ──────────────────────────────────────────────────────────────────


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


class MessagesMarked(msgspec.Struct, frozen=True):
    """Outstanding messages as they are now."""

    group_id: int
    messages: tuple[Outstanding, ...]


class MessagesSettled(msgspec.Struct, frozen=True):
    group_id: int
    numbers: tuple[int, ...]


class GroupDeleted(msgspec.Struct, frozen=True):
    group_id: int


GroupMutation = (
    GroupCreated | GroupChanged | GroupAdvanced | MessagesMarked | MessagesSettled | GroupDeleted
)
