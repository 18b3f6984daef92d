"""Members of a group, as the group sees them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from headwater.core.errors import StreamError
from headwater.core.groups.state import Outstanding

Delivery = tuple[Outstanding, bytes]


class Waiter(Protocol):
    """A member that waits for messages."""

    consumer: str
    most_bytes: int
    """How much it takes at a time; a single message may be larger."""

    @property
    def demand(self) -> int: ...

    def give(self, deliveries: list[Delivery], lag: int) -> None: ...

    def fail(self, error: StreamError) -> None: ...


class Ending(Enum):
    """Who ended the connection of a member."""

    MEMBER = "member"
    SERVER = "server"
    CUT_OFF = "cut off"
    """The server, because the member did not read: some sent messages did not arrive."""


def demand_of(waiters: Iterable[Waiter], most: int, most_bytes: int) -> tuple[int, int]:
    """How many messages are wanted, and how many bytes of them; counted until there is enough."""
    demand = demand_bytes = 0
    for waiter in waiters if most else ():
        wanted = waiter.demand
        if wanted > 0:
            demand += wanted
            demand_bytes += waiter.most_bytes
            if demand >= most and demand_bytes >= most_bytes:
                break
    return demand, demand_bytes


def next_served(waiters: Iterable[Waiter], count: int, *, in_full: bool) -> list[Waiter]:
    """Who shares that many messages: everyone, but members beyond their number get none.

    With `in_full`, only the first ones, as many as get all they want.
    """
    found: list[Waiter] = []
    demand = 0
    for waiter in waiters:
        if len(found) == count:
            break
        wanted = waiter.demand
        if wanted > 0:
            demand += wanted
            if in_full and demand > count and found:
                break
            found.append(waiter)
    return found
