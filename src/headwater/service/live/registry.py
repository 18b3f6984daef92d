"""All live streams: started on demand, dropped after long idleness."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from secrets import token_hex
from typing import Final

import structlog

from headwater.core import decisions
from headwater.core.errors import LiveNotEnabled, StreamError
from headwater.core.live.profile import Profile, touch_settings
from headwater.core.schedules import Schedule
from headwater.service.background import Background
from headwater.service.clock import Clock
from headwater.service.live.figures import LiveFigures
from headwater.service.live.metrics import LiveMetrics
from headwater.service.live.stream import LiveStream
from headwater.service.live.waits import Deadlines
from headwater.service.log import Log

_TICK_S: Final = 1.0
_IDLE_MS_MAX: Final = 15 * 60_000
_STREAMS_IN_MEMORY_MAX: Final = 10_000

logger = structlog.get_logger()


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Live:
    def __init__(
        self,
        log: Log,
        *,
        waiters_max: int = 100_000,
        metrics: bool = True,
        monotonic_ms: Clock = monotonic_ms,
        new_epoch: Callable[[], str] = lambda: token_hex(8),
    ) -> None:
        self.log = log
        self.clock = log.clock
        self.monotonic_ms = monotonic_ms
        self.new_epoch = new_epoch
        self.deadlines = Deadlines(monotonic_ms, log.watch("live_waits"))
        self.watch = log.watch("live_streams")
        self._tending = Tending(self)
        log.watches.append(self._tending)
        self.metrics = LiveMetrics(log, enabled=metrics)
        self.waiters = 0
        self.waiters_max = waiters_max
        self._by_path: OrderedDict[str, LiveStream] = OrderedDict()
        self.figures = LiveFigures()
        self._due = Schedule[str]()
        """When to check which stream."""
        self._stopping = False

    # ── Profiles ─────────────────────────────────────────────────────────────────────────────

    async def profile(self, path: str) -> Profile:
        return self.log.view(await self.log.entry(path)).config.profile

    async def set_profile(self, path: str, profile: Profile) -> Profile:
        entry = await self.log.entry(path)
        now_ms = self.clock()
        try:
            state = decisions.require(entry.state, path, now_ms)
            decision = decisions.decide_profile(state, profile, now_ms)
        except StreamError as error:
            await self.log.writer.fail_after(entry, error)
            raise
        if not decision.mutations:
            return await self.log.writer.reply_after(entry, decision.reply)
        effects = [(entry, mutation) for mutation in decision.mutations]
        await self.log.writer.submit(effects, None)
        known = self._by_path.get(path)
        if known is not None and known.settings != touch_settings(profile):
            # Waiting clients ask again, and find the new settings.
            self._forget(known)
        return profile

    # ── Streams ──────────────────────────────────────────────────────────────────────────────

    def ready(self, path: str) -> LiveStream | None:
        """A stream that queries can wait on, if it is in memory; otherwise use `of`."""
        known, entry = self._by_path.get(path), self.log.ready(path)
        if known is None or entry is None or known.stream.entry is not entry:
            return None
        settings = touch_settings(self.log.view(entry).config.profile)
        if not known.is_current or known.settings != settings:
            return None
        self._by_path.move_to_end(path)
        return known

    async def of(self, path: str) -> LiveStream:
        """A stream that queries can wait on."""
        while True:
            entry = await self.log.entry(path)
            known = self.ready(path)
            if known is not None:
                return known
            view = self.log.view(entry)
            settings = touch_settings(view.config.profile)
            if path in self._by_path:
                self._forget(self._by_path[path])
            if settings is None:
                raise LiveNotEnabled(path)
            stream = LiveStream(self, entry, view, settings)
            # It is listening already, so no commit is missed meanwhile.
            stored = await self.log.in_thread(self.log.engine.templates.of_stream, view.config.id)
            if path in self._by_path or not stream.is_current:
                stream.close()
                continue
            stream.install(stored)
            self._by_path[path] = stream
            self.figures.add(stream)
            self.plan(stream)
            self._start_ticking()
            self._shrink()

    def _forget(self, stream: LiveStream) -> None:
        path = stream.stream.path
        stream.close()
        if self._by_path.get(path) is stream:
            del self._by_path[path]
            self._due.set(path, None)
            self.figures.forget(stream)
            self.metrics.forget(path)

    def _shrink(self) -> None:
        excess = max(0, len(self._by_path) - _STREAMS_IN_MEMORY_MAX)
        for stream in [*islice(self._by_path.values(), excess)]:
            if not stream.waits:
                self._forget(stream)

    def note_trouble(self, path: str, error: StreamError) -> None:
        with suppress(OSError, ValueError):
            logger.error("live_changes_unreadable", path=path, error=error.message)

    # ── Every second ─────────────────────────────────────────────────────────────────────────

    def _start_ticking(self) -> None:
        if not self._tending.is_started and not self._stopping:
            self._tending.start()

    def plan(self, stream: LiveStream) -> None:
        """Schedule a check for when a stream may be idle, or when its templates are due."""
        due_ms = (self.monotonic_ms() if stream.waits else stream.used_at_ms) + _IDLE_MS_MAX
        if stream.state.book.active:
            gc_interval_ms = stream.settings.templates.gc_interval_ms
            due_ms = min(due_ms, stream.collected_at_ms + gc_interval_ms)
        self._due.set(stream.stream.path, due_ms)

    async def tend_all(self) -> None:
        """Handle what is due and what has changed. Idle streams are neither."""
        now_ms = self.monotonic_ms()
        for path in self._due.due(now_ms, len(self._by_path)):
            stream = self._by_path.get(path)
            if stream is None:
                continue
            # If the commit fails, the next collection makes up for it.
            with suppress(StreamError):
                await self._tend(stream, now_ms)
            if self._by_path.get(path) is stream:
                self.plan(stream)
        active = self.figures.take_active()
        await self.metrics.write(active)
        for stream in active:
            if not stream.is_current:
                self._forget(stream)

    async def _tend(self, stream: LiveStream, now_ms: int) -> None:
        idle = not stream.waits and now_ms - stream.used_at_ms >= _IDLE_MS_MAX
        if idle or not stream.is_current:
            self._forget(stream)
        elif now_ms - stream.collected_at_ms >= stream.settings.templates.gc_interval_ms:
            stream.collected_at_ms = now_ms
            await stream.collect()

    def release(self) -> None:
        """The server is stopping: answer everyone who waits, and accept no new waits."""
        self._stopping = True
        self.waiters_max = 0
        for stream in self._by_path.values():
            stream.release()

    async def stop(self) -> None:
        self.release()
        await self._tending.stop()
        self.deadlines.stop()
        for stream in [*self._by_path.values()]:
            self._forget(stream)


class Tending(Background):
    """Drops live streams that nobody has used for a while, and old templates."""

    name = "live"

    def __init__(self, live: Live) -> None:
        super().__init__()
        self._live = live

    async def round(self) -> float:
        await self._live.tend_all()
        return _TICK_S
