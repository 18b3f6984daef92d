"""Cursors for live answers, from the clock of this server. The rule is in `core.cursors`."""

from __future__ import annotations

import random

from headwater.core import cursors
from headwater.service.clock import Clock


class Cursors:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def after(self, client: int | None) -> int:
        """The cursor to answer with, given the one that the client sent."""
        jitter = random.randint(1, cursors.JITTER_INTERVALS_MAX)
        return cursors.next_cursor(client, self._clock(), jitter)

    def is_past(self, client: int) -> bool:
        """Whether the clock has overtaken a cursor, so that it makes no difference any more."""
        return client < cursors.interval_at(self._clock())
