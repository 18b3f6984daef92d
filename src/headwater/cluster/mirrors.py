"""Mirrors: streams of other nodes, followed by this one for its readers.

However many readers follow a stream here, its owner sends each append once. It sends news: appends
in stored form, in order, with the stream's settings whenever they have changed. A mirror is an
entry like those of streams that this node owns, except that news moves it and nothing is ever
decided on it. So feeds and polls serve from it as from any other entry, and what is not in memory
is read from the database, which has everything that an owner sends.

News that does not begin where the last ended is refused; the relay then starts again at the
mirror's own tail. So a mirror has no gaps and no duplicates, whoever owns the stream meanwhile.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import IntEnum

import msgspec

from headwater.cluster.frames import OutOfStep
from headwater.core.errors import OwnedElsewhere, StreamError, StreamGone, StreamNotFound
from headwater.core.limits import Limits
from headwater.core.stream import StreamConfig, StreamState
from headwater.service.chunks import Chunk
from headwater.service.entries import Entry, Event, View
from headwater.service.hot_tail import HeldBytes


class Fate(IntEnum):
    """What happened to a stream."""

    THERE = 0
    DELETED = 1
    KEPT_FOR_FORKS = 2
    REPLACED = 3
    """Another stream has its path."""


class News(msgspec.Struct, array_like=True, frozen=True):
    start: int
    bodies: list[bytes] = []
    closed: bool = False
    config: StreamConfig | None = None
    """For the first news, or if it has changed."""
    fate: Fate = Fate.THERE

    @classmethod
    def of(cls, chunk: Chunk, *, config: bool) -> News:
        return cls(chunk.start, chunk.bodies, chunk.closed, chunk.config if config else None)


def encode(news: News) -> bytes:
    return msgspec.msgpack.encode(news)


def decode(body: bytes) -> News:
    return msgspec.msgpack.decode(body, type=News)


class MirroredEntry(Entry):
    """A stream of another node. Once it is released, requests are forwarded to that node."""

    __slots__ = ()

    def require_view(self) -> View:
        if self.released:
            raise OwnedElsewhere(self.shard)
        return super().require_view()


class Mirror:
    def __init__(self, path: str, shard: int, held: HeldBytes, limits: Limits) -> None:
        self._held = held
        self._limits = limits
        self._moved = asyncio.Event()
        self.fate = Fate.THERE
        self.is_over = False
        """Whether there will be no more news."""
        self.entry = MirroredEntry(path, held)
        self.entry.shard = shard
        self.entry.loaded = True

    @property
    def path(self) -> str:
        return self.entry.path

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be appended."""
        return self.entry.view is not None and self.entry.view.closed

    @property
    def token(self) -> str | None:
        """Where a relay has to begin; None if anywhere."""
        view = self.entry.view
        return None if view is None else view.config.lineage.token_at(view.tail)

    # ── News ─────────────────────────────────────────────────────────────────────────────────

    def take(self, news: News) -> None:
        """Let readers see what the owner has sent."""
        if news.fate is not Fate.THERE:
            self.lose(news.fate)
            return
        view = self._view(news)
        if view is None:
            return
        if news.start != view.tail:
            raise OutOfStep(f"at {view.tail}, and news of {news.start}")
        for body in news.bodies:
            view.hot.push(body, self._limits.hot_bytes_per_stream_max)
            view.tail += len(body)
        changed = bool(news.bodies) or news.closed > view.closed
        view.closed = view.closed or news.closed
        self._tell(Event.CHANGED if changed else None)

    def _view(self, news: News) -> View | None:
        """The view for news; None if it is about another stream, and this one is gone."""
        view, config = self.entry.view, news.config
        if view is None:
            if config is None:
                raise OutOfStep("nothing is known of the stream yet")
            state = StreamState(config, news.start, 0, 0, 0)
            view = self.entry.view = View(state, self._held)
        elif config is not None:
            if config.id != view.config.id:
                self.lose(Fate.REPLACED)
                return None
            view.config = config
        return view

    def lose(self, fate: Fate) -> None:
        """The stream no longer exists."""
        self.is_over, self.fate = True, fate
        view = self.entry.view
        if fate is Fate.KEPT_FOR_FORKS and view is not None:
            view.soft_deleted = True
        else:
            self.entry.view = None
        self._tell(Event.DELETED)

    def missing(self) -> StreamError | None:
        """Why there is nothing to read at its path; None if there may be."""
        if self.fate is Fate.KEPT_FOR_FORKS:
            return StreamGone(self.path)
        return StreamNotFound(self.path) if self.fate is Fate.DELETED else None

    def clear(self) -> None:
        """Free memory."""
        if self.entry.view is not None:
            self.entry.view.hot.clear()

    def end(self) -> None:
        """It is no longer followed. Its readers reconnect, and find the right node."""
        if not self.is_over:
            self.is_over = self.entry.released = True
            self._tell(Event.RELEASED)

    def _tell(self, event: Event | None) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        if event is not None:
            self.entry.notify(event)

    # ── Waiting ──────────────────────────────────────────────────────────────────────────────

    async def reach(self, news: News, patience_s: float) -> bool:
        """Wait until the mirror has caught up with the owner; False if that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not self.is_over:
                    view = self.entry.view
                    if view is not None:
                        if self._view(news) is None:
                            return False
                        if view.tail >= news.start and view.closed >= news.closed:
                            return True
                    await self._moved.wait()
        return False
