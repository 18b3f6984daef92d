"""The state of a group, which only mutations change.

Its heaps are indexes over the outstanding messages. A stale entry is harmless, and is removed when
it reaches the top or when there are too many of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from typing import Final, NamedTuple

import msgspec

from headwater.core.groups.config import GroupConfig


class MessageRef(NamedTuple):
    """The place of a message: its number in the stream, its append, its index in that append."""

    number: int
    start: int
    place: int


class Phase(IntEnum):
    LEASED = 0
    WAITING = 1
    BLOCKED = 2
    GIVEN_UP = 3


# Looking up an enum member costs more than most operations on a message here.
LEASED, WAITING, BLOCKED, GIVEN_UP = Phase


class Outstanding(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A message taken from the stream and not settled."""

    ref: MessageRef
    phase: Phase
    until_ms: int = 0
    """Leased: when the lease ends. Waiting: the earliest time of delivery."""
    deliveries: int = 0
    token: int = 0
    """Identifies the last delivery, together with those sent with it. Random, so that no receipt
    ever matches another delivery.
    """
    consumer: str | None = None
    key: str | None = None


RECEIPT: Final = b"%x.%x.%x"
"""A receipt: the group's id, the message's number, the token of the delivery."""


def format_receipt(group_id: int, message: Outstanding) -> str:
    return (RECEIPT % (group_id, message.ref.number, message.token)).decode()


class GroupRecord(NamedTuple):
    """The fixed properties of a group."""

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
    """Heap of (earliest delivery, message number)."""
    leases: list[tuple[int, list[int]]] = field(default_factory=list)
    """Heap of (lease end, message numbers, last first). Messages leased together are one entry."""
    lease_numbers: int = 0
    """How many message numbers the entries of that heap were created with."""
    keys: dict[str, deque[int]] = field(default_factory=dict)
    """Unsettled messages by key, in order; the first one may be worked on."""
    given_up: set[int] = field(default_factory=set)
    """Messages on their way to the dead-letter stream."""
    absent: dict[str, int | None] = field(default_factory=dict)
    """Disconnected members with messages, and until when they may come back. None if the server
    disconnected them: then as long as their leases last. Not stored.
    """
    unread: set[int] = field(default_factory=set)
    """Leased messages that the member may never have read. Not stored."""

    # ── Looking ──────────────────────────────────────────────────────────────────────────────

    @property
    def room(self) -> int:
        """How many more messages may be leased now."""
        left = self.config.max_in_flight - self.in_flight
        return left if left > 0 and not self.paused else 0

    def due(self, now_ms: int, most: int) -> list[Outstanding]:
        """Waiting messages that may be delivered now, longest waiting first."""
        found: list[Outstanding] = []
        heap = self.waiting
        # The smallest entries of a heap in order, without changing it: children come after their
        # parent.
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
        """Messages whose lease has ended."""
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
        """When something next happens without a request: a lease, grace period or delay ends."""
        moments = [until_ms for until_ms in self.absent.values() if until_ms is not None]
        if self.leases:
            moments.append(self.leases[0][0])
        if self.waiting and self.waiting[0][0] > now_ms:
            moments.append(self.waiting[0][0])
        return min(moments, default=None)

    def leased_as(self, receipt: str, now_ms: int) -> Outstanding | None:
        """The message of a receipt; None if the receipt is stale."""
        try:
            group_id, number, token = receipt.split(".")
            message = self.outstanding.get(int(number, 16))
            if (
                message is not None
                and int(token, 16) == message.token
                and message.phase is LEASED
                and message.until_ms > now_ms
                and int(group_id, 16) == self.record.id
            ):
                return message
        except ValueError:
            pass
        return None

    def held_by(self, consumer: str) -> list[Outstanding]:
        if consumer not in self.held:
            return []
        return [
            message
            for message in self.outstanding.values()
            if message.phase is LEASED and message.consumer == consumer
        ]
