"""When to try again, and how long to wait first.

Delays double from `base_delay_s` up to `max_delay_s`. Each is drawn from the upper half of its
step, so that clients which failed together do not come back together and still do not hammer the
server. A `Retry-After` is a lower bound for the delay, not a hint. Time is measured since the last
success; an error that no repetition can cure is final at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from headwater.client.errors import (
    ConnectionFailed,
    HeadwaterError,
    RateLimited,
    ResponseError,
    ServerUnavailable,
    UnexpectedAnswer,
)

# An answer that contradicts the protocol may be an accident of the network once or twice. A server
# that keeps sending them will not stop, however patient the policy is.
UNEXPECTED_ANSWERS_MAX: Final = 5

_DOUBLINGS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to keep trying.

    Attributes:
        base_delay_s: the first delay.
        max_delay_s: no delay grows beyond this (unless the server asks for more).
        give_up_after_s: seconds without success after which the error is raised; None: never.

    >>> RetryPolicy(give_up_after_s=None).delay_s(failures=3, random=1.0)
    0.4
    """

    base_delay_s: float = 0.1
    max_delay_s: float = 5.0
    give_up_after_s: float | None = 30.0

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
    return isinstance(error, transient) and (repeatable or not error.in_doubt)


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
