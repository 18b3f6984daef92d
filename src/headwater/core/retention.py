"""Retention: how much of its past a stream keeps.

A stream may be told to keep what is younger than some seconds (`Stream-Retention-Seconds`), or the
last so many bytes (`Stream-Retention-Bytes`), or both, and then the stricter one counts. Whole
appends go, oldest first, so a stream may keep a little less than it was told in bytes, and what
was written before the limit in time goes soon after it, not at that very moment.

The positions that are left keep their offsets. An offset that lies before the first one that is
kept is *expired*: whoever sends it is told so, and which offset is the first now, because going on
there means to have missed something. `-1` is the beginning of what there is, and is never expired.

When to look is planned, so that a stream which nobody writes to costs nothing. After an append, a
limit in bytes is looked at soon, and one in time when the append will have become too old. A look
plans the next one: when the first append that is left becomes too old. If a consumer group holds
back more than the limits say, it is looked for again after a while, which grows with the time that
it has been waited for.

What a consumer group has not settled is kept for it. What a fork inherits is its own: it has a
retention of its own, or none, and its source's does not shorten it.
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
        """What was written before this is too old, if anything can be."""
        return None if self.age_s is None else now_ms - 1000 * self.age_s

    def first_position(self, tail: int) -> int:
        """What lies before this is too much."""
        return 0 if self.size_bytes is None else tail - self.size_bytes

    def drops_more_than(self, other: Retention) -> bool:
        """Whether a stream may have to let go of something that it need not with the other."""
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
    """When to look at a stream that is new, or that was given another retention."""
    return None if retention is None else now_ms + LOOK_AFTER_MS


def trim_due_after_append(
    retention: Retention | None, planned_ms: int | None, now_ms: int
) -> int | None:
    """When to look because of an append; None if that is planned already, or never."""
    if retention is None:
        return None
    by_bytes = retention.size_bytes is not None
    due_ms = now_ms + (LOOK_AFTER_MS if by_bytes else 1000 * (retention.age_s or 0))
    return due_ms if planned_ms is None or due_ms < planned_ms else None


def trim_due_after_look(
    retention: Retention, first_kept_at_ms: int | None, now_ms: int, *, held_back: bool
) -> int | None:
    """When to look again, given when the first append that is kept was written, if any is."""
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
    """The position a read from an offset begins at or after (see `Lineage.approach`), if the
    offset is one of this stream's and is still kept."""
    if offset is Anchor.START:
        return config.kept_from
    position = config.lineage.approach(offset, tail)
    if position < config.kept_from:
        raise OffsetExpired(str(offset), config.lineage.token_at(config.kept_from))
    return position
