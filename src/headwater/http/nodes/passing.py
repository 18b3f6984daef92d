"""Requests from node to node: what is sent along with them, and what comes back.

A request is forwarded with everything that the client sent, so that the owner knows the caller as
this node does, and with the client's address and scheme. It carries a pass that only a node of the
cluster can have (`core.peers`). A request with a pass is not charged again, and says how often it
was forwarded, so that none circulates for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from hmac import compare_digest
from typing import Any, Final

from headwater.core.cluster import NodeSeen
from headwater.core.errors import OutcomeUnknown
from headwater.core.peers import pass_for
from headwater.http.answers import EVENTS_TYPE, FEED_TYPE
from headwater.http.headers import PRODUCER_SEQ
from headwater.http.messages import (
    Answer,
    EventStream,
    Payload,
    Peer,
    Request,
    Response,
    Sink,
)
from headwater.http.nodes.links import Link, LinkBroken, Links, Reply
from headwater.http.nodes.liveness import Liveness
from headwater.http.wire.outcomes import report
from headwater.http.wire.response_heads import parsed
from headwater.service import replies

NODE: Final = b"headwater-node"
_HOPS: Final = b"headwater-hops"
_PEER: Final = b"headwater-peer"
_SCHEME: Final = b"headwater-scheme"
_FOR_ITSELF: Final = b"headwater-for-itself"
# Our own headers, and those that concern a connection and not its content.
_LEFT_OUT: Final = frozenset(
    {
        NODE,
        _HOPS,
        _PEER,
        _SCHEME,
        _FOR_ITSELF,
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
# Every answer of this node has these anyway.
_ADDED_HERE: Final = frozenset(
    {
        b"access-control-allow-origin",
        b"access-control-expose-headers",
        b"connection",
        b"content-length",
        b"cross-origin-resource-policy",
        b"date",
        b"keep-alive",
        b"transfer-encoding",
        b"x-content-type-options",
        b"x-request-id",
    }
)
_STREAMED: Final = (EVENTS_TYPE.encode(), FEED_TYPE.encode())


class Passing:
    def __init__(
        self, node_id: int, secret: bytes, answer_bytes_max: int, liveness: Liveness
    ) -> None:
        self._pass = pass_for(secret, node_id)
        self._secret = secret
        self._answer_bytes_max = answer_bytes_max
        self._liveness = liveness
        self._links: dict[int, Links] = {}
        self._under_way: dict[int, set[Link]] = {}
        """By node, the connections with unanswered requests."""
        self._tasks: set[asyncio.Task[Answer]] = set()

    def recognise(self, request: Request) -> None:
        """Read what another node says about a request that it forwarded."""
        headers = request.headers
        if not compare_digest(headers[NODE], self._pass):
            return
        try:
            request.hops = int(headers.get(_HOPS, b"1"))
        except ValueError:
            return
        address = headers.get(_PEER, b"").decode("latin-1")
        scheme = headers.get(_SCHEME, b"http").decode("latin-1")
        request.peer = Peer(address, scheme, request.peer.readers)
        request.is_of_node = _FOR_ITSELF in headers

    # ── Forwarding ───────────────────────────────────────────────────────────────────────────

    async def pass_on(self, request: Request, to: NodeSeen) -> Answer:
        """Raises LinkBroken if the node is down, or goes away before it has answered."""
        links = self._links_to(to)
        link = links.idle() or await links.connect()
        waiting = self._under_way.setdefault(to.id, set())
        waiting.add(link)
        head = _head(request, links.pass_line)
        try:
            asked = link.ask(head, request.body, bodiless=request.method == "HEAD")
            reply = await (_unless_gone(request, link, asked) if may_wait(request) else asked)
        except BaseException:
            link.close()
            waiting.discard(link)
            raise
        if reply.chunked:
            return await self._taken(waiting, link, reply)
        waiting.discard(link)
        link.release()
        return Response(reply.status, [], reply.body, lines=_kept(reply.lines))

    def pass_at_once(
        self,
        request: Request,
        to: NodeSeen,
        again: Callable[[LinkBroken], Coroutine[Any, Any, Answer]],
    ) -> replies.Reply[Answer] | None:
        """The same over an existing connection, without a task that waits. None if there is no such
        connection. If the node is gone, the answer is that of `again`.
        """
        links = self._links_to(to)
        link = links.idle()
        if link is None:
            return None
        waiting = self._under_way.setdefault(to.id, set())
        waiting.add(link)
        answer: replies.Reply[Answer] = replies.Reply()
        is_gone = False

        def gone() -> None:
            nonlocal is_gone
            is_gone = True
            link.hang_up()

        def answered(asked: replies.Reply[Reply]) -> None:
            request.on_disconnect = None
            waiting.discard(link)
            broken = asked.exception()
            if broken is not None:
                link.close()
                if is_gone or not isinstance(broken, LinkBroken):
                    answer.settle(OutcomeUnknown())
                else:
                    self._later(again(broken), answer)
                return
            reply = asked.result()
            if reply.chunked:
                waiting.add(link)
                self._later(self._taken_or(again, waiting, link, reply), answer)
            else:
                link.release()
                answer.settle(Response(reply.status, [], reply.body, lines=_kept(reply.lines)))

        if may_wait(request):
            request.on_disconnect = gone
        head = _head(request, links.pass_line)
        link.ask(head, request.body, bodiless=request.method == "HEAD").add_done_callback(answered)
        return answer

    def _later(self, answering: Coroutine[Any, Any, Answer], answer: replies.Reply[Answer]) -> None:
        def done(task: asyncio.Task[Answer]) -> None:
            self._tasks.discard(task)
            # It is cancelled if the client is gone: then nobody sees this.
            error = OutcomeUnknown() if task.cancelled() else task.exception()
            answer.settle(error if isinstance(error, Exception) else task.result())

        task = asyncio.get_running_loop().create_task(answering)
        self._tasks.add(task)
        task.add_done_callback(done)

    def _links_to(self, node: NodeSeen) -> Links:
        links = self._links.get(node.id)
        if links is None or links.address != node.address:
            if links is not None:
                links.close()
            address, most = node.address or "", self._answer_bytes_max
            links = self._links[node.id] = Links(address, node.id, self._secret, most)
        return links

    # ── Answers ──────────────────────────────────────────────────────────────────────────────

    async def _taken_or(
        self,
        again: Callable[[LinkBroken], Coroutine[Any, Any, Answer]],
        waiting: set[Link],
        link: Link,
        reply: Reply,
    ) -> Answer:
        try:
            return await self._taken(waiting, link, reply)
        except LinkBroken as broken:
            return await again(broken)

    async def _taken(self, waiting: set[Link], link: Link, reply: Reply) -> Answer:
        try:
            return await self._chunked(waiting, link, reply)
        finally:
            waiting.discard(link)

    async def _chunked(self, waiting: set[Link], link: Link, reply: Reply) -> Answer:
        if reply.header(b"content-type").startswith(_STREAMED):
            return self._events(waiting, link, reply)
        body = bytearray()
        while chunk := await reply.chunk():
            body += chunk
            if len(body) > self._answer_bytes_max:
                link.close()
                raise LinkBroken("this is more than a node answers", sent=True)
        return Response(reply.status, [], bytes(body), lines=_kept(reply.lines))

    def _events(self, waiting: set[Link], link: Link, reply: Reply) -> EventStream:
        """An event stream, forwarded as it arrives."""
        tasks: list[asyncio.Task[None]] = []

        def start(sink: Sink) -> None:
            waiting.add(link)
            tasks.append(asyncio.ensure_future(_pipe(reply, sink)))

        def stopped() -> None:
            waiting.discard(link)
            link.close()
            for task in tasks:
                task.cancel()

        return EventStream(parsed(_kept(reply.lines)), start, stopped)

    # ── Nodes that are gone ──────────────────────────────────────────────────────────────────

    def looked(self, nodes: Iterable[NodeSeen]) -> None:
        """Stop waiting for nodes that are gone or unresponsive."""
        known = {node.id: node for node in nodes}
        for node_id in [node_id for node_id in self._under_way if node_id not in known]:
            for link in list(self._under_way.pop(node_id)):
                link.close()
        for node_id in [node_id for node_id in self._links if node_id not in known]:
            self._links.pop(node_id).close()
            self._liveness.forget(node_id)
        for node_id, waiting in self._under_way.items():
            if waiting:
                self._liveness.looked(node_id, partial(self._links_to, known[node_id]), waiting)

    def stop(self) -> None:
        self._liveness.stop()
        for links in self._links.values():
            links.close()


def may_wait(request: Request) -> bool:
    """Whether the owner has to know when the client is gone: the request may wait for data, and
    messages fetched for a client that is gone would be withheld from all other members.
    """
    if request.method == "GET":
        return True
    route = request.match.resource.routes.get(request.method) if request.match else None
    return route is not None and route.waits


async def _unless_gone(request: Request, link: Link, asked: replies.Reply[Reply]) -> Reply:
    """Wait for the answer, but not for a client that is gone."""
    is_gone = False

    def gone() -> None:
        nonlocal is_gone
        is_gone = True
        link.hang_up()

    request.on_disconnect = gone
    if request.is_abandoned:
        # The client left while its owner was being found.
        gone()
    try:
        return await asked
    except LinkBroken:
        if is_gone:
            raise asyncio.CancelledError from None
        raise
    finally:
        request.on_disconnect = None


async def _pipe(reply: Reply, sink: Sink) -> None:
    try:
        while chunk := await reply.chunk():
            if not sink.send(Payload(chunk)):
                return
            if sink.paused and not await sink.drained():
                return
    except LinkBroken:
        # The owner is gone. The reader reconnects from its offset.
        pass
    except Exception as error:
        report(error)
    sink.end()


def _head(request: Request, pass_line: bytes) -> bytes:
    """What the sender said, and then what this node says about it."""
    peer, body = request.peer, request.body
    lines = [
        _said(request),
        b"%bheadwater-hops: %d\r\nheadwater-peer: %b\r\nheadwater-scheme: %b\r\n"
        % (
            pass_line,
            request.hops + 1,
            peer.address.encode("latin-1", "replace"),
            peer.scheme.encode(),
        ),
    ]
    if request.is_of_node:
        lines.append(b"headwater-for-itself: true\r\n")
    if body or request.method in ("PUT", "POST", "PATCH"):
        lines.append(b"content-length: %d\r\n" % len(body))
    lines.append(b"\r\n")
    return b"".join(lines)


def _said(request: Request) -> bytes:
    """The request line and the headers; built once for all requests that share them."""
    known = request.head
    if known is None:
        return _lines(request)
    if known.said is None:
        known.said = _lines(request, PRODUCER_SEQ)
    if known.repeats:
        return known.said
    return b"%bproducer-seq: %b\r\n" % (known.said, request.headers[PRODUCER_SEQ])


def _lines(request: Request, without: bytes = b"") -> bytes:
    query = b"?" + request.query if request.query else b""
    lines = [b"%b %b%b HTTP/1.1\r\n" % (request.method.encode(), request.path, query)]
    if b"host" not in request.headers:
        # It came in HTTP/1.0, which does not require it, or from this node itself.
        lines.append(b"host: localhost\r\n")
    lines += [
        b"%b: %b\r\n" % (name, value)
        for name, value in request.headers.items()
        if name not in _LEFT_OUT and name != without
    ]
    return b"".join(lines)


def _kept(lines: list[bytes]) -> bytes:
    """The headers of an answer that come from the owner."""
    return b"".join(
        [
            line + b"\r\n"
            for line in lines
            if line.partition(b":")[0].lower() not in _ADDED_HERE and line != b"Vary: Origin"
        ]
    )
