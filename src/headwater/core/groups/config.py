"""The settings of a group, and how they change.

A group keeps its cursor and its order, and once it is durable, it stays durable; everything else
may change. A request without a version changes only what it names. One with a version states all
settings, with defaults for those it leaves out:

- newer than the group's: the settings are applied;
- the same: fine if the settings match, otherwise a conflict that names the difference;
- older: nothing changes, and the answer shows the settings in force.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from headwater.core.errors import GroupConflict, InvalidOffset
from headwater.core.json_bodies import decode_body
from headwater.core.limits import VERSION_MAX
from headwater.core.numbers import whole_number
from headwater.core.offsets import Anchor, Offset, parse_offset

START_FIRST = "first"
START_LATEST = "latest"


class GroupConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=False):
    """The settings of a group."""

    durable: bool = True
    start: str = START_FIRST
    max_in_flight: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1000
    ack_timeout_ms: Annotated[int, msgspec.Meta(ge=100, le=86_400_000)] = 30_000
    max_deliveries: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    dead_letter: Annotated[str, msgspec.Meta(max_length=1024)] | None = None
    order_by: Annotated[str, msgspec.Meta(pattern="^/", max_length=256)] | None = None
    version: Annotated[int, msgspec.Meta(ge=0, le=VERSION_MAX)] = 0
    """0 if no request has set one."""

    def is_exhausted(self, deliveries: int) -> bool:
        """Whether a message with this many deliveries is not delivered again."""
        return 0 < self.max_deliveries <= deliveries


ALL_SETTINGS: Final = frozenset(GroupConfig.__struct_fields__)


class Wanted(NamedTuple):
    """Requested settings, and which of them the request named."""

    config: GroupConfig
    named: Collection[str] = ALL_SETTINGS


def parse_wanted(body: bytes) -> Wanted:
    if not body.strip():
        return Wanted(GroupConfig(), ())
    return Wanted(decode_body(body, GroupConfig), decode_body(body, dict[str, msgspec.Raw]).keys())


def reconfigured(current: GroupConfig, wanted: Wanted) -> GroupConfig:
    """The settings after a request."""
    config, version = wanted.config, wanted.config.version
    if not version:
        named = {name: getattr(config, name) for name in wanted.named}
        changed = replace(current, **named | {"version": current.version, "start": current.start})
    elif version < current.version:
        return current
    else:
        changed = replace(config, start=current.start)
        if version == current.version and changed != current:
            differences = _differences(current, config)
            raise GroupConflict(f"version {version} of the group has other settings: {differences}")
    if current.durable and not changed.durable:
        raise GroupConflict("the group is durable and cannot become ephemeral; delete it first")
    if current.order_by != changed.order_by:
        raise GroupConflict("the group's order_by cannot change; delete the group first")
    return changed


def _differences(current: GroupConfig, wanted: GroupConfig) -> str:
    parts = [
        f"{name} is {_text(getattr(current, name))}, not {_text(getattr(wanted, name))}"
        for name in GroupConfig.__struct_fields__
        if name != "start" and getattr(current, name) != getattr(wanted, name)
    ]
    return ", ".join(parts)


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def parse_place(text: str) -> tuple[Anchor | Offset, int]:
    """Where a group starts or continues: an offset, and how many messages to skip after it.

    `first` and `latest` are the ends of the stream. Offsets lie between appends, and an append may
    hold many messages; `OFFSET/3` is the fourth message after an offset.
    """
    if text == START_FIRST:
        return Anchor.START, 0
    if text == START_LATEST:
        return Anchor.TAIL, 0
    offset, slash, skip = text.partition("/")
    count = whole_number(skip, digits_max=15) if slash else 0
    if count is None:
        raise InvalidOffset("after an offset, / and a number skip that many messages")
    return parse_offset(offset), count
