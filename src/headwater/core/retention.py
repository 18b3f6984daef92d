"""Retention: how much of its past a stream keeps.

A stream may be told to keep what is younger than some seconds (`Stream-Retention-Seconds`), or the
last so many bytes (`Stream-Retention-Bytes`), or both, and then the stricter one counts. Whole
appends go, oldest first, so a stream may keep a little less than it was told in bytes, and what
was written before the limit in time goes soon after it, not at that very moment.

The positions that are left keep their offsets. An offset that lies before the first one that is
kept is *expired*: whoever sends it is told so, and which offset is the first now, because going on
there means to have missed something. `-1` is the beginning of what there is, and is never expired.

What a consumer group has not settled is kept for it. What a fork inherits is its own: it has a
retention of its own, or none, and its source's does not shorten it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.core.errors import InvalidHeader, OffsetExpired
from headwater.core.limits import RETENTION_BYTES_MAX, TTL_SECONDS_MAX
from headwater.core.offsets import Anchor, Offset

if TYPE_CHECKING:
    from headwater.core.stream import StreamConfig

_DIGITS = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Retention:
    age_s: int | None = None
    size_bytes: int | None = None


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


def locate(config: StreamConfig, offset: Anchor | Offset, tail: int) -> int:
    """The position a read from an offset begins at or after (see `Lineage.approach`), if the
    offset is one of this stream's and is still kept."""
    if offset is Anchor.START:
        return config.kept_from
    position = config.lineage.approach(offset, tail)
    if position < config.kept_from:
        raise OffsetExpired(str(offset), str(config.lineage.offset_at(config.kept_from)))
    return position
