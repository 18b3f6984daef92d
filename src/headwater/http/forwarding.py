"""Requests for streams that another node owns: they are passed on, and their answers back.

A request is tried here first. If it turns out that another node owns what it needs, it is sent
there with everything it came with, so that the owner knows the caller as this node does. Nodes
recognise each other by a secret in the database; a request that comes with it is not charged for
again, and says how often it was passed on, so that none goes round for ever.

If the owner cannot be reached, or the shard is changing hands, the request waits for the next one,
up to a bound. If an owner is gone after it got the request, only what may be done twice is sent
again: reads, and appends of a producer. For anything else the outcome is unknown, and said to be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from hmac import compare_digest
from time import monotonic
from typing import Final
from urllib.parse import quote

import msgspec

from headwater.cluster.node import Node
from headwater.core.cluster import SUBSCRIPTIONS, NodeSeen
from headwater.core.errors import OutcomeUnknown, OwnedElsewhere, StorageUnavailable
from headwater.http import headers as names
from headwater.http.answers import EVENTS_TYPE, FEED_TYPE
from headwater.http.app import App
from headwater.http.leases import resolved
from headwater.http.links import LinkBroken, Links, Reply
from headwater.http.messages import (
    Answer,
    Deferred,
    EventStream,
    Headers,
    Payload,
    Peer,
    Request,
    Response,
    Sink,
)
from headwater.http.outcomes import report
from headwater.http.targets import STREAM_ALIAS, STREAM_ROOT, SUBSCRIPTIONS_ROOT

HOPS_MAX: Final = 4
_PATIENCE_LEASES: Final = 3
_PATIENCE_S_MIN: Final = 5.0
_LOOK_AGAIN_S: Final = 0.2
_PLACES_MAX: Final = 10_000

NODE: Final = b"headwater-node"
_HOPS: Final = b"headwater-hops"
_PEER: Final = b"headwater-peer"
_SCHEME: Final = b"headwater-scheme"
_FOR_ITSELF: Final = b"headwater-for-itself"
_OWN: Final = frozenset({NODE, _HOPS, _PEER, _SCHEME, _FOR_ITSELF})
_TRANSACTION: Final = b"/v1/transaction"
_MOVE: Final = b"/v1/cluster/move"
_SUBSCRIPTIONS: Final = (SUBSCRIPTIONS_ROOT, STREAM_ALIAS + b"__ds/")
# These concern one connection, and not what it carries.
_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_STREAMED: Final = (EVENTS_TYPE, FEED_TYPE)
# Every answer of this node has these anyway.
_ADDED_HERE: Final = frozenset(
    {
        "access-control-allow-origin",
        "access-control-expose-headers",
        "connection",
        "content-length",
        "cross-origin-resource-policy",
        "date",
        "keep-alive",
        "transfer-encoding",
        "x-content-type-options",
        "x-request-id",
    }
)


class ForwardFigures:
    def __init__(self) -> None:
        self.forwarded = 0
        """Requests that were passed on to their owner."""
        self.waited = 0
        """Those of them that had to wait for an owner."""
        self.received = 0
        """Requests that came from other nodes."""


class Forwarding:
    """The handler of a node in a cluster."""

    def __init__(self, app: App, node: Node, secret: bytes) -> None:
        self._app = app
        self._node = node
        self._secret = secret
        self._links: dict[str, Links] = {}
        self._under_way: dict[int, set[Reply | asyncio.Task[Reply]]] = {}
        """By node, what waits for it."""
        self.patience_s = max(_PATIENCE_S_MIN, _PATIENCE_LEASES * node.lease_s)
        self.figures = ForwardFigures()
        self._places: dict[bytes, int] = {}
        """Where streams of other nodes were found, by the path of a request. It may be out of
        date: whoever gets the request looks for itself, and passes on what is not its own."""
        app.elsewhere = self._known

    def _known(self, request: Request) -> Awaitable[Answer] | None:
        shard = self._places.get(request.path)
        if shard is None or request.hops or _is_live(request) or shard in self._node.shards:
            return None
        return self.forward(request, shard)

    def __call__(self, request: Request) -> Answer | Deferred | Awaitable[Answer]:
        if NODE in request.headers:
            self._recognise(request)
            self.figures.received += 1
        if request.path == _TRANSACTION:
            return self._transact(request)
        if request.path.startswith(_SUBSCRIPTIONS):
            return self._subscribed(request)
        try:
            reply = self._app.answer(request)
        except OwnedElsewhere as error:
            return self.forward(request, error.shard)
        if isinstance(reply, Answer | Deferred):
            return reply
        return self._or_forward(request, reply)

    async def _or_forward(self, request: Request, reply: Awaitable[Answer]) -> Answer:
        try:
            return await reply
        except OwnedElsewhere as error:
            return await self.forward(request, error.shard)

    def _recognise(self, request: Request) -> None:
        """Learn what another node says of a request, if it is one."""
        headers = request.headers
        if not compare_digest(headers[NODE], self._secret):
            return
        with suppress(ValueError):
            request.hops = int(headers.get(_HOPS, b"1"))
            address = headers.get(_PEER, b"").decode("latin-1")
            scheme = headers.get(_SCHEME, b"http").decode("latin-1")
            request.peer = Peer(address, scheme, request.peer.room)
            request.is_of_node = _FOR_ITSELF in headers

    def screen(self, request: Request, most: int) -> Response | int:
        if NODE in request.headers:
            self._recognise(request)
        return self._app.screen(request, most)

    # ── What concerns several owners ─────────────────────────────────────────────────────────

    async def _subscribed(self, request: Request) -> Answer:
        """One node has all subscriptions."""
        if SUBSCRIPTIONS not in self._node.shards:
            return await self.forward(request, SUBSCRIPTIONS)
        await self._node.settled()
        return await self._or_forward(request, resolved(self._app.answer(request)))

    async def _transact(self, request: Request) -> Answer:
        """A transaction is run by the owner of the first shard that it concerns. The others are
        handed over to that node first, so that one commit has all of it."""
        deadline = monotonic() + self.patience_s
        while True:
            try:
                return await resolved(self._app.answer(request))
            except OwnedElsewhere as error:
                missing = error.shard
            shards = await self._node.shards_of(_streams_in(request.body))
            first = min(shards, default=missing)
            if first not in self._node.shards and request.hops < HOPS_MAX:
                return await self.forward(request, first)
            if monotonic() >= deadline:
                raise OwnedElsewhere(missing)
            await self._node.gather({*shards, missing})

    async def groups_of(self, path: str, shard: int) -> list[msgspec.Raw]:
        """The groups of a stream that another node owns; none if it is not there any more."""
        target = STREAM_ROOT + quote(path, safe="/").encode() + b"/_groups"
        request = Request("GET", target, b"", {b"host": b"headwater"})
        request.is_of_node = True
        answer = await self.forward(request, shard)
        if not isinstance(answer, Response) or not isinstance(answer.body, bytes):
            raise OwnedElsewhere(shard)
        if answer.status >= 500:
            raise OwnedElsewhere(shard)
        if answer.status != 200:
            return []
        return msgspec.json.decode(answer.body, type=_Groups).groups

    async def move(self, owner: NodeSeen, shard: int, to: int) -> bool:
        """Ask an owner to hand a shard over; False if it cannot, or cannot be asked."""
        body = msgspec.json.encode({"shard": shard, "node": to})
        headers = [
            (NODE, self._secret),
            (_FOR_ITSELF, b"true"),
            (b"host", b"headwater"),
            (b"content-type", b"application/json"),
        ]
        try:
            reply = await self._links_to(owner.address or "").request("POST", _MOVE, headers, body)
            await reply.read()
        except LinkBroken:
            return False
        return reply.status == 204

    def _links_to(self, address: str) -> Links:
        links = self._links.get(address)
        if links is None:
            links = self._links[address] = Links(address)
        return links

    # ── Passing on ───────────────────────────────────────────────────────────────────────────

    async def forward(self, request: Request, shard: int) -> Answer:
        if request.hops >= HOPS_MAX:
            raise OwnedElsewhere(shard)
        node, deadline = self._node, monotonic() + self.patience_s
        if request.hops:
            # Whoever sent it here knows something that this node does not.
            await self._look()
        first = True
        while True:
            owner = node.seen.owner(shard)
            if owner is not None and owner.id == node.id and shard in node.shards:
                await node.settled()
                try:
                    return await resolved(self._app.answer(request))
                except OwnedElsewhere as error:
                    shard = error.shard
            elif owner is not None and owner.id != node.id and owner.address is not None:
                try:
                    answer = await self._pass_on(request, owner, owner.address)
                    self._note(request, shard)
                    return answer
                except LinkBroken as broken:
                    if broken.sent and not _may_repeat(request):
                        raise OutcomeUnknown from None
            if monotonic() >= deadline:
                raise OwnedElsewhere(shard)
            self.figures.waited += first
            first = False
            await node.change(_LOOK_AGAIN_S)
            await self._look()

    def _note(self, request: Request, shard: int) -> None:
        path = request.path
        if path.startswith(STREAM_ROOT) and not path.startswith(_SUBSCRIPTIONS):
            if len(self._places) >= _PLACES_MAX:
                self._places.clear()
            self._places[path] = shard

    async def _look(self) -> None:
        # If the database does not answer, what was seen last has to do.
        with suppress(StorageUnavailable):
            await self._node.refresh()

    async def _pass_on(self, request: Request, owner: NodeSeen, address: str) -> Answer:
        self.figures.forwarded += 1
        links = self._links_to(address)
        target = request.path + (b"?" + request.query if request.query else b"")
        asked = asyncio.ensure_future(
            links.request(request.method, target, self._headers(request), request.body)
        )
        if request.method == "GET":
            # Nobody waits for news for somebody who is gone.
            request.on_disconnect = lambda: _give_up(asked)
        with self._waiting(owner.id, asked):
            reply = await _or_broken(asked)
        content_type = next((v for n, v in reply.headers if n.lower() == "content-type"), "")
        kept = [(n, v) for n, v in reply.headers if _is_kept(n, v)]
        if reply.chunked and content_type.startswith(_STREAMED):
            return self._events(owner.id, reply, kept)
        with self._waiting(owner.id, reply):
            return Response(reply.status, kept, await reply.read())

    def _headers(self, request: Request) -> Sequence[tuple[bytes, bytes]]:
        peer = request.peer
        return [
            *((n, v) for n, v in request.headers.items() if n not in _HOP_BY_HOP and n not in _OWN),
            (NODE, self._secret),
            (_HOPS, b"%d" % (request.hops + 1)),
            (_PEER, peer.address.encode("latin-1", "replace")),
            (_SCHEME, peer.scheme.encode()),
            *([(_FOR_ITSELF, b"true")] if request.is_of_node else []),
        ]

    def _events(self, node_id: int, reply: Reply, headers: Headers) -> EventStream:
        """An event stream, handed on as it comes."""
        tasks: list[asyncio.Task[None]] = []

        def start(sink: Sink) -> None:
            tasks.append(asyncio.ensure_future(self._pipe(node_id, reply, sink)))

        def stopped() -> None:
            reply.close()
            for task in tasks:
                task.cancel()

        return EventStream(headers, start, stopped)

    async def _pipe(self, node_id: int, reply: Reply, sink: Sink) -> None:
        try:
            with self._waiting(node_id, reply):
                while chunk := await reply.chunk():
                    if not sink.send(Payload(chunk)):
                        return
                    if sink.paused and not await sink.drained():
                        return
        except (OSError, EOFError, ValueError):
            # The owner is gone. The reader comes back by its offset.
            pass
        except Exception as error:
            report(error)
        sink.end()

    # ── Owners that are gone ─────────────────────────────────────────────────────────────────

    def _waiting(self, node_id: int, what: Reply | asyncio.Task[Reply]) -> _Waiting:
        return _Waiting(self._under_way.setdefault(node_id, set()), what)

    def looked(self) -> None:
        """Wait no longer for nodes that are not there any more."""
        known = {node.id for node in self._node.seen.nodes}
        for node_id in [node_id for node_id in self._under_way if node_id not in known]:
            for what in self._under_way.pop(node_id):
                if isinstance(what, Reply):
                    what.close()
                else:
                    what.cancel()
        addresses = {node.address for node in self._node.seen.nodes}
        for address in [address for address in self._links if address not in addresses]:
            self._links.pop(address).close()

    def stop(self) -> None:
        for links in self._links.values():
            links.close()


class _Waiting:
    """Something is waited for, for as long as this is entered."""

    __slots__ = ("_among", "_what")

    def __init__(
        self, among: set[Reply | asyncio.Task[Reply]], what: Reply | asyncio.Task[Reply]
    ) -> None:
        self._among = among
        self._what = what

    def __enter__(self) -> None:
        self._among.add(self._what)

    def __exit__(self, *error: object) -> None:
        self._among.discard(self._what)


def _give_up(asked: asyncio.Task[Reply]) -> None:
    asked.cancel()


async def _or_broken(asked: asyncio.Task[Reply]) -> Reply:
    """The reply; if it was given up because its node is gone, that is a broken link."""
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        if asked.cancelled():
            raise LinkBroken("the node is gone", sent=True) from None
        asked.cancel()
        raise


class _Groups(msgspec.Struct):
    groups: list[msgspec.Raw]


class _Part(msgspec.Struct):
    stream: str = ""


class _Parts(msgspec.Struct):
    """As much of a transaction as says which streams it concerns."""

    publish: list[_Part] = []
    ack: _Part | None = None


def _streams_in(body: bytes) -> set[str]:
    try:
        parts = msgspec.json.decode(body, type=_Parts)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return set()
    named = [*parts.publish, *([parts.ack] if parts.ack else [])]
    return {part.stream for part in named if part.stream}


def _is_kept(name: str, value: str) -> bool:
    return name.lower() not in _ADDED_HERE and (name.lower(), value) != ("vary", "Origin")


def _is_live(request: Request) -> bool:
    """Whether it may be served from a relayed feed."""
    return b"live=" in request.query and request.method == "GET"


def _may_repeat(request: Request) -> bool:
    """Whether it does no harm if it is done twice."""
    if request.method in ("GET", "HEAD"):
        return True
    return request.method == "POST" and names.PRODUCER_ID in request.headers
