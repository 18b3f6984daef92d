"""The settings of a group, as a client sends them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headwater.core.errors import GroupConflict, InvalidBody, InvalidOffset
from headwater.core.offsets import Anchor, Offset, parse_offset

START_FIRST = "first"
START_LATEST = "latest"


class GroupConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=False):
    """What a member needs to know about its group, and the server about its members."""

    durable: bool = True
    start: str = START_FIRST
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    ack_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=86_400_000)] = 30_000
    max_deliveries: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    dead_letter: Annotated[str, msgspec.Meta(max_length=1024)] | None = None
    order_by: Annotated[str, msgspec.Meta(pattern="^/", max_length=256)] | None = None


_config = msgspec.json.Decoder(GroupConfig)


def parse_config(body: bytes) -> GroupConfig:
    if not body.strip():
        return GroupConfig()
    try:
        return _config.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidBody(f"the group's settings are not valid: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidBody("send the group's settings as a JSON object") from None


def reconfigured(current: GroupConfig, wanted: GroupConfig) -> GroupConfig:
    """A group keeps its place and, once durable, stays durable; the rest may change."""
    if current.durable and not wanted.durable:
        raise GroupConflict("the group is durable and cannot become ephemeral; delete it first")
    if current.order_by != wanted.order_by:
        raise GroupConflict("the group's order_by cannot change; delete the group first")
    return msgspec.structs.replace(wanted, start=current.start)


def parse_place(text: str) -> tuple[Anchor | Offset, int]:
    """Where a group begins, or goes on: an offset, and how many messages to skip behind it.

    `first` and `latest` are the two ends of the stream. Offsets lie between appends, and an append
    may hold many messages; `OFFSET/3` is the fourth message behind an offset.
    """
    if text == START_FIRST:
        return Anchor.START, 0
    if text == START_LATEST:
        return Anchor.TAIL, 0
    offset, slash, skip = text.partition("/")
    if slash and not (skip.isascii() and skip.isdigit() and len(skip) <= 15):
        raise InvalidOffset("behind an offset, / and a number skip so many messages")
    return parse_offset(offset), int(skip or 0)
