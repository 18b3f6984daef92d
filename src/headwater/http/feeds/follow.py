"""Several streams over one connection: POST /v1/follow.

Browsers open six connections to an HTTP/1.1 server, and a page may follow more streams than that.
Here one event stream carries many. Each stream has the reader it would have on its own connection,
with the same events; a `stream` event says whose events come next, whenever that changes. A stream
that cannot be followed gets a `failed` event and does not disturb the others.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headwater.core.access import Permission
from headwater.core.errors import StreamError
from headwater.core.json_bodies import decode_body
from headwater.core.limits import FOLLOWED_MAX
from headwater.core.offsets import parse_offset
from headwater.core.paths import check_path
from headwater.http.answers import EVENT_HEADERS
from headwater.http.feeds import sse
from headwater.http.feeds.heartbeat import Heartbeat
from headwater.http.feeds.readers import Cursors, SseReader
from headwater.http.messages import EventStream, Payload, Request, Sink
from headwater.service.feeds import Feeds
from headwater.service.log import Log


class FollowBody(msgspec.Struct, forbid_unknown_fields=True):
    streams: Annotated[dict[str, str], msgspec.Meta(min_length=1, max_length=FOLLOWED_MAX)]
    """Where to begin, by path."""


class FollowResource:
    def __init__(self, log: Log, feeds: Feeds, heartbeat: Heartbeat) -> None:
        self._log = log
        self._feeds = feeds
        self._heartbeat = heartbeat
        self._cursors = Cursors(log.clock)
        self.followed = log.entry
        """Finds a stream to follow; in a cluster, streams of other nodes too."""

    async def run(self, request: Request) -> EventStream:
        body = decode_body(request.body, FollowBody)
        channel = Channel(request)
        try:
            for path, offset in body.streams.items():
                try:
                    request.demand(Permission.READ, path)
                    await self._open(channel, path, offset)
                except StreamError as error:
                    channel.failures.append(sse.failed_event(path, error.code, error.message))
            channel.enter_room()
        except BaseException:
            channel.stopped()
            raise

        def start(sink: Sink) -> None:
            self._heartbeat.add(channel)
            channel.start(sink)

        return EventStream(list(EVENT_HEADERS), start, channel.stopped)

    async def _open(self, channel: Channel, path: str, offset: str) -> None:
        where = parse_offset(offset)
        entry = await self.followed(check_path(path))
        while (chunk := self._log.read_hot(entry, where)) is None:
            chunk = await self._log.read_pieces(entry, where)
            if not entry.released:
                break
            # In a cluster, another node may own it by now.
            entry = await self.followed(path)
        view = self._log.view(entry)
        feed = self._feeds.of(entry, view)
        reader = SseReader(feed, chunk.start, None, self._cursors)
        self._feeds.figures.reads["sse"] += 1
        channel.parts.append(Part(channel, reader, sse.stream_event(path, view.config)))


class Channel:
    """The connection that all streams share."""

    def __init__(self, request: Request) -> None:
        self.failures: list[bytes] = []
        self.parts: list[Part] = []
        self.sink: Sink | None = None
        self.gone = False
        self._request = request
        self._speaking: Part | None = None
        self._places = 0

    def enter_room(self) -> None:
        """Each stream counts as a live read. The connection itself counts for the first."""
        readers = self._request.peer.readers
        while readers is not None and self._places < len(self.parts) - 1:
            readers.enter(self._request.holder, self._request.peer.address)
            self._places += 1

    def start(self, sink: Sink) -> None:
        self.sink = sink
        if self.failures:
            sink.send(Payload(b"".join(self.failures)))
        for part in list(self.parts):
            part.reader.begin(part)
        self._end_if_done()

    def send(self, part: Part, payload: Payload) -> bool:
        assert self.sink is not None
        if self._speaking is not part:
            self._speaking = part
            if not self.sink.send(part.introduction):
                return False
        return self.sink.send(payload)

    def finish(self, part: Part) -> None:
        """One stream has ended."""
        part.reader.leave()
        if part in self.parts:
            self.parts.remove(part)
            self._end_if_done()

    def _end_if_done(self) -> None:
        if not self.parts:
            self.end()

    def end(self) -> None:
        if self.sink is not None:
            self.sink.end()

    def stopped(self) -> None:
        self.gone = True
        for part in self.parts:
            part.reader.leave()
        readers = self._request.peer.readers
        while readers is not None and self._places:
            readers.leave(self._request.holder)
            self._places -= 1


class Part:
    """One stream on the connection. To its reader, this is the connection."""

    # Only groups care how a connection ended.
    ended_here = cut_off = False

    def __init__(self, channel: Channel, reader: SseReader, introduction: bytes) -> None:
        self._channel = channel
        self.reader = reader
        self.introduction = Payload(introduction)

    @property
    def paused(self) -> bool:
        return self._sink.paused

    def send(self, payload: Payload) -> bool:
        return self._channel.send(self, payload)

    async def drained(self) -> bool:
        return await self._sink.drained()

    def end(self) -> None:
        self._channel.finish(self)

    @property
    def _sink(self) -> Sink:
        assert self._channel.sink is not None
        return self._channel.sink
