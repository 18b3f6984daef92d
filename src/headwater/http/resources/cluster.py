"""The cluster over HTTP: GET /v1/cluster, POST /v1/cluster/drain and /v1/cluster/move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from headwater.core import peers
from headwater.core.errors import InvalidBody, InvalidQuery, OwnedElsewhere
from headwater.core.json_bodies import decode_body
from headwater.http.answers import NO_STORE, done, json_answer
from headwater.http.errors import error_response, plain_error
from headwater.http.messages import Answer, Request, Response
from headwater.http.queries import parse_query

if TYPE_CHECKING:
    from headwater.cluster.node import Node
    from headwater.http.nodes.relaying import FeedResource


class DrainBody(msgspec.Struct, forbid_unknown_fields=True):
    node: Annotated[int, msgspec.Meta(ge=0)]
    draining: bool = True


class MoveBody(msgspec.Struct, forbid_unknown_fields=True):
    shard: Annotated[int, msgspec.Meta(ge=0)]
    node: Annotated[int, msgspec.Meta(ge=0)]


class ClusterResource:
    def __init__(
        self,
        node: Node | None = None,
        feeds: FeedResource | None = None,
        secret: bytes = b"",
    ) -> None:
        self._node = node
        self._feeds = feeds
        self._secret = secret

    async def index(self, request: Request) -> Response:
        if self._node is None:
            return _alone()
        await self._node.refresh()
        seen = self._node.seen
        nodes = [
            {
                "id": node.id,
                "name": node.name,
                "address": node.address,
                "epoch": node.epoch,
                "lease_ms": node.lease_ms,
                "draining": node.draining,
                "labels": sorted(node.labels),
                "shards": sum(shard.node_id == node.id for shard in seen.shards),
            }
            for node in seen.nodes
        ]
        shards = [
            {
                "id": shard.id,
                "owner": shard.node_id,
                "epoch": shard.epoch,
                "label": shard.label,
            }
            for shard in seen.shards
        ]
        bindings = [binding._asdict() for binding in seen.bindings]
        leases = [
            {"node": node.id, "lease_ms": node.lease_ms, "counter": node.counter}
            for node in seen.nodes
        ]
        return json_answer(
            {
                "node": self._node.id,
                "nodes": nodes,
                "shards": shards,
                "bindings": bindings,
                "leases": leases,
            }
        )

    async def hello(self, request: Request) -> Response:
        """Prove to another node that this is the one it expects."""
        if self._node is None:
            return _alone()
        challenge = parse_query(request.query).get("challenge", [""])[0].encode()
        if not peers.is_challenge(challenge):
            raise InvalidQuery("challenge must be 32 hexadecimal digits")
        proof = peers.proof(self._secret, challenge, self._node.id)
        return Response(200, [("Content-Type", "text/plain"), NO_STORE], proof)

    async def feed(self, request: Request) -> Answer:
        return _alone() if self._feeds is None else await self._feeds.get(request)

    async def move(self, request: Request) -> Response:
        if self._node is None:
            return _alone()
        body = decode_body(request.body, MoveBody)
        if not await self._node.hand(body.shard, body.node):
            # Not raised: that would forward the request, and it is for this node.
            return error_response(OwnedElsewhere(body.shard))
        return done()

    async def drain(self, request: Request) -> Response:
        if self._node is None:
            return _alone()
        body = decode_body(request.body, DrainBody)
        if not await self._node.drain(body.node, draining=body.draining):
            raise InvalidBody(f"there is no node {body.node}; GET /v1/cluster names them")
        return done()


def _alone() -> Response:
    message = "this server is not part of a cluster: it was started without --advertise"
    return plain_error(404, "not_found", message)
