"""Cursors keep shared caches from looping.

A live response names the time interval it was made in, and the client sends that back with its next
request. So a cache collapses requests of one interval, but not those of the next. Intervals are 20
s, counted from 2024-10-09T00:00:00Z. A client that is already at or past the current interval would
be sent in circles by a cache, so it is moved strictly ahead, by a random number of intervals within
an hour.
"""

from __future__ import annotations

from typing import Final

from headwater.core.numbers import whole_number

EPOCH_S: Final = 1_728_432_000
INTERVAL_S: Final = 20
JITTER_INTERVALS_MAX: Final = 180


def interval_at(now_ms: int) -> int:
    return (now_ms // 1000 - EPOCH_S) // INTERVAL_S


def parse_cursor(text: str | None) -> int | None:
    """An unknown cursor is ignored, not refused."""
    return None if text is None else whole_number(text, digits_max=16)


def next_cursor(client: int | None, now_ms: int, jitter: int) -> int:
    """The cursor to return; `jitter` is a random number from 1 to 180."""
    current = interval_at(now_ms)
    if client is None or client < current:
        return current
    return client + jitter
