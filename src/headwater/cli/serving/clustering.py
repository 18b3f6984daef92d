"""The part of a server that deals with other nodes: assembled only if there can be any."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Final

from headwater.http.feeds.heartbeat import Heartbeat
from headwater.http.nodes.leases import Leased
from headwater.service.feeds import Feeds
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.store.engine.membership import Membership

if TYPE_CHECKING:
    from headwater.cluster.node import Node
    from headwater.documents.documents import Documents
    from headwater.http.app import App
    from headwater.http.messages import Handler, Request, Screen
    from headwater.http.nodes.forwarding import ForwardFigures, Forwarding
    from headwater.http.nodes.hinting import Channels
    from headwater.http.nodes.relaying import FeedResource, Relay
    from headwater.http.resources.assembly import Resources
    from headwater.http.resources.cluster import ClusterResource
    from headwater.http.resources.pipelines import PipelineResource
    from headwater.responses.responses import Responses
    from headwater.service.live.registry import Live

_SECRET_BYTES: Final = 32
_NODE_SECRET: Final = "node"
"""The name, among the secrets of the database, of the one by which nodes recognise each other."""
NO_PARTS: Final = (None, None, None)


class Clustering:
    """This node among others."""

    def __init__(
        self,
        streams: Log,
        membership: Membership,
        secret: bytes,
        feeds: FeedResource,
        subscriptions: Subscriptions,
    ) -> None:
        from headwater.cluster.node import Node
        from headwater.http.resources.cluster import ClusterResource

        self.node: Node = Node(streams, membership)
        self._subscriptions = subscriptions
        self._telling = feeds.telling
        self._channels: Channels | None = None
        self.node.on_gain.append(streams.collection.gained)
        self.node.on_gain.append(subscriptions.gained)
        self.node.on_release.append(subscriptions.releasing)
        self.node.on_look.append(self._telling.looked)
        self.resource: ClusterResource = ClusterResource(self.node, feeds, secret)
        self._secret = secret
        self._forwarding: Forwarding | None = None
        self.relay: Relay | None = None

    @classmethod
    async def start(
        cls, streams: Log, subscriptions: Subscriptions, feeds: Feeds, heartbeat: Heartbeat
    ) -> Clustering | None:
        membership = streams.engine.membership
        if membership is None:
            return None
        from headwater.http.nodes.hinting import Telling
        from headwater.http.nodes.relaying import FeedResource

        fresh = secrets.token_hex(_SECRET_BYTES).encode()
        secret = await streams.in_thread(membership.secret, _NODE_SECRET, fresh)
        resource = FeedResource(streams, feeds, heartbeat, Telling(streams))
        clustering = cls(streams, membership, secret, resource, subscriptions)
        streams.gather = clustering.node.gather
        return clustering

    def in_front_of(self, app: App, streams: Log, resources: Resources) -> Handler:
        from headwater.http.nodes.forwarding import Forwarding
        from headwater.http.nodes.hinting import Channels
        from headwater.http.nodes.own_requests import OwnRequests
        from headwater.http.nodes.relaying import Relay
        from headwater.http.nodes.sealed_answers import SealedAnswers
        from headwater.service.sealed_reads import SealedReads
        from headwater.store.history.remote import RemoteHistory

        forwarding = self._forwarding = Forwarding(
            app, self.node, self._secret, streams.limits.answer_bytes_max
        )
        if isinstance(streams.engine.history, RemoteHistory):
            reads = SealedReads(streams, forwarding.patience_s)
            forwarding.sealed = SealedAnswers(reads, resources.streams)
        self.relay = Relay(streams, self.node, forwarding.forward, forwarding.patience_s)
        resources.streams.followed = resources.follow.followed = self.relay.entry
        self.node.on_look.append(self._forwarding.looked)
        self.node.ask = self._forwarding.move
        resources.groups.elsewhere = self._forwarding.groups_of
        self._subscriptions.elsewhere = OwnRequests(forwarding)
        self._channels = Channels(
            self.node, forwarding.ask, self._subscriptions, streams.limits.answer_bytes_max
        )
        self.node.on_look.append(self._channels.looked)
        self.node.on_look.append(partial(self._looked_for_reports, resources.pipelines))
        return self._forwarding

    def _looked_for_reports(self, pipelines: PipelineResource) -> None:
        if self.node.seen.of_pipelines() not in self.node.shards:
            pipelines.forget()

    def take_along(
        self, live: Live, documents: Documents | None, responses: Responses | None
    ) -> None:
        """Tell layers over streams which streams this node owns, and how to reach the others."""
        from headwater.http.nodes.own_requests import OwnRequests

        assert self._forwarding is not None
        anywhere = OwnRequests(self._forwarding)
        live.metrics.elsewhere = anywhere
        if documents is not None:
            self.node.on_release.append(documents.releasing)
        if responses is not None:
            responses.elsewhere = anywhere.append
            self.node.on_gain.append(responses.gained)
            self.node.on_look.append(responses.looked)

    @property
    def parts(self) -> tuple[Node | None, ForwardFigures | None, Relay | None]:
        """The parts that have figures."""
        return self.node, self._forwarding.figures if self._forwarding else None, self.relay

    @property
    def screen(self) -> Screen:
        assert self._forwarding is not None
        return self._forwarding.screen

    def recognise(self, request: Request) -> None:
        assert self._forwarding is not None
        self._forwarding.recognise(request)

    async def stop(self) -> None:
        if self.relay is not None:
            self.relay.stop()
        if self._channels is not None:
            await self._channels.stop()
        await self._telling.stop()
        await self.node.stop()
        if self._forwarding is not None:
            self._forwarding.stop()


def handler_of(
    app: App, streams: Log, resources: Resources, clustering: Clustering | None
) -> Handler:
    """The request handler: the app, preceded by whatever a remote engine requires."""
    lease = streams.engine.lease
    if lease is None:
        app.remember_heads()
        return app
    inner = app if clustering is None else clustering.in_front_of(app, streams, resources)
    if streams.counts_together:
        from headwater.http.quotas import QuotaWaits

        inner = QuotaWaits(inner)
    return Leased(inner, lease, streams.in_thread)
