"""Hints from node to node: which streams have changed, for nodes with subscriptions.

A node with subscriptions keeps a channel (GET /v1/cluster/feed?hints=true) open to each of the
others. What is sent over it, and what happens while there is none, is in
`headwater.service.subscriptions.hints`. A node without subscriptions keeps no channel, and a node
without listeners pays nothing. Whenever a node looks at the cluster, it sends a sign of life; a
channel that is silent for longer than a node may be is dropped and reopened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from headwater.cluster.frames import frame
from headwater.cluster.node import Node
from headwater.core.cluster import NodeSeen
from headwater.core.errors import StreamError
from headwater.http.answers import FEED_TYPE, NO_STORE
from headwater.http.messages import Answer, EventStream, Payload, Request, Sink
from headwater.http.nodes.frame_sink import FrameSink
from headwater.http.nodes.links import LinkBroken
from headwater.service.background import Retried
from headwater.service.batches import Effect
from headwater.service.entries import Entry
from headwater.service.log import Log
from headwater.service.subscriptions.hints import Hint, hints_of
from headwater.service.subscriptions.operations import Subscriptions

_FEED: Final = b"/v1/cluster/feed"
_AGAIN_S: Final = 0.5
_SILENCE_LEASES_MAX: Final = 2
_READY: Final = msgspec.msgpack.encode([])
_ALIVE: Final = Payload(frame(b""))

Ask = Callable[[Request, NodeSeen], Awaitable[Answer]]


class Telling:
    """Sends hints to the listeners of this node."""

    def __init__(self, streams: Log) -> None:
        self._streams = streams
        self._listeners: set[Sink] = set()
        self._doubts = Retried(streams.watch("hints"))

    def answer(self) -> EventStream:
        sinks: list[Sink] = []

        def start(sink: Sink) -> None:
            sinks.append(sink)
            self._add(sink)

        def stopped() -> None:
            for sink in sinks:
                self._drop(sink)

        return EventStream([("Content-Type", FEED_TYPE), NO_STORE], start, stopped)

    def _add(self, sink: Sink) -> None:
        writer = self._streams.writer
        if not self._listeners:
            writer.observers.append(self._observe)
            writer.failure_observers.append(self._doubt)
        self._listeners.add(sink)
        # From here on it gets every hint.
        sink.send(Payload(frame(_READY)))

    def _drop(self, sink: Sink) -> None:
        writer = self._streams.writer
        self._listeners.discard(sink)
        if not self._listeners and self._observe in writer.observers:
            writer.observers.remove(self._observe)
            writer.failure_observers.remove(self._doubt)

    def _observe(self, effects: Sequence[Effect]) -> None:
        hints = hints_of(effects)
        if hints:
            self._tell(hints)

    def _tell(self, hints: Sequence[Hint]) -> None:
        self._send(Payload(frame(msgspec.msgpack.encode(hints))))

    def _send(self, payload: Payload) -> None:
        for sink in [*self._listeners]:
            sink.send(payload)

    def looked(self) -> None:
        """Show that this node is alive, even if it has nothing to send."""
        if self._listeners:
            self._send(_ALIVE)

    def _doubt(self, effects: Sequence[Effect]) -> None:
        paths = {owner.path for owner, _ in effects if isinstance(owner, Entry)}
        if paths:
            self._doubts.start(partial(self._settled, [Hint(path) for path in paths]))

    async def _settled(self, hints: Sequence[Hint]) -> None:
        """Send hints once the outcome of a commit is certain: nothing is read before that."""
        await self._streams.in_thread(self._streams.engine.streams.tails, "", "", 1)
        self._tell(hints)

    async def stop(self) -> None:
        await self._doubts.stop()


class Channels:
    """This node's channels to the others, as long as it has subscriptions."""

    def __init__(
        self, node: Node, ask: Ask, subscriptions: Subscriptions, frame_bytes_max: int
    ) -> None:
        assert subscriptions.hearing is not None
        self._node = node
        self._ask = ask
        self._frame_bytes_max = frame_bytes_max
        self._subscriptions = subscriptions
        self._hearing = subscriptions.hearing
        self._known: dict[int, asyncio.Task[None]] = {}
        self._heard: set[int] = set()
        """The nodes whose channel is open."""
        self._hearing.on_held = self.looked

    def __len__(self) -> int:
        return len(self._heard)

    def looked(self) -> None:
        """Check which nodes are present or gone, and whether channels are needed at all."""
        peers = {node.id: node for node in self._node.others() if node.address is not None}
        if not self._subscriptions.has_any:
            peers = {}
        gone = self._known.keys() - peers.keys()
        for node_id in gone:
            self._known.pop(node_id).cancel()
            self._heard.discard(node_id)
        for node_id in peers.keys() - self._known.keys():
            self._known[node_id] = asyncio.ensure_future(self._listen(peers[node_id]))
        if gone and peers:
            self._hearing.look()
        self._count()

    def _count(self) -> None:
        self._hearing.set_deaf(len(self._heard) < len(self._known))

    async def _listen(self, peer: NodeSeen) -> None:
        while True:
            try:
                await self._attempt(peer)
            except (LinkBroken, StreamError):
                # The node is down. Meanwhile the database is queried.
                pass
            except Exception as error:
                self._node.watch.failed(error, _AGAIN_S)
            finally:
                self._heard.discard(peer.id)
            self._count()
            await asyncio.sleep(_AGAIN_S)

    async def _attempt(self, peer: NodeSeen) -> None:
        """Listen until the channel ends."""
        request = Request("GET", _FEED, b"hints=true", {b"host": b"localhost"})
        request.is_of_node = True
        answer = await self._ask(request, peer)
        if isinstance(answer, EventStream):
            silence_s = _SILENCE_LEASES_MAX * self._node.lease_s
            take = partial(self._take, peer.id)
            await FrameSink(take, silence_s, self._frame_bytes_max).run(answer)

    def _take(self, node_id: int, body: bytes) -> None:
        hints = msgspec.msgpack.decode(body, type=list[Hint])
        if node_id not in self._heard:
            self._heard.add(node_id)
            self._count()
            self._hearing.look()
        self._hearing.heard(hints)

    async def stop(self) -> None:
        self._hearing.on_held = lambda: None
        for task in self._known.values():
            task.cancel()
        await asyncio.gather(*self._known.values(), return_exceptions=True)
