"""The parts of a server, assembled once and stopped in order."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.cli.serving.access import CannotServe
from headwater.cli.serving.clustering import NO_PARTS, Clustering, handler_of
from headwater.cli.serving.reloading import Reloader
from headwater.core.quotas import parse_quotas
from headwater.documents.figures import Figures as DocumentFigures
from headwater.http.access.gate import Gate
from headwater.http.app import App
from headwater.http.browsers import Browsers
from headwater.http.feeds.heartbeat import Heartbeat
from headwater.http.observe import collectors
from headwater.http.observe.figures import Figures
from headwater.http.observe.metrics import Metrics
from headwater.http.observe.tracing import Tracing
from headwater.http.observe.traffic import Traffic, log_access
from headwater.http.resources.assembly import Resources, resources_of
from headwater.http.resources.tables import Ask
from headwater.http.wire.server import Server
from headwater.http.wire.tls import Certificate
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.live.registry import Live
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.subscriptions.webhooks import Webhooks
from headwater.settings import Settings
from headwater.store.engine import Engine

if TYPE_CHECKING:
    from headwater.documents.documents import Documents
    from headwater.responses.responses import Responses


@dataclass(frozen=True, slots=True)
class Parts:
    settings: Settings
    gate: Gate | None
    streams: Log
    heartbeat: Heartbeat
    feeds: Feeds
    groups: Groups
    live: Live
    subscriptions: Subscriptions
    documents: Documents | None
    clustering: Clustering | None
    responses: Responses | None
    figures: Figures

    @classmethod
    async def start(
        cls,
        settings: Settings,
        engine: Engine,
        gate: Gate | None,
        responses_of: Callable[[Log], Responses] | None,
    ) -> Parts:
        streams = await _start_log(settings, engine)
        heartbeat = Heartbeat(settings.sse_lifetime_ms / 1000)
        feeds = Feeds(streams)
        groups = await Groups.start(streams)
        live = Live(streams, waiters_max=settings.live_waiters_max, metrics=settings.live_metrics)
        webhooks = Webhooks(streams.limits, development=settings.allows_local_webhooks)
        subscriptions = await Subscriptions.start(streams, webhooks, public_url=settings.public_url)
        return cls(
            settings,
            gate,
            streams,
            heartbeat,
            feeds,
            groups,
            live,
            subscriptions,
            _open_documents(settings, streams),
            await Clustering.start(streams, subscriptions, feeds, heartbeat),
            None if responses_of is None else responses_of(streams),
            Figures(streams.clock),
        )

    def make_server(
        self, certificate: Certificate | None, tracing: Tracing | None, ask: Ask | None
    ) -> Server:
        metrics = Metrics()
        resources = self._resources(metrics, ask)
        knows_callers = self.gate is not None and self.gate.identity is not None
        origins = self.settings.origins(access=knows_callers)
        app = App(
            resources,
            cors=origins is None or bool(origins),
            gate=self.gate,
            browsers=Browsers(origins, self.settings.hosts(access=knows_callers)),
            documents_root=f"{self.settings.documents_prefix}/".encode(),
        )
        traffic = _traffic(self.settings)
        if tracing is not None:
            traffic.watchers.append(tracing.watch)
            self.streams.writer.on_commit = tracing.committed
        clustering = self.clustering
        server = Server(
            handler_of(app, self.streams, resources, clustering),
            self.streams.limits,
            origins=origins,
            certificate=certificate,
            is_private=knows_callers,
            screen=app.screen if clustering is None else clustering.screen,
            recognise=None if clustering is None else clustering.recognise,
            traffic=traffic,
        )
        if self.streams.engine.lease is None:
            self.streams.writer.is_alone = lambda: server.connections == 1
        self._collect(metrics, resources, server)
        return server

    def _resources(self, metrics: Metrics, ask: Ask | None) -> Resources:
        return resources_of(
            self.streams,
            self.feeds,
            self.groups,
            self.live,
            self.subscriptions,
            heartbeat=self.heartbeat,
            long_poll_timeout_ms=self.settings.long_poll_timeout_ms,
            console=self.settings.console,
            identity=None if self.gate is None else self.gate.identity,
            metrics=metrics,
            figures=self.figures,
            ask=ask,
            documents=self.documents,
            responses=self.responses,
            cluster=None if self.clustering is None else self.clustering.resource,
        )

    def _collect(self, metrics: Metrics, resources: Resources, server: Server) -> None:
        collectors.add_all(
            metrics,
            self.streams,
            self.feeds,
            self.groups,
            self.live,
            self.subscriptions,
            server,
            self.gate,
            self.responses,
        )
        metrics.add(lambda: collectors.of_pipelines(resources.pipelines))
        of_documents = self.documents.compaction.figures if self.documents else DocumentFigures()
        metrics.add(lambda: collectors.of_documents(of_documents))
        clustering = self.clustering
        metrics.add(lambda: collectors.of_cluster(*(clustering.parts if clustering else NO_PARTS)))

    def begin(self, server: Server, reloader: Reloader) -> None:
        """The port is open: start the work that goes on without requests."""
        self.streams.watches += [
            self.heartbeat.watch,
            server.watch,
            self.figures.watch,
            *reloader.watches,
        ]
        self.figures.start(self.streams, self.feeds, self.groups, server)
        reloader.start()
        if self.responses is not None:
            self.responses.start()
        if self.clustering is not None:
            self.clustering.take_along(self.live, self.documents, self.responses)
            self.clustering.node.start()

    async def abandon(self) -> None:
        """The port cannot be opened, so nothing has started."""
        if self.responses is not None:
            await self.responses.stop()
        await self.subscriptions.stop()
        await self.streams.stop()

    async def stop(self, server: Server, reloader: Reloader) -> None:
        grace_s = self.settings.shutdown_grace_ms / 1000
        if self.clustering is not None:
            await self.clustering.node.empty(grace_s)
        await reloader.stop()
        self.feeds.release_polls()
        self.groups.stop()
        self.live.release()
        self.streams.wind_down()
        if self.responses is not None:
            await self.responses.stop()
        await self.subscriptions.stop()
        await server.stop(grace_s)
        self.figures.stop()
        self.heartbeat.stop()
        if self.documents is not None:
            await self.documents.stop()
        await self.live.stop()
        if self.clustering is not None:
            await self.clustering.stop()
        await self.streams.stop()


async def _start_log(settings: Settings, engine: Engine) -> Log:
    try:
        return await Log.start(
            engine,
            settings.limits(),
            linger_ms=settings.linger_ms,
            sealing=settings.seal_policy(),
            archive=settings.archive_policy(),
            quotas=parse_quotas(settings.quotas),
            commit_process=settings.commit_process and (os.cpu_count() or 1) > 1,
        )
    except ValueError as error:
        engine.close()
        raise CannotServe(str(error)) from None


def _open_documents(settings: Settings, streams: Log) -> Documents | None:
    policy = settings.document_policy()
    if policy is None:
        return None
    # Loaded only if it is used.
    from headwater.documents.documents import Documents

    return Documents(streams, policy)


def _traffic(settings: Settings) -> Traffic:
    traffic = Traffic(settings.slow_request_ms / 1000 if settings.slow_request_ms else float("inf"))
    if settings.access_log:
        traffic.watchers.append(log_access)
    return traffic
