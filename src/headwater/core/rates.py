"""Rates: how much a caller may do per second.

An account starts with one second's worth, refills evenly, and never holds more than that. A request
is admitted when the account is not empty, and may overdraw it: its cost in bytes is known only when
it is over, and a body larger than one second's worth must still be possible. After that the caller
waits until the account is positive again, and is told exactly how long that takes.
"""

from __future__ import annotations


class Account:
    """One caller's share of one resource. A rate of 0 means no limit."""

    __slots__ = ("_level", "_per_s", "_updated_s")

    def __init__(self, per_s: int, now_s: float) -> None:
        self._per_s = per_s
        self._level = float(per_s)
        self._updated_s = now_s

    def wait_s(self, now_s: float) -> float:
        """How long the next request has to wait; 0 if it may proceed."""
        if not self._per_s:
            return 0.0
        self._fill(now_s)
        # Whole units: a request needs one, and fractions of bytes do not matter.
        return 0.0 if self._level >= 1 else (1 - self._level) / self._per_s

    def charge(self, amount: float, now_s: float) -> None:
        if self._per_s:
            self._fill(now_s)
            self._level -= amount

    def is_full(self, now_s: float) -> bool:
        """Whether the account can be dropped because it holds no information."""
        if not self._per_s:
            return True
        self._fill(now_s)
        return self._level >= self._per_s

    def _fill(self, now_s: float) -> None:
        # A clock that went back must not take anything away.
        passed_s = max(0.0, now_s - self._updated_s)
        self._level = min(float(self._per_s), self._level + passed_s * self._per_s)
        self._updated_s = now_s
