"""What members send about the messages they hold."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

RECEIPTS_MAX: Final = 10_000

Receipts = Annotated[list[str], msgspec.Meta(min_length=1, max_length=RECEIPTS_MAX)]


class Ack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Acknowledge these messages."""

    receipts: Receipts


class Nack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Deliver these messages again, after a delay.

    Without `count` the delivery does not count, for a member that shuts down before it began.
    """

    receipts: Receipts
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=86_400_000)] = 0
    count: bool = True


class Extend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Extend the leases of these messages: they end this long from now."""

    receipts: Receipts
    ms: Annotated[int, msgspec.Meta(ge=1, le=86_400_000)]


class Reject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Give these messages up: no worker can process them."""

    receipts: Receipts


Command = Ack | Nack | Extend | Reject
