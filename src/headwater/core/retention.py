"""Retention: how much of its past a stream keeps.

A stream may keep data younger than some seconds (`Stream-Retention-Seconds`), or the last bytes up
to a number (`Stream-Retention-Bytes`), or both, and then the stricter limit counts. Whole appends
are dropped, oldest first, so a stream may keep slightly fewer bytes than configured, and data older
than the time limit is dropped soon after, not at that instant.

The remaining positions keep their offsets. An offset before the first kept one is *expired*: the
reader gets an error that names the first offset now, because continuing there means that it missed
something. `-1` is the beginning of what is kept, and never expires.

Checks are scheduled, so a stream without writes costs nothing. After an append, a byte limit is
checked soon, and a time limit when the append will be too old. A check schedules the next one: when
the first remaining append becomes too old. If a consumer group holds back more than the limits
allow, the check is repeated at growing intervals.

Messages that a consumer group has not settled are kept for it. What a fork inherits is its own: the
fork has its own retention, or none, and its source's does not shorten it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.core.errors import InvalidHeader, OffsetExpired
from headwater.core.limits import RETENTION_BYTES_MAX, TTL_SECONDS_MAX
from headwater.core.offsets import Anchor, Offset

if TYPE_CHECKING:
    from headwater.core.stream import StreamConfig

LOOK_AFTER_MS: Final = 2_000
HELD_BACK_LOOK_MS_MAX: Final = 600_000
_DIGITS = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Retention:
    age_s: int | None = None
    size_bytes: int | None = None

    def first_moment_ms(self, now_ms: int) -> int | None:
        """Data written before this is too old; None without a time limit."""
        return None if self.age_s is None else now_ms - 1000 * self.age_s

    def first_position(self, tail: int) -> int:
        """Data before this position exceeds the limit."""
        return 0 if self.size_bytes is None else tail - self.size_bytes

    def drops_more_than(self, other: Retention) -> bool:
        """Whether a stream may have to drop data that it could keep with the other."""
        return _is_less(self.age_s, other.age_s) or _is_less(self.size_bytes, other.size_bytes)


KEEP_ALL: Final = Retention()


def _is_less(limit: int | None, other: int | None) -> bool:
    return limit is not None and (other is None or limit < other)


def parse_retention(age: str | None, size: str | None) -> Retention | None:
    if age is None and size is None:
        return None
    return Retention(
        _number("Stream-Retention-Seconds", age, TTL_SECONDS_MAX),
        _number("Stream-Retention-Bytes", size, RETENTION_BYTES_MAX),
    )


def _number(header: str, text: str | None, most: int) -> int | None:
    if text is None:
        return None
    if _DIGITS.fullmatch(text) is None or int(text) > most:
        raise InvalidHeader(header, f"must be a whole number from 1 to {most}")
    return int(text)


def trim_due_at_first(retention: Retention | None, now_ms: int) -> int | None:
    """When to check a stream that is new or has a new retention."""
    return None if retention is None else now_ms + LOOK_AFTER_MS


def trim_due_after_append(
    retention: Retention | None, planned_ms: int | None, now_ms: int
) -> int | None:
    """When to check because of an append; None if that is scheduled already, or never needed."""
    if retention is None:
        return None
    by_bytes = retention.size_bytes is not None
    due_ms = now_ms + (LOOK_AFTER_MS if by_bytes else 1000 * (retention.age_s or 0))
    return due_ms if planned_ms is None or due_ms < planned_ms else None


def trim_due_after_look(
    retention: Retention, first_kept_at_ms: int | None, now_ms: int, *, held_back: bool
) -> int | None:
    """When to check again, given when the first kept append was written, if there is one."""
    if first_kept_at_ms is None:
        return None
    due_ms = None
    if retention.age_s is not None:
        due_ms = max(first_kept_at_ms + 1000 * retention.age_s, now_ms + LOOK_AFTER_MS)
    if held_back:
        waited_ms = now_ms - first_kept_at_ms - 1000 * (retention.age_s or 0)
        due_ms = now_ms + min(max(waited_ms // 4, LOOK_AFTER_MS), HELD_BACK_LOOK_MS_MAX)
    return due_ms


def locate(config: StreamConfig, offset: Anchor | Offset, tail: int) -> int:
    """The position where a read from an offset begins (see `Lineage.approach`), if the offset
    belongs to this stream and is still kept.
    """
    if offset is Anchor.START:
        return config.kept_from
    position = config.lineage.approach(offset, tail)
    if position < config.kept_from:
        raise OffsetExpired(str(offset), config.lineage.token_at(config.kept_from))
    return position
