"""How long a stream lives.

A time to live (`Stream-TTL`, whole seconds) slides: every read or write restarts it, HEAD does not.
An expiry (`Stream-Expires-At`, RFC 3339) is an instant and never moves. A stream has one of the two
or neither.

The time of the last access is in memory and only written to disk now and then, because a read must
not cost a commit. The stored time may lag by `touch_interval_ms`. Loading a stream allows for that
lag, so a crash can lengthen its life a little but never shorten it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headwater.core.errors import InvalidHeader
from headwater.core.limits import TTL_SECONDS_MAX

_TTL = re.compile(r"0|[1-9][0-9]{0,10}")
_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:[0-5]\d)", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a stream ends: after `ttl_s` without access, or at `expires_at_ms`, or never."""

    ttl_s: int | None = None
    expires_at_ms: int | None = None
    expires_at_text: str | None = None

    @property
    def is_forever(self) -> bool:
        return self.ttl_s is None and self.expires_at_ms is None

    def same_as(self, other: Lifetime) -> bool:
        return self.ttl_s == other.ttl_s and self.expires_at_ms == other.expires_at_ms

    def may_end_before(self, other: Lifetime) -> bool:
        """Whether a stream may end earlier with this than with the other."""
        if self.is_forever or self.same_as(other):
            return False
        if self.ttl_s is not None and other.ttl_s is not None:
            return self.ttl_s < other.ttl_s
        if self.expires_at_ms is not None and other.expires_at_ms is not None:
            return self.expires_at_ms < other.expires_at_ms
        return True

    def deadline_ms(self, touched_at_ms: int) -> int | None:
        if self.ttl_s is not None:
            return touched_at_ms + self.ttl_s * 1000
        return self.expires_at_ms

    def is_over(self, touched_at_ms: int, now_ms: int) -> bool:
        deadline = self.deadline_ms(touched_at_ms)
        return deadline is not None and now_ms >= deadline


FOREVER = Lifetime()


def parse_lifetime(ttl: str | None, expires_at: str | None) -> Lifetime:
    if ttl is not None and expires_at is not None:
        raise InvalidHeader("Stream-TTL", "send Stream-TTL or Stream-Expires-At, not both")
    if ttl is not None:
        if _TTL.fullmatch(ttl) is None or int(ttl) > TTL_SECONDS_MAX:
            raise InvalidHeader(
                "Stream-TTL", f"must be whole seconds in plain digits, at most {TTL_SECONDS_MAX}"
            )
        return Lifetime(ttl_s=int(ttl))
    if expires_at is not None:
        return Lifetime(expires_at_ms=_instant_ms(expires_at), expires_at_text=expires_at)
    return FOREVER


def _instant_ms(text: str) -> int:
    problem = InvalidHeader(
        "Stream-Expires-At", "must be an RFC 3339 time with a zone, e.g. 2030-01-31T12:00:00Z"
    )
    # Newer versions of Python take 24:00 for the end of a day; RFC 3339 does not.
    if _RFC3339.fullmatch(text) is None or text[11:13] == "24":
        raise problem
    try:
        # `fromisoformat` takes at most microseconds; finer digits do not matter here.
        moment = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.upper()))
    except ValueError:
        raise problem from None
    # In integers: a float of seconds is sometimes a millisecond off.
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def touch_interval_ms(lifetime: Lifetime) -> int:
    """How stale the stored time of the last access may get."""
    if lifetime.ttl_s is None:
        return 0
    return min(60_000, max(250, lifetime.ttl_s * 1000 // 8))
