"""Live reads: long-poll and Server-Sent Events.

All live readers of a stream hang off one feed, and the feed off the stream. When the stream
changes, the feed encodes the new part once and hands the same bytes to everyone at the tail. A
reader that is still catching up runs on a task of its own; once at the tail it is an entry in a
set and costs nothing until something happens.

Handing out to thousands of readers is done in slices, so that the loop stays responsive. What is
committed meanwhile goes out together in the next round.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Final

from headwater.core import cursors
from headwater.core.errors import StreamError, StreamGone, StreamNotFound, TooManyReaders
from headwater.core.histograms import SECONDS, Histogram
from headwater.core.stream import StreamConfig
from headwater.http import sse
from headwater.http.long_poll import Polls
from headwater.http.messages import Payload, Sink
from headwater.service.entries import Entry, Event, View
from headwater.service.log import Log
from headwater.service.reading import Chunk

if TYPE_CHECKING:
    from headwater.http.beats import Heartbeat

_SLICE: Final = 256


class SseReader:
    """One event stream: where it is and how to reach it."""

    __slots__ = ("cursor", "feed", "gone", "position", "sink")

    def __init__(self, feed: Feed, position: int, cursor: int | None) -> None:
        self.feed = feed
        self.position = position
        self.cursor = cursor
        """What the client sent, as long as that is ahead of the clock."""
        self.sink: Sink | None = None
        self.gone = False

    def send(self, payload: Payload, position: int) -> None:
        assert self.sink is not None
        if self.sink.send(payload):
            self.position = position

    def end(self) -> None:
        if self.sink is not None:
            self.sink.end()


class ReadFigures:
    """What readers got since the start, for those who watch them."""

    def __init__(self) -> None:
        self.reads = {"catch-up": 0, "long-poll": 0, "sse": 0}
        self.events = 0
        self.event_bytes = 0
        self.delivery_seconds = Histogram(SECONDS)
        """From a commit to the moment when everyone at the tail has been sent it, by stream."""


class Hub:
    """The feeds of all streams that have live readers."""

    def __init__(self, log: Log, long_poll_timeout_ms: int, heartbeat: Heartbeat) -> None:
        self.log = log
        self.long_poll_timeout_s = long_poll_timeout_ms / 1000
        self.heartbeat = heartbeat
        self.stopping = False
        self.figures = ReadFigures()
        self._feeds: dict[Entry, Feed] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def readers(self) -> dict[str, int]:
        """Live readers at this moment, by the way in which they read."""
        everyone = sum(feed.population for feed in self._feeds.values())
        waiting = sum(len(feed.polls) for feed in self._feeds.values())
        return {"long-poll": waiting, "sse": everyone - waiting}

    @property
    def catching_up(self) -> int:
        """How many event streams are fed from the disk."""
        return len(self._tasks)

    def readers_of(self, entry: Entry) -> int:
        feed = self._feeds.get(entry)
        return feed.population if feed else 0

    def feed(self, entry: Entry, view: View) -> Feed:
        feed = self._feeds.get(entry)
        if feed is None:
            feed = self._feeds[entry] = Feed(self, entry, view)
        if feed.population >= self.log.limits.readers_per_stream_max:
            raise TooManyReaders(self.log.limits.readers_per_stream_max)
        return feed

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run on a task of its own; the loop itself would not keep it alive."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def dismiss(self, feed: Feed) -> None:
        if self._feeds.get(feed.entry) is feed:
            del self._feeds[feed.entry]
        feed.entry.listeners.discard(feed.on_event)

    def cursor(self, client: int | None) -> int:
        jitter = random.randint(1, cursors.JITTER_INTERVALS_MAX)
        return cursors.next_cursor(client, self.log.clock(), jitter)

    def release_polls(self) -> None:
        """The server is stopping: nobody is kept waiting, and nobody begins to."""
        self.stopping = True
        for feed in list(self._feeds.values()):
            feed.polls.release()


class Feed:
    """The live readers of one stream."""

    def __init__(self, hub: Hub, entry: Entry, view: View) -> None:
        self.hub = hub
        self.entry = entry
        self.config: StreamConfig = view.config
        self.population = 0
        self._position = view.tail
        self._at_tail: dict[SseReader, None] = {}
        self._joining: list[SseReader] = []
        self.polls = Polls(self)
        self._sending = False
        self._changed_s: float | None = None
        """When the oldest change came that no round has taken up."""
        self._round_s: float | None = None
        """The same for the round that is under way."""
        entry.listeners.add(self.on_event)

    # ── Server-Sent Events ───────────────────────────────────────────────────────────────────

    def admit(self, position: int, cursor: int | None) -> SseReader:
        """A reader whose response is about to begin. It counts until it leaves."""
        self.population += 1
        return SseReader(self, position, cursor)

    def join(self, reader: SseReader, sink: Sink) -> None:
        """A reader begins: bring it to the tail, at once if memory allows."""
        reader.sink = sink
        self.hub.heartbeat.add(reader)
        view = self.entry.view
        if view is None or view.config.id != self.config.id:
            self._send_deleted(reader)
            return
        chunk = self.hub.log.chunk_at(view, reader.position)
        if chunk is not None and chunk.up_to_date:
            self._send_chunk(reader, chunk)
        else:
            self.hub.spawn(self._catch_up(reader))

    def leave(self, reader: SseReader) -> None:
        if not reader.gone:
            reader.gone = True
            self._at_tail.pop(reader, None)
            self.left()

    async def _catch_up(self, reader: SseReader) -> None:
        """Send chunk after chunk, no faster than the reader takes them."""
        log = self.hub.log
        assert reader.sink is not None
        while not reader.gone:
            view = self.entry.view
            if view is None or view.config.id != self.config.id or view.soft_deleted:
                self._send_deleted(reader)
                return
            chunk = log.chunk_at(view, reader.position)
            if chunk is None:
                try:
                    chunk = await log.read_cold(
                        self.entry, self.config.lineage.offset_at(reader.position)
                    )
                except (StreamNotFound, StreamGone):
                    self._send_deleted(reader)
                    return
                except StreamError:
                    # An event stream cannot change its status any more. The reader comes back
                    # with its offset and is told then what is wrong.
                    reader.end()
                    return
            if self._send_chunk(reader, chunk):
                return
            await reader.sink.drained()

    def _send_chunk(self, reader: SseReader, chunk: Chunk) -> bool:
        """Send one chunk; True when the reader needs no more attention."""
        payload = Payload(self._events(chunk, self.hub.cursor(reader.cursor)))
        reader.send(payload, chunk.end)
        self.hub.figures.events += 1
        self.hub.figures.event_bytes += len(payload.framed)
        if chunk.closed:
            reader.end()
        elif chunk.up_to_date and not reader.gone:
            self._settle(reader)
        return chunk.up_to_date or reader.gone

    def _settle(self, reader: SseReader) -> None:
        """From here on the reader hears of changes together with the others."""
        if reader.cursor is not None and reader.cursor < cursors.interval_at(self.hub.log.clock()):
            reader.cursor = None
        if not self._sending and reader.position == self._position:
            self._at_tail[reader] = None
        else:
            self._joining.append(reader)

    def _events(self, chunk: Chunk, cursor: int) -> bytes:
        data = sse.data_event(self.config, chunk.bodies) if chunk.bodies else b""
        return data + sse.control_event(
            chunk.next_offset, cursor, up_to_date=chunk.up_to_date, closed=chunk.closed
        )

    def _send_deleted(self, reader: SseReader) -> None:
        token = str(self.config.lineage.offset_at(reader.position))
        reader.send(Payload(sse.deleted_event(token)), reader.position)
        reader.end()

    # ── Changes ──────────────────────────────────────────────────────────────────────────────

    def on_event(self, event: Event) -> None:
        view = self.entry.view
        if event is Event.DELETED or view is None or view.config.id != self.config.id:
            self._dissolve()
            return
        self.polls.answer(view)
        if self._changed_s is None:
            self._changed_s = perf_counter()
        if not self._sending:
            self._round(view)

    def _round(self, view: View) -> None:
        """Bring everyone from the last position to the tail of this moment."""
        self._round_s, self._changed_s = self._changed_s, None
        chunks = self._hot_chunks(view)
        if chunks is None:
            # More was committed at once than stays in memory; each reader fetches it.
            for reader in [*self._at_tail, *self._joining]:
                self.hub.spawn(self._catch_up(reader))
            self._at_tail.clear()
            self._joining.clear()
            self._position = view.tail
            return
        readers = list(self._at_tail)
        joining, self._joining = self._joining, []
        self._position = view.tail
        for reader in joining:
            self._bring_up(reader, view)
        self._sending = True
        self._send_slice(readers, 0, chunks, self._payload(chunks, None))

    def _hot_chunks(self, view: View) -> list[Chunk] | None:
        chunks: list[Chunk] = []
        position = self._position
        while True:
            chunk = self.hub.log.chunk_at(view, position)
            if chunk is None:
                return None
            chunks.append(chunk)
            position = chunk.end
            if chunk.up_to_date:
                return chunks

    def _bring_up(self, reader: SseReader, view: View) -> None:
        """Someone who reached the tail while a round was under way: bring it to this one."""
        if reader.gone:
            return
        if reader.position == view.tail and not view.closed:
            self._at_tail[reader] = None
        else:
            self.hub.spawn(self._catch_up(reader))

    def _send_slice(
        self, readers: list[SseReader], first: int, chunks: list[Chunk], shared: Payload
    ) -> None:
        end, closed = chunks[-1].end, chunks[-1].closed
        last = min(first + _SLICE, len(readers))
        for index in range(first, last):
            reader = readers[index]
            payload = shared if reader.cursor is None else self._payload(chunks, reader.cursor)
            reader.send(payload, end)
            if closed:
                reader.end()
        figures = self.hub.figures
        figures.events += last - first
        figures.event_bytes += (last - first) * len(shared.framed)
        if last < len(readers):
            asyncio.get_running_loop().call_soon(self._send_slice, readers, last, chunks, shared)
            return
        self._sending = False
        if readers and self._round_s is not None:
            figures.delivery_seconds.observe(perf_counter() - self._round_s)
        view = self.entry.view
        if view is not None and view.config.id == self.config.id:
            stale = view.tail != self._position or (view.closed and not closed)
            if stale or self._joining:
                self._round(view)

    def _payload(self, chunks: list[Chunk], cursor: int | None) -> Payload:
        return Payload(b"".join(self._events(chunk, self.hub.cursor(cursor)) for chunk in chunks))

    # ── The end ──────────────────────────────────────────────────────────────────────────────

    def _dissolve(self) -> None:
        """The stream is gone: everyone is told."""
        self.hub.dismiss(self)
        for reader in [*self._at_tail, *self._joining]:
            if not reader.gone:
                self._send_deleted(reader)
        self._joining.clear()
        self.polls.dissolve()

    def deleted_error(self) -> StreamError:
        view = self.entry.view
        if view is not None and view.soft_deleted:
            return StreamGone(self.entry.path)
        return StreamNotFound(self.entry.path)

    def left(self, count: int = 1) -> None:
        """Readers went; a feed without any is given up."""
        self.population -= count
        if self.population == 0:
            self.hub.dismiss(self)
