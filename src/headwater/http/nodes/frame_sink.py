"""Frames from another node on a connection that stays open, decoded as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import msgspec
import structlog

from headwater.cluster.frames import Frames, OutOfStep
from headwater.http.messages import EventStream, Payload

log = structlog.get_logger()


class FrameSink:
    """Implements `messages.Sink`: passes each frame to `take`, which may refuse it."""

    ended_here = cut_off = paused = False

    def __init__(
        self, take: Callable[[bytes], None], silence_s_max: float, frame_bytes_max: int
    ) -> None:
        self._take = take
        self._silence_s_max = silence_s_max
        self._frames = Frames(frame_bytes_max)
        self._over = asyncio.Event()
        self._last_s = monotonic()
        self.heard = False

    def send(self, payload: Payload) -> bool:
        self._last_s = monotonic()
        try:
            for body in self._frames.take(payload.raw):
                self._take(body)
                self.heard = True
        except (OutOfStep, ValueError, msgspec.DecodeError) as error:
            log.warning("feed_out_of_step", reason=str(error))
            self._over.set()
        return not self._over.is_set()

    async def drained(self) -> bool:
        return True

    def end(self) -> None:
        self._over.set()

    async def run(self, stream: EventStream) -> None:
        """Runs until the stream ends, or has been silent for too long."""
        try:
            stream.start(self)
            while not self._over.is_set():
                left_s = self._last_s + self._silence_s_max - monotonic()
                if left_s <= 0:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._over.wait()
        finally:
            stream.stopped()
