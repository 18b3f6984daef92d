"""Members of a group, as the group sees them."""

from __future__ import annotations

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
