"""Feeds: the followers of a stream at its tail.

All live readers of a stream share one feed. When the stream changes, the feed hands the same update
to everyone at the tail; the encoded form is kept with the update, so it is made once for all of
them. A reader that is catching up runs on its own task; once at the tail it is an entry in a set
and costs nothing until something happens.

Thousands of readers are updated in slices, so that the loop stays responsive. What is committed
meanwhile goes out together in the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from time import perf_counter
from typing import Final, Protocol

from headwater.core.errors import OwnedElsewhere, StreamError, TooManyReaders
from headwater.core.histograms import SECONDS, Histogram
from headwater.service.chunks import Chunk
from headwater.service.entries import Entry, Event, View
from headwater.service.following import FollowedStream, Update
from headwater.service.log import Log
from headwater.service.polls import Polls

_SLICE: Final = 256


class Follower(Protocol):
    """A reader that gets everything after a position, for as long as it stays."""

    position: int
    gone: bool

    def take(self, update: Update) -> int:
        """Take an update; move the position unless it could not be sent. Returns the bytes sent."""

    def deleted(self) -> None:
        """The stream is gone; nothing more will come."""

    def end(self) -> None:
        """It can no longer be served here; it reconnects from its offset and learns why."""

    async def drained(self) -> bool:
        """Wait until most of what was sent has been read."""


class ReadFigures:
    """What readers received since the start, for monitoring."""

    def __init__(self) -> None:
        self.reads = {"catch-up": 0, "long-poll": 0, "sse": 0}
        self.events = 0
        self.event_bytes = 0
        self.delivery_seconds = Histogram(SECONDS)
        """From a commit until everyone at the tail has been sent it, per stream."""


class Feeds:
    """The feeds of all streams that have live readers."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.stopping = False
        self.watch = log.watch("feeds")
        self.figures = ReadFigures()
        self.readers = {"long-poll": 0, "sse": 0}
        """Current live readers, by mode."""
        self._feeds: dict[Entry, Feed] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def catching_up(self) -> int:
        """How many followers are being fed from disk."""
        return len(self._tasks)

    def readers_of(self, entry: Entry) -> int:
        feed = self._feeds.get(entry)
        return feed.population if feed else 0

    def of(self, entry: Entry, view: View) -> Feed:
        """The feed of a stream, with room for one more reader."""
        if entry.released:
            # It moved to another node during a look-up, and there will be no event for it.
            raise OwnedElsewhere(entry.shard)
        feed = self._feeds.get(entry)
        if feed is None:
            feed = self._feeds[entry] = Feed(self, FollowedStream(self.log, entry, view))
        if feed.population >= self.log.limits.readers_per_stream_max:
            raise TooManyReaders(self.log.limits.readers_per_stream_max)
        return feed

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run on a task of its own, and keep a reference: the loop does not."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def dismiss(self, feed: Feed) -> None:
        if self._feeds.get(feed.stream.entry) is feed:
            del self._feeds[feed.stream.entry]
        feed.stream.stop_listening(feed.on_event)

    def release_polls(self) -> None:
        """The server is stopping: end all polls and accept no new ones."""
        self.stopping = True
        for feed in list(self._feeds.values()):
            feed.polls.release()


