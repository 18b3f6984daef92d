"""The heartbeat of event streams: a sign of life every 15 s, and an end after about 60 s.

One timer serves all of them. A reader is in the slot of the second in which it is due next, so an
idle reader costs one small write every 15 s and nothing in between.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from contextlib import suppress
from time import monotonic
from typing import Final, Protocol

from headwater.http.feeds.sse import KEEP_ALIVE
from headwater.http.messages import Payload, Sink
from headwater.service.background import Watch

KEEP_ALIVE_S: Final = 15
_JITTER: Final = 0.2


class Listening(Protocol):
    """The other end of an event stream."""

    sink: Sink | None
    gone: bool

    def end(self) -> None: ...


class Heartbeat:
    def __init__(self, lifetime_s: float) -> None:
        self._lifetime_s = lifetime_s
        self._slots: defaultdict[int, list[tuple[Listening, float]]] = defaultdict(list)
        self._next_slot = 0
        self._timer: asyncio.TimerHandle | None = None
        self._payload = Payload(KEEP_ALIVE)
        self.watch = Watch("heartbeat")

    def add(self, reader: Listening) -> None:
        now = monotonic()
        # The jitter keeps readers that connected together from reconnecting together.
        ends_at = now + self._lifetime_s * random.uniform(1 - _JITTER, 1 + _JITTER)
        self._schedule(reader, ends_at, now)

    def _schedule(self, reader: Listening, ends_at: float, now: float) -> None:
        self._slots[int(min(now + KEEP_ALIVE_S, ends_at)) + 1].append((reader, ends_at))
        if self._timer is None:
            self._next_slot = int(now) + 1
            self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)

    def _tick(self) -> None:
        now = monotonic()
        while self._next_slot <= now:
            for reader, ends_at in self._slots.pop(self._next_slot, ()):
                try:
                    self._beat(reader, ends_at, now)
                except Exception as error:
                    self._give_up(reader, error)
            self._next_slot += 1
        self._timer = None
        if self._slots:
            self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)

    def _beat(self, reader: Listening, ends_at: float, now: float) -> None:
        if reader.gone or reader.sink is None:
            return
        if now >= ends_at:
            reader.end()
        elif reader.sink.paused or reader.sink.send(self._payload):
            # A reader with enough unread data needs no sign of life.
            self._schedule(reader, ends_at, now)

    def _give_up(self, reader: Listening, error: Exception) -> None:
        """Drop a reader that failed, so that the others get their turn; it may reconnect."""
        self.watch.failed(error)
        with suppress(Exception):
            reader.end()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
