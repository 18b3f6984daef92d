"""Readers that follow a stream over a connection, with Server-Sent Events or otherwise."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from headwater.core import cursors
from headwater.core.responses.about import close_reason
from headwater.http.feeds import sse
from headwater.http.messages import Payload, Sink
from headwater.service.chunks import Chunk
from headwater.service.clock import Clock
from headwater.service.feeds import Feed
from headwater.service.following import Update

if TYPE_CHECKING:
    from headwater.http.feeds.heartbeat import Heartbeat


class Cursors:
    """Cursors for live answers, from this server's clock. The rule is in `core.cursors`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def after(self, client: int | None) -> int:
        """The cursor to answer with, given the one that the client sent."""
        jitter = random.randint(1, cursors.JITTER_INTERVALS_MAX)
        return cursors.next_cursor(client, self._clock(), jitter)

    def is_past(self, client: int) -> bool:
        """Whether the clock has passed a cursor, so that it no longer matters."""
        return client < cursors.interval_at(self._clock())


class FeedReader:
    """Follows a stream through its feed, over a connection. Counts as a reader from the start."""

    __slots__ = ("_feed", "gone", "position", "sink")

    def __init__(self, feed: Feed, position: int) -> None:
        self._feed = feed
        self.position = position
        self.sink: Sink | None = None
        self.gone = False
        feed.admit()

    def begin(self, sink: Sink, heartbeat: Heartbeat | None = None) -> None:
        """Without a heartbeat, the caller must keep the connection alive."""
        self.sink = sink
        if heartbeat is not None:
            heartbeat.add(self)
        self._feed.join(self)

    def take(self, update: Update) -> int:
        """Send what is new; returns the number of bytes."""
        raise NotImplementedError

    def deleted(self) -> None:
        """Say that the stream is gone."""
        raise NotImplementedError

    def leave(self) -> None:
        self._feed.leave(self)

    def end(self) -> None:
        if self.sink is not None:
            self.sink.end()

    async def drained(self) -> bool:
        assert self.sink is not None
        return await self.sink.drained()


class SseReader(FeedReader):
    """Follows a stream with Server-Sent Events."""

    __slots__ = ("_cursor", "_cursors")

    def __init__(self, feed: Feed, position: int, cursor: int | None, cursors: Cursors) -> None:
        super().__init__(feed, position)
        self._cursors = cursors
        self._cursor = cursor
        """What the client sent, as long as it is ahead of the clock."""

    def take(self, update: Update) -> int:
        payload = update.shared if self._cursor is None else None
        if payload is None:
            payload = self._payload(update)
        assert self.sink is not None
        if self.sink.send(payload):
            self.position = update.end
        if update.closed:
            self.sink.end()
        return len(payload.framed)

    def _payload(self, update: Update) -> Payload:
        """The events of an update; shared unless this client's cursor needs its own."""
        cursor = self._cursors.after(self._cursor)
        payload = Payload(b"".join([self._events(chunk, cursor) for chunk in update.chunks]))
        if self._cursor is None:
            update.shared = payload
        elif self._cursors.is_past(self._cursor):
            self._cursor = None
        return payload

    def _events(self, chunk: Chunk, cursor: int) -> bytes:
        data = sse.data_event(chunk.config, chunk.bodies) if chunk.bodies else b""
        return data + sse.control_event(
            chunk.next_offset,
            cursor,
            up_to_date=chunk.up_to_date,
            closed=chunk.closed,
            reason=close_reason(chunk.config) if chunk.closed else None,
        )

    def deleted(self) -> None:
        assert self.sink is not None
        self.sink.send(Payload(sse.deleted_event(self._feed.stream.token(self.position))))
        self.sink.end()
