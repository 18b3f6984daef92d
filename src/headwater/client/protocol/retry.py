"""When to try again, and how long to wait first.

Delays double from `base_delay_s` up to `max_delay_s`. Each is drawn from the upper half of its
step, so that clients which failed together do not come back together and still do not hammer the
server. A `Retry-After` is a lower bound for the delay, not a hint. Time is measured since the last
success; an error that no repetition can cure is final at once.

A server that has never answered is most likely not there, or elsewhere. Such an address is given up
after `unreachable_after_s`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from headwater.client.errors import (
    ConnectionFailed,
    HeadwaterError,
    RateLimited,
    ResponseError,
    ServerUnavailable,
    ServerUnreachable,
    UnexpectedAnswer,
)

# An answer that contradicts the protocol may be an accident of the network once or twice. A server
# that keeps sending them will not stop, however patient the policy is.
UNEXPECTED_ANSWERS_MAX: Final = 5

_DOUBLINGS_MAX: Final = 30


def check_options(
    options: object, *, positive: Collection[str] = (), natural: Collection[str] = ()
) -> None:
    """Refuse numbers with which nothing would ever happen; None, where it is one, passes."""
    for name in (*positive, *natural):
        value = getattr(options, name)
        if value is None or value > 0 or (value == 0 and name in natural):
            continue
        least = "0 or more" if name in natural else "more than 0"
        raise ValueError(f"{type(options).__name__}.{name} must be {least}, not {value!r}")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to keep trying.

    Attributes:
        base_delay_s: the first delay.
        max_delay_s: no delay grows beyond this (unless the server asks for more).
        give_up_after_s: seconds without success after which the error is raised; None: never.
        unreachable_after_s: the same for a server that has never answered this client.

    >>> RetryPolicy(give_up_after_s=None).delay_s(failures=3, random=1.0)
    0.4
    """

    base_delay_s: float = 0.1
    max_delay_s: float = 5.0
    give_up_after_s: float | None = 30.0
    unreachable_after_s: float = 3.0

    def __post_init__(self) -> None:
        names = ("base_delay_s", "max_delay_s", "give_up_after_s", "unreachable_after_s")
        check_options(self, natural=names)

    def delay_s(self, *, failures: int, random: float, retry_after_s: float | None = None) -> float:
        """The delay after so many failures in a row; `random` is in [0, 1]."""
        doublings = min(failures - 1, _DOUBLINGS_MAX)
        step = min(self.max_delay_s, self.base_delay_s * float(1 << doublings))
        return max(step * (0.5 + random / 2), retry_after_s or 0.0)

    def forever(self) -> RetryPolicy:
        """The same delays without an end."""
        return replace(self, give_up_after_s=None)


def is_retryable(error: HeadwaterError, *, repeatable: bool) -> bool:
    """Whether the same request, sent again, could succeed without doing anything twice."""
    transient = ConnectionFailed | RateLimited | ServerUnavailable | UnexpectedAnswer
    if isinstance(error, ServerUnreachable) or not isinstance(error, transient):
        return False
    return repeatable or not error.in_doubt


class Retries:
    """The failures of one request, or of one reader between two successes."""

    def __init__(self, policy: RetryPolicy) -> None:
        self.policy = policy
        self.in_doubt = False
        self._failures = 0
        self._unexpected = 0
        self._failing_since: float | None = None

    def succeeded(self) -> None:
        """Start counting afresh."""
        self._failures = self._unexpected = 0
        self._failing_since = None

    def delay_after(
        self, error: HeadwaterError, *, repeatable: bool, now: float, random: float
    ) -> float | None:
        """The delay before the next attempt; None when the error is final."""
        self.in_doubt = self.in_doubt or error.in_doubt
        self._failures += 1
        self._unexpected += isinstance(error, UnexpectedAnswer)
        if self._failing_since is None:
            self._failing_since = now
        if not is_retryable(error, repeatable=repeatable):
            return None
        if self._unexpected > UNEXPECTED_ANSWERS_MAX:
            return None
        asked = error.retry_after_s if isinstance(error, ResponseError) else None
        delay = self.policy.delay_s(failures=self._failures, random=random, retry_after_s=asked)
        limit = self.policy.give_up_after_s
        if limit is not None and now + delay - self._failing_since > limit:
            return None
        return delay
