"""Requests for streams that another node owns: they are passed on, and their answers back.

A request is tried here first. If it turns out that another node owns what it needs, it is sent
there with everything it came with (`http.nodes.passing`), and its answer is handed back.

If the owner cannot be reached, or the shard is changing hands, the request waits for the next one,
up to a bound. If an owner is gone after it got the request, only what may be done twice is sent
again: reads, and appends of a producer. For anything else the outcome is unknown, and said to be.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final
from urllib.parse import quote

import msgspec

from headwater.cluster.node import Node
from headwater.core.cluster import NodeSeen
from headwater.core.errors import OutcomeUnknown, OwnedElsewhere, StorageUnavailable
from headwater.http import headers as names
from headwater.http.app import App
from headwater.http.messages import (
    Answer,
    Deferred,
    Request,
    Response,
)
from headwater.http.nodes.links import LinkBroken
from headwater.http.nodes.liveness import Liveness
from headwater.http.nodes.passing import NODE, Passing, may_wait
from headwater.http.nodes.sealed_answers import SealedAnswers
from headwater.http.nodes.subscription_list import SubscriptionList
from headwater.http.paths import PROXY_ROOT, STREAM_ALIAS, STREAM_ROOT, SUBSCRIPTIONS_ROOT
from headwater.http.routes.matching import locate
from headwater.http.routes.route import Reply
from headwater.http.routes.subscriptions import SUBSCRIPTION, SUBSCRIPTIONS
from headwater.http.wire.outcomes import as_is, resolved
from headwater.service.reordering import Waiting

HOPS_MAX: Final = 4
_PATIENCE_LEASES: Final = 3
_PATIENCE_S_MIN: Final = 5.0
_LOOK_AGAIN_S: Final = 0.2
_PLACES_MAX: Final = 10_000

_TRANSACTION: Final = b"/v1/transaction"
_PIPELINES: Final = b"/v1/pipelines"
_MOVE: Final = b"/v1/cluster/move"
_SUBSCRIPTIONS: Final = (SUBSCRIPTIONS_ROOT, STREAM_ALIAS + b"__ds/")


class ForwardFigures:
    def __init__(self) -> None:
        self.forwarded = 0
        """Requests that were passed on to their owner."""
        self.waited = 0
        """Those of them that had to wait for an owner."""
        self.received = 0
        """Requests that came from other nodes."""
        self.history_reads = 0
        """Reads of other nodes' streams that were answered here, from object storage."""


