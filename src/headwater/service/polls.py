"""Polls: clients that wait at the tail of a stream for one answer.

A poll is answered once: with what has become readable, with "nothing new" on timeout or when the
server stops, or with why the stream is gone.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from headwater.service.chunks import Chunk
from headwater.service.following import Update

if TYPE_CHECKING:
    from headwater.service.feeds import Feed


class Poll(Protocol):
    position: int
    timer: asyncio.TimerHandle | None

    def take(self, update: Update) -> None:
        """There is something to read."""

    def nothing_new(self, at_tail: Chunk) -> None: ...

    def failed(self, error: Exception) -> None:
        """The stream is gone, or what is new cannot be read."""


class Polls:
    """The polls at the tail of one stream."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._waiting: dict[Poll, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, poll: Poll, timeout_s: float) -> None:
        """Add a poll that waits at the tail."""
        self._waiting[poll] = None
        self._feed.population += 1
        self._feed.feeds.readers["long-poll"] += 1
        poll.timer = asyncio.get_running_loop().call_later(timeout_s, self._time_out, poll)
        if self._feed.feeds.stopping:
            self._time_out(poll)

    def leave(self, poll: Poll) -> None:
        """Nobody waits for the answer, or it is known."""
        _stop_timer(poll)
        if poll in self._waiting:
            del self._waiting[poll]
            self._feed.feeds.readers["long-poll"] -= 1
            self._feed.left()

    def _time_out(self, poll: Poll) -> None:
        self.leave(poll)
        stream = self._feed.stream
        view = stream.view
        if view is None:
            poll.failed(stream.missing())
        else:
            poll.nothing_new(Chunk(view.config, view.tail, view.tail, [], True, view.closed))

    def release(self) -> None:
        """End all polls."""
        for poll in list(self._waiting):
            self._time_out(poll)

    def dissolve(self) -> None:
        """The stream is gone."""
        error = self._feed.stream.missing()
        for poll in self._take_all():
            poll.failed(error)

    def answer(self) -> None:
        """Answer everyone who waits. What is read for one is read for all."""
        if not self._waiting:
            return
        by_position: dict[int, list[Poll]] = {}
        for poll in self._take_all():
            by_position.setdefault(poll.position, []).append(poll)
        for position, polls in by_position.items():
            chunk = self._feed.stream.chunk_at(position)
            if chunk is None:
                self._feed.feeds.spawn(self._answer_cold(position, polls))
            else:
                self._tell(polls, chunk)
            self._feed.left(len(polls))

    async def _answer_cold(self, position: int, polls: list[Poll]) -> None:
        try:
            chunk = await self._feed.stream.read(position)
        except Exception as error:
            # Whatever failed, they are waiting for an answer.
            for poll in polls:
                poll.failed(error)
            return
        self._tell(polls, chunk)

    def _tell(self, polls: list[Poll], chunk: Chunk) -> None:
        if not chunk.bodies:
            for poll in polls:
                poll.nothing_new(chunk)
            return
        update = Update([chunk])
        for poll in polls:
            poll.take(update)

    def _take_all(self) -> list[Poll]:
        polls = list(self._waiting)
        self._waiting.clear()
        self._feed.feeds.readers["long-poll"] -= len(polls)
        for poll in polls:
            _stop_timer(poll)
        return polls


def _stop_timer(poll: Poll) -> None:
    if poll.timer is not None:
        poll.timer.cancel()
