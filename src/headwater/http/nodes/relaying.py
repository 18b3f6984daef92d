"""Relayed feeds: a node follows another node's stream once, for all of its own readers.

The owner sends a feed (GET /v1/cluster/feed) to each node that asks for one; to the owner, that is
one more live reader. The node keeps a mirror of the stream, which its readers are attached to
(`headwater.cluster.mirrors`). A new reader sees everything that was acknowledged before: the owner
is asked for the stream's tail, once for all readers that arrived meanwhile, and none of them starts
before the mirror has reached it. When a feed ends, because the stream has a new owner or the owner
is gone, it is reopened where the mirror ends. Readers only notice if no owner is found for too
long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Final
from urllib.parse import quote

import msgspec
import structlog

from headwater.cluster.frames import frame
from headwater.cluster.mirrors import Fate, Mirror, News, decode, encode
from headwater.cluster.node import Node
from headwater.core.errors import (
    InvalidQuery,
    OwnedElsewhere,
    StorageUnavailable,
    StreamError,
    StreamGone,
)
from headwater.core.offsets import Anchor, parse_offset
from headwater.core.paths import check_path
from headwater.core.stream import StreamConfig
from headwater.http.answers import FEED_TYPE, NO_STORE
from headwater.http.errors import error_response
from headwater.http.feeds.heartbeat import KEEP_ALIVE_S, Heartbeat
from headwater.http.feeds.readers import FeedReader
from headwater.http.messages import Answer, EventStream, Payload, Request, Response, Sink
from headwater.http.nodes.frame_sink import FrameSink
from headwater.http.nodes.hinting import Telling
from headwater.http.queries import parse_query
from headwater.http.wire.outcomes import report
from headwater.service.entries import Entry
from headwater.service.feeds import Feed, Feeds
from headwater.service.following import Update
from headwater.service.hot_tail import HeldBytes
from headwater.service.log import Log
from headwater.service.waiting import shared

FEED: Final = b"/v1/cluster/feed"
MIRRORS_MAX: Final = 10_000
_LINGER_S: Final = 20.0
"""How long a stream without readers is followed."""
_SILENCE_S_MAX: Final = 3.0 * KEEP_ALIVE_S
_LOOK_AGAIN_S: Final = 0.2
_REPLACED_MAX: Final = 3

_FATES: Final = {404: Fate.DELETED, 410: Fate.KEPT_FOR_FORKS}

Forward = Callable[[Request, int], Awaitable[Answer]]

log = structlog.get_logger()

# ── At the owner ─────────────────────────────────────────────────────────────────────────────


class FeedResource:
    """GET /v1/cluster/feed."""

    def __init__(self, log: Log, feeds: Feeds, heartbeat: Heartbeat, telling: Telling) -> None:
        self._log = log
        self._feeds = feeds
        self._heartbeat = heartbeat
        self.telling = telling

    async def get(self, request: Request) -> Answer:
        query = {name: values[0] for name, values in parse_query(request.query).items()}
        if query.get("hints") == "true":
            return self.telling.answer()
        if "stream" not in query:
            raise InvalidQuery("say which stream: stream=…")
        try:
            return await self._feed(query)
        except OwnedElsewhere as error:
            # Not raised: that would forward the request, and the feed would go through two nodes.
            return error_response(error)

    async def _feed(self, query: dict[str, str]) -> Answer:
        entry = await self._log.entry(check_path(query["stream"]))
        after = parse_offset(query["after"]) if "after" in query else Anchor.TAIL
        chunk = self._log.read_hot(entry, after)
        if query.get("live") != "true":
            view = self._log.view(entry)
            news = News(view.tail, closed=view.closed, config=view.config)
            return Response(200, [("Content-Type", FEED_TYPE), NO_STORE], encode(news))
        if chunk is None:
            chunk = await self._log.read_cold(entry, after)
        reader = RelayReader(self._feeds.of(entry, self._log.view(entry)), chunk.start)

        def start(sink: Sink) -> None:
            reader.begin(sink, self._heartbeat)

        return EventStream([("Content-Type", FEED_TYPE), NO_STORE], start, reader.leave)


class RelayReader(FeedReader):
    """Another node that follows a stream of this one."""

    __slots__ = ("_told",)

    def __init__(self, feed: Feed, position: int) -> None:
        super().__init__(feed, position)
        self._told: StreamConfig | None = None

    def take(self, update: Update) -> int:
        frames: list[bytes] = []
        for chunk in update.chunks:
            frames.append(frame(encode(News.of(chunk, config=chunk.config is not self._told))))
            self._told = chunk.config
        payload = Payload(b"".join(frames))
        assert self.sink is not None
        if self.sink.send(payload):
            self.position = update.end
        if update.closed:
            self.sink.end()
        return len(payload.framed)

    def deleted(self) -> None:
        gone = isinstance(self._feed.stream.missing(), StreamGone)
        fate = Fate.KEPT_FOR_FORKS if gone else Fate.DELETED
        assert self.sink is not None
        self.sink.send(Payload(frame(encode(News(self.position, fate=fate)))))
        self.sink.end()


# ── At the node with the readers ─────────────────────────────────────────────────────────────


class Relay:
    """The streams of other nodes that this one follows."""

    def __init__(self, log: Log, node: Node, forward: Forward, patience_s: float) -> None:
        self.log = log
        self.node = node
        self.forward = forward
        self.patience_s = patience_s
        self._held = HeldBytes()
        self._lines: dict[str, Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    async def entry(self, path: str) -> Entry:
        """What live readers of a stream attach to, with everything acknowledged so far."""
        shard = 0
        for _ in range(_REPLACED_MAX):
            line = self._lines.get(path)
            if line is None or line.mirror.entry.shard in self.node.shards:
                try:
                    return await self.log.entry(path)
                except OwnedElsewhere as error:
                    shard = error.shard
                    line = self._lines.get(path) or self._begin(path, shard)
            await line.confirm()
            if not line.mirror.is_over:
                return line.mirror.entry
        raise OwnedElsewhere(shard)

    def _begin(self, path: str, shard: int) -> Line:
        if len(self._lines) >= MIRRORS_MAX:
            # The readers are forwarded one by one, then.
            raise OwnedElsewhere(shard)
        mirror = Mirror(path, shard, self._held, self.log.limits)
        line = self._lines[path] = Line(self, mirror)
        return line

    def over(self, line: Line) -> None:
        if self._lines.get(line.mirror.path) is line:
            del self._lines[line.mirror.path]

    def release_hot(self) -> None:
        """Drop mirrored data over the limit. Readers that still need it read from the database."""
        if self._held.total > self.log.limits.hot_bytes_max:
            for line in self._lines.values():
                line.mirror.clear()

    def stop(self) -> None:
        for line in list(self._lines.values()):
            line.stop()


class Line:
    """The link from the owner of a stream, whichever node that is, to its mirror here."""

    def __init__(self, relay: Relay, mirror: Mirror) -> None:
        self._relay = relay
        self.mirror = mirror
        self._sink: FrameSink | None = None
        self._over = asyncio.Event()
        self._used_s = monotonic()
        self._asked: asyncio.Task[None] | None = None
        """The current request to the owner, and the one after it."""
        self._to_ask: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_LINGER_S, self._linger)
        self._following = loop.create_task(self._follow())

    def _linger(self) -> None:
        """Stop following after a while without readers. Those that poll return within moments."""
        if not self.mirror.entry.listeners and monotonic() - self._used_s >= _LINGER_S:
            self.stop()
        else:
            self._timer = asyncio.get_running_loop().call_later(_LINGER_S, self._linger)

    def stop(self) -> None:
        self._following.cancel()

    # ── The feed ─────────────────────────────────────────────────────────────────────────────

    async def _follow(self) -> None:
        mirror, relay = self.mirror, self._relay
        heard_s = monotonic()
        try:
            while not mirror.is_over and not mirror.is_closed:
                if await self._attempt():
                    heard_s = monotonic()
                elif monotonic() - heard_s > relay.patience_s:
                    return
                else:
                    await relay.node.change(_LOOK_AGAIN_S)
                    await self._look()
            if not mirror.is_over:
                # Nothing more will come. Keep it for readers that have not read all of it.
                await self._over.wait()
        except StreamError:
            # No owner in all this time. Readers reconnect, perhaps to another node.
            pass
        except Exception as error:
            report(error)
        finally:
            self._timer.cancel()
            relay.over(self)
            mirror.end()

    async def _attempt(self) -> bool:
        """Follow the stream until the feed ends; returns whether there was one."""
        answer = await self._ask(live=True)
        if isinstance(answer, Response):
            return False
        most = self._relay.log.limits.answer_bytes_max
        sink = self._sink = FrameSink(self._take, _SILENCE_S_MAX, most)
        try:
            await sink.run(answer)
        finally:
            self._sink = None
        return sink.heard

    def _take(self, body: bytes) -> None:
        self.mirror.take(decode(body))
        self._relay.release_hot()

    async def _ask(self, *, live: bool) -> Answer:
        """Ask the owner for a feed, or only for the tail. A refusal may end the mirror."""
        mirror = self.mirror
        query = f"stream={quote(mirror.path, safe='')}"
        if live:
            query += "&live=true"
            query += f"&after={mirror.token}" if mirror.token else ""
        request = Request("GET", FEED, query.encode(), {})
        request.is_of_node = True
        answer = await self._relay.forward(request, mirror.entry.shard)
        if isinstance(answer, Response) and answer.status != 200:
            if answer.status in _FATES:
                mirror.lose(_FATES[answer.status])
            elif answer.status < 500:
                # Its history differs from what is known here: the database was restored.
                mirror.end()
        return answer

    async def _look(self) -> None:
        """Find the owner again; a recreated stream may be in another shard."""
        with suppress(StorageUnavailable):
            await self._relay.node.refresh()
            (shard,) = await self._relay.node.shards_of({self.mirror.path})
            self.mirror.entry.shard = shard

    # ── The tail ─────────────────────────────────────────────────────────────────────────────

    async def confirm(self) -> None:
        """Wait until everything acknowledged before this call is here."""
        self._used_s = monotonic()
        mirror = self.mirror
        if self._to_ask is None:
            self._to_ask = asyncio.ensure_future(self._question())
            # Nobody may be left to receive the error.
            self._to_ask.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        await shared(self._to_ask)
        if mirror.is_over:
            self._over.set()
            self._relay.over(self)
        if (missing := mirror.missing()) is not None:
            raise missing

    async def _question(self) -> None:
        while self._asked is not None:
            await asyncio.wait([self._asked])
        self._asked, self._to_ask = self._to_ask, None
        mirror = self.mirror
        try:
            answer = await self._ask(live=False)
            if mirror.is_over:
                return
            if not isinstance(answer, Response) or answer.status != 200:
                raise OwnedElsewhere(mirror.entry.shard)
            if not await mirror.reach(self._news(answer), self._relay.patience_s):
                if self._sink is not None:
                    # It is silent, and should not be.
                    self._sink.end()
                raise OwnedElsewhere(mirror.entry.shard)
        finally:
            self._asked = None

    def _news(self, answer: Response) -> News:
        assert isinstance(answer.body, bytes)
        try:
            return decode(answer.body)
        except msgspec.DecodeError:
            # Whatever this node is, it does not know the stream.
            raise OwnedElsewhere(self.mirror.entry.shard) from None