class Forwarding:
    """The handler of a node in a cluster."""

    def __init__(self, app: App, node: Node, secret: bytes, answer_bytes_max: int) -> None:
        self._app = app
        self._node = node
        self.patience_s = max(_PATIENCE_S_MIN, _PATIENCE_LEASES * node.lease_s)
        liveness = Liveness(node.lease_s, self.patience_s)
        self._passing = Passing(node.id, secret, answer_bytes_max, liveness)
        self.figures = ForwardFigures()
        self._subscription_list = SubscriptionList(node, app.answer, self.ask, self.patience_s)
        self._places: dict[bytes, int] = {}
        """Where streams of other nodes were found, by the path of a request. It may be out of
        date: whoever gets the request looks for itself, and passes on what is not its own."""
        self._roots = (STREAM_ROOT, STREAM_ALIAS, PROXY_ROOT, app.documents_root)
        """Below these, a path of a request stands for one stream and what belongs to it."""
        app.elsewhere = self._known
        self.sealed: SealedAnswers | None = None
        """Answers reads of other nodes' streams from object storage, if there is one."""

    def _known(self, request: Request) -> Deferred | Awaitable[Answer] | None:
        shard = self._places.get(request.path)
        if shard is None or request.hops or _is_live(request) or shard in self._node.shards:
            return None
        if self.sealed is not None and self.sealed.may_have(request):
            return self._read_or_forward(request, shard)
        owner = self._node.seen.owner(shard)
        if owner is not None and owner.id != self._node.id and owner.address is not None:
            again = partial(self._again, request, shard)
            answer = self._passing.pass_at_once(request, owner, again)
            if answer is not None:
                self.figures.forwarded += 1
                return Deferred(answer, as_is)
        return self.forward(request, shard)

    async def _again(self, request: Request, shard: int, broken: LinkBroken) -> Answer:
        _check_outcome(request, broken)
        if broken.waited:
            raise OwnedElsewhere(shard)
        return await self.forward(request, shard)

    def __call__(self, request: Request) -> Reply:
        if NODE in request.headers:
            self._passing.recognise(request)
            self.figures.received += 1
        if request.path == _TRANSACTION:
            return self._transact(request)
        if request.path == _PIPELINES:
            return self._reported(request)
        if request.path.startswith(_SUBSCRIPTIONS):
            return self._subscribed(request)
        try:
            reply = self._app.answer(request)
        except OwnedElsewhere as error:
            return self.forward(request, error.shard)
        if isinstance(reply, Deferred):
            if not isinstance(reply.future, Waiting):
                return reply
            reply = reply.resolve()
        elif isinstance(reply, Answer):
            return reply
        return self._or_forward(request, reply)

    async def _or_forward(self, request: Request, reply: Awaitable[Answer]) -> Answer:
        try:
            return await reply
        except OwnedElsewhere as error:
            return await self._read_or_forward(request, error.shard)

    async def _read_or_forward(self, request: Request, shard: int) -> Answer:
        if self.sealed is not None and self.sealed.may_have(request):
            answer = await self.sealed.answer(request)
            if answer is not None:
                self.figures.history_reads += 1
                self._note(request, shard)
                return answer
        return await self.forward(request, shard)

    def recognise(self, request: Request) -> None:
        if NODE in request.headers:
            self._passing.recognise(request)

    def screen(self, request: Request, most: int) -> Response | int:
        self.recognise(request)
        return self._app.screen(request, most)

    # ── What concerns several owners ─────────────────────────────────────────────────────────

    async def _subscribed(self, request: Request) -> Answer:
        """A subscription belongs to the shard of its name; a list is made of those of all nodes."""
        request.match = match = request.match or locate(request.path)
        if match.resource.path == SUBSCRIPTIONS and request.method == "GET":
            return await self._subscription_list.answer(request)
        if match.resource.path.startswith(SUBSCRIPTION):
            shard = self._node.seen.of_subscription(match.args[0])
            if shard not in self._node.shards:
                return await self.forward(request, shard)
            await self._node.settled()
        return await self._or_forward(request, resolved(self._app.answer(request)))

    def _reported(self, request: Request) -> Reply:
        """What pipelines report goes to one node, and comes from there."""
        shard = self._node.seen.of_pipelines()
        if shard in self._node.shards:
            return self._app.answer(request)
        return self.forward(request, shard)

    async def ask(self, request: Request, node: NodeSeen) -> Answer:
        """Ask a node about itself. Raises LinkBroken if it cannot be asked."""
        return await self._passing.pass_on(request, node)

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
        try:
            return msgspec.json.decode(answer.body, type=_Groups).groups
        except msgspec.DecodeError:
            raise OwnedElsewhere(shard) from None

    async def move(self, owner: NodeSeen, shard: int, to: int) -> bool:
        """Ask an owner to hand a shard over; False if it cannot, or cannot be asked."""
        request = Request("POST", _MOVE, b"", {b"content-type": b"application/json"})
        request.body = msgspec.json.encode({"shard": shard, "node": to})
        request.is_of_node = True
        try:
            answer = await self.ask(request, owner)
        except LinkBroken:
            return False
        return isinstance(answer, Response) and answer.status == 204

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
            if request.on_disconnect is None and may_wait(request):
                # So that it is noticed if the client hangs up meanwhile.
                request.on_disconnect = _do_nothing
            owner = node.seen.owner(shard)
            if owner is not None and owner.id == node.id and shard in node.shards:
                await node.settled()
                try:
                    return await resolved(self._app.answer(request))
                except OwnedElsewhere as error:
                    shard = error.shard
            elif owner is not None and owner.id != node.id and owner.address is not None:
                try:
                    self.figures.forwarded += 1
                    answer = await self._passing.pass_on(request, owner)
                    self._note(request, shard)
                    return answer
                except LinkBroken as broken:
                    _check_outcome(request, broken)
            if monotonic() >= deadline:
                raise OwnedElsewhere(shard)
            self.figures.waited += first
            first = False
            await node.change(_LOOK_AGAIN_S)
            await self._look()

    def _note(self, request: Request, shard: int) -> None:
        path = request.path
        if path.startswith(self._roots) and not path.startswith(_SUBSCRIPTIONS):
            if len(self._places) >= _PLACES_MAX:
                self._places.clear()
            self._places[path] = shard

    async def _look(self) -> None:
        # If the database does not answer, what was seen last has to do.
        with suppress(StorageUnavailable):
            await self._node.refresh()

    def looked(self) -> None:
        self._passing.looked(self._node.seen.nodes)

    def stop(self) -> None:
        self._passing.stop()


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


def _do_nothing() -> None:
    """It is enough that the request is abandoned."""


def _is_live(request: Request) -> bool:
    """Whether it may be served from a relayed feed."""
    return b"live=" in request.query and request.method == "GET"


def _check_outcome(request: Request, broken: LinkBroken) -> None:
    if broken.sent and not _may_repeat(request):
        raise OutcomeUnknown from None


def _may_repeat(request: Request) -> bool:
    """Whether it does no harm if it is done twice."""
    if request.method in ("GET", "HEAD"):
        return True
    return request.method == "POST" and names.PRODUCER_ID in request.headers