class Feed:
    """The live readers of one stream."""

    def __init__(self, feeds: Feeds, stream: FollowedStream) -> None:
        self.feeds = feeds
        self.stream = stream
        self.population = 0
        self.polls = Polls(self)
        view = stream.view
        self._position = 0 if view is None else view.tail
        self._at_tail: dict[Follower, None] = {}
        self._joining: list[Follower] = []
        self._sending = False
        self._ended = False
        self._changed_s: float | None = None
        """When the oldest change came that no round has handled."""
        self._round_s: float | None = None
        """The same for the current round."""
        stream.listen(self.on_event)

    # ── Joining and leaving ──────────────────────────────────────────────────────────────────

    def admit(self) -> None:
        """Count a follower that is about to start, until it leaves."""
        self.population += 1
        self.feeds.readers["sse"] += 1

    def join(self, follower: Follower) -> None:
        """Start a follower: bring it to the tail, at once if the data is in memory."""
        if self.stream.view is None:
            follower.deleted()
            return
        chunk = self.stream.chunk_at(follower.position)
        if chunk is not None and chunk.up_to_date:
            self._tell(follower, chunk)
        else:
            self.feeds.spawn(self._catch_up(follower))

    def leave(self, follower: Follower) -> None:
        if not follower.gone:
            follower.gone = True
            self._at_tail.pop(follower, None)
            self.feeds.readers["sse"] -= 1
            self.left()

    def left(self, count: int = 1) -> None:
        """Readers left; drop the feed when none remain."""
        self.population -= count
        if self.population == 0:
            self.feeds.dismiss(self)

    async def _catch_up(self, follower: Follower) -> None:
        """Send chunk after chunk, no faster than the follower reads them."""
        while not follower.gone:
            try:
                chunk = await self.stream.read(follower.position)
                if self._tell(follower, chunk):
                    return
                await follower.drained()
            except Exception as error:
                self._give_up(follower, error)
                return

    def _give_up(self, follower: Follower, error: Exception) -> None:
        if self.stream.view is None:
            follower.deleted()
            return
        if not isinstance(error, StreamError):
            self.feeds.watch.failed(error)
        follower.end()

    def _tell(self, follower: Follower, chunk: Chunk) -> bool:
        """Send one chunk to one follower; True when it needs no more attention."""
        figures = self.feeds.figures
        figures.events += 1
        figures.event_bytes += follower.take(Update([chunk]))
        if chunk.up_to_date and not chunk.closed and not follower.gone:
            self._settle(follower)
        return chunk.up_to_date or follower.gone

    def _settle(self, follower: Follower) -> None:
        """From here on the follower gets changes together with the others."""
        if self._ended:
            follower.end()
        elif not self._sending and follower.position == self._position:
            self._at_tail[follower] = None
        else:
            self._joining.append(follower)

    # ── Changes ──────────────────────────────────────────────────────────────────────────────

    def on_event(self, event: Event) -> None:
        view = self.stream.view
        if event is Event.RELEASED:
            self._end()
            return
        if event is Event.DELETED or view is None:
            self._dissolve()
            return
        self.polls.answer()
        if self._changed_s is None:
            self._changed_s = perf_counter()
        if not self._sending:
            self._round(view)

    def _round(self, view: View) -> None:
        """Bring everyone from the last position to the current tail."""
        self._round_s, self._changed_s = self._changed_s, None
        chunks = self._hot_chunks()
        joining, self._joining = self._joining, []
        self._position = view.tail
        if chunks is None:
            # More was committed at once than stays in memory; each follower fetches it.
            for follower in [*self._at_tail, *joining]:
                self.feeds.spawn(self._catch_up(follower))
            self._at_tail.clear()
            return
        followers = list(self._at_tail)
        for follower in joining:
            self._bring_up(follower, view)
        self._sending = True
        self._send_slice(followers, 0, Update(chunks))

    def _hot_chunks(self) -> list[Chunk] | None:
        chunks: list[Chunk] = []
        position = self._position
        while True:
            chunk = self.stream.chunk_at(position)
            if chunk is None:
                return None
            chunks.append(chunk)
            position = chunk.end
            if chunk.up_to_date:
                return chunks

    def _bring_up(self, follower: Follower, view: View) -> None:
        """Bring a follower that reached the tail during a round to the current tail."""
        if follower.gone:
            return
        if follower.position == view.tail and not view.closed:
            self._at_tail[follower] = None
        else:
            self.feeds.spawn(self._catch_up(follower))

    def _send_slice(self, followers: list[Follower], first: int, update: Update) -> None:
        last = min(first + _SLICE, len(followers))
        sent_bytes = 0
        for index in range(first, last):
            try:
                sent_bytes += followers[index].take(update)
            except Exception as error:
                self._give_up(followers[index], error)
        figures = self.feeds.figures
        figures.events += last - first
        figures.event_bytes += sent_bytes
        if last < len(followers):
            asyncio.get_running_loop().call_soon(self._send_slice, followers, last, update)
            return
        self._sending = False
        if followers and self._round_s is not None:
            figures.delivery_seconds.observe(perf_counter() - self._round_s)
        view = self.stream.view
        if view is not None:
            stale = view.tail != self._position or (view.closed and not update.closed)
            if stale or self._joining:
                self._round(view)

    # ── The end ──────────────────────────────────────────────────────────────────────────────

    def _end(self) -> None:
        """Nobody can be served here any longer. Followers reconnect from their offset."""
        self._ended = True
        self.feeds.dismiss(self)
        for follower in [*self._at_tail, *self._joining]:
            if not follower.gone:
                follower.end()
        self._joining.clear()
        self.polls.release()

    def _dissolve(self) -> None:
        """The stream is gone: end every follower."""
        self.feeds.dismiss(self)
        for follower in [*self._at_tail, *self._joining]:
            if not follower.gone:
                follower.deleted()
        self._joining.clear()
        self.polls.dissolve()
