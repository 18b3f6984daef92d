"""The objects that answer requests. The table of routes says which of them answers what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.http.access.identity import Identity
from headwater.http.access.signing import Signing
from headwater.http.console.resource import Console
from headwater.http.feeds.follow import FollowResource
from headwater.http.feeds.heartbeat import Heartbeat
from headwater.http.js.resource import BrowserModule
from headwater.http.observe.figures import Figures
from headwater.http.observe.metrics import Metrics
from headwater.http.resources.about import About
from headwater.http.resources.bulk import BulkResource
from headwater.http.resources.catalog import Catalog
from headwater.http.resources.cluster import ClusterResource
from headwater.http.resources.groups import GroupResource
from headwater.http.resources.live import LiveResource
from headwater.http.resources.pipelines import PipelineResource
from headwater.http.resources.responses import ResponseResource
from headwater.http.resources.snapshots import SnapshotResource
from headwater.http.resources.streams import StreamResource
from headwater.http.resources.subscriptions import SubscriptionResource
from headwater.http.resources.tables import Ask, TableResource
from headwater.http.resources.transactions import TransactionResource
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.live.registry import Live
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.transactions import Transactions

if TYPE_CHECKING:
    from headwater.documents.documents import Documents
    from headwater.http.resources.documents import DocumentResource
    from headwater.responses.responses import Responses


@dataclass(frozen=True, slots=True)
class Resources:
    streams: StreamResource
    catalog: Catalog
    bulk: BulkResource
    follow: FollowResource
    snapshots: SnapshotResource
    groups: GroupResource
    transactions: TransactionResource
    live: LiveResource
    subscriptions: SubscriptionResource
    pipelines: PipelineResource
    tables: TableResource
    metrics: Metrics
    figures: Figures
    about: About
    cluster: ClusterResource
    module: BrowserModule
    console: Console | None
    signing: Signing | None
    """Only if callers are known."""
    responses: ResponseResource | None = None
    """Only if addresses are allowed."""
    documents: DocumentResource | None = None


def resources_of(
    log: Log,
    feeds: Feeds,
    groups: Groups,
    live: Live,
    subscriptions: Subscriptions,
    *,
    heartbeat: Heartbeat,
    long_poll_timeout_ms: int,
    console: bool = True,
    identity: Identity | None = None,
    metrics: Metrics | None = None,
    figures: Figures | None = None,
    ask: Ask | None = None,
    documents: Documents | None = None,
    responses: Responses | None = None,
    cluster: ClusterResource | None = None,
) -> Resources:
    streams = StreamResource(log, groups, feeds, heartbeat, long_poll_timeout_ms / 1000)
    return Resources(
        streams=streams,
        catalog=Catalog(log, feeds),
        bulk=BulkResource(log),
        follow=FollowResource(log, feeds, heartbeat),
        snapshots=SnapshotResource(log),
        groups=GroupResource(groups, heartbeat),
        transactions=TransactionResource(log, Transactions(log, groups)),
        live=LiveResource(live),
        subscriptions=SubscriptionResource(subscriptions),
        pipelines=PipelineResource(log.clock),
        tables=TableResource(ask),
        metrics=metrics or Metrics(),
        figures=figures or Figures(log.clock),
        about=About(log, console=console),
        module=BrowserModule(),
        console=Console() if console else None,
        signing=None if identity is None else Signing(identity.secret, log.clock),
        documents=None if documents is None else _documents(streams, log, documents),
        responses=None if responses is None else ResponseResource(responses, streams),
        cluster=cluster or ClusterResource(),
    )


def _documents(streams: StreamResource, log: Log, documents: Documents) -> DocumentResource:
    # Loaded only if it is used.
    from headwater.http.resources.documents import DocumentResource

    return DocumentResource(streams, log, documents)
