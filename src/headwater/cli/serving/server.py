"""`headwater serve`: assemble the system, run it, end it well."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import structlog
import uvloop

from headwater.cli.serving.access import (
    CannotServe,
    access_is_on,
    check_address,
    open_certificate,
    open_gate,
)
from headwater.cli.serving.banner import address, greet
from headwater.cli.serving.clustering import NO_PARTS, Clustering, handler_of
from headwater.cli.serving.process import prepare_process
from headwater.cli.serving.reloading import Reloader
from headwater.cli.serving.responses import open_responses
from headwater.cli.serving.tables import Tables
from headwater.core.cluster import parse_labels
from headwater.core.quotas import parse_quotas
from headwater.documents.figures import Figures as DocumentFigures
from headwater.http import collectors
from headwater.http.app import App
from headwater.http.browsers import Browsers
from headwater.http.figures import Figures
from headwater.http.heartbeat import Heartbeat
from headwater.http.metrics import Metrics
from headwater.http.resources import resources_of
from headwater.http.server import Server
from headwater.http.tables import Ask
from headwater.http.tracing import Tracing, TracingUnavailable, open_tracing
from headwater.http.traffic import Traffic, log_access
from headwater.service.background import Watch
from headwater.service.clock import wall_clock_ms
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.live.registry import Live
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.subscriptions.webhooks import Webhooks
from headwater.settings import Settings
from headwater.store.engine import CannotOpen, Engine
from headwater.store.memory.engine import MemoryEngine
from headwater.store.sqlite.engine import SqliteEngine

if TYPE_CHECKING:
    from headwater.documents.documents import Documents

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_JOIN_AGAIN_S: Final = 1.0

log = structlog.get_logger()


def open_engine(settings: Settings, lost: Callable[[], None] = lambda: None) -> Engine:
    """The engine that the settings name. `lost` is called if another node takes it over."""
    producers_max = settings.limits().producers_preloaded_max
    if settings.engine_kind == "memory":
        return MemoryEngine(producers_max)
    if settings.engine_kind == "sqlite":
        return SqliteEngine(settings.data, producers_max)
    try:
        from headwater.store.postgresql.engine import PostgresqlEngine
    except ModuleNotFoundError:
        raise CannotOpen(
            "the PostgreSQL engine needs psycopg: pip install 'headwater[postgres]'"
        ) from None
    return PostgresqlEngine(
        settings.engine,
        producers_max,
        settings.engine_lease_ms,
        lost,
        settings.advertise or None,
        parse_labels(settings.label),
    )


class Loss:
    """Another node has taken over what this one served, so this one ends."""

    def __init__(self) -> None:
        self.happened = False
        self._end: Callable[[], object] | None = None

    def __call__(self) -> None:
        """From any thread, at any time."""
        self.happened = True
        if self._end is not None:
            self._end()

    def then(self, end: Callable[[], object]) -> None:
        self._end = end
        if self.happened:
            end()


class Sidecar(Protocol):
    """What runs alongside a server, from when it listens to just before it stops."""

    @property
    def lake(self) -> Path:
        """Where it keeps tables."""

    @property
    def watches(self) -> Iterable[Watch]:
        """How it is doing."""

    def running(self, url: str, hurry: asyncio.Event) -> AbstractAsyncContextManager[None]: ...


def serve(settings: Settings, sidecar: Sidecar | None = None) -> None:
    has_keys_in_engine = settings.engine_kind == "postgresql"
    if not has_keys_in_engine:
        check_address(settings)
    check_packages(settings)
    loss = Loss()
    try:
        tracing = open_tracing() if settings.otel else None
        engine = open_engine(settings, loss)
    except (CannotOpen, TracingUnavailable) as error:
        raise CannotServe(str(error)) from None
    if has_keys_in_engine:
        _check_address(settings, engine)
    prepare_process()
    uvloop.run(_serve(settings, engine, loss, tracing, sidecar))
    while loss.happened:
        if not settings.advertise:
            raise CannotServe("another node has taken over the database; this one has stopped")
        loss = Loss()
        engine = _open_again(settings, loss)
        uvloop.run(_serve(settings, engine, loss, tracing, sidecar))


def _check_address(settings: Settings, engine: Engine) -> None:
    try:
        check_address(settings)
    except BaseException:
        engine.close()
        raise


def _open_again(settings: Settings, loss: Loss) -> Engine:
    """Others took this node for gone. Join again as soon as possible."""
    log.warning("joining_again")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        try:
            return open_engine(settings, loss)
        except CannotOpen as error:
            log.warning("cannot_join", reason=str(error))
            time.sleep(_JOIN_AGAIN_S)


async def _serve(
    settings: Settings,
    engine: Engine,
    loss: Loss,
    tracing: Tracing | None,
    sidecar: Sidecar | None,
) -> None:
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, end)
    loss.then(lambda: loop.call_soon_threadsafe(stop.set))
    reloader = Reloader()
    ask = Tables(sidecar.lake) if sidecar else None
    reloader.watches += sidecar.watches if sidecar else ()
    async with listening(settings, engine, reloader, tracing, ask) as (server, port):
        if reloader.has_work:
            # Without files to read again, it still means that the terminal was closed.
            loop.add_signal_handler(signal.SIGHUP, reloader.reload)
        greet(settings, port)
        _warn_of_plain_tokens(settings)
        async with sidecar.running(address(settings, port), hurry) if sidecar else nullcontext():
            await stop.wait()
        log.info("stopping", connections=server.connections)
    log.info("stopped")
    for number in _STOP_SIGNALS:
        # The loop is about to let go of them; one more must not spoil the end.
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


@asynccontextmanager
async def listening(
    settings: Settings,
    engine: Engine,
    reloader: Reloader | None = None,
    tracing: Tracing | None = None,
    ask: Ask | None = None,
) -> AsyncIterator[tuple[Server, int]]:
    """The whole system, from the engine to an open port, and its orderly end."""
    limits = settings.limits()
    reloader = reloader or Reloader()
    try:
        certificate = open_certificate(settings, reloader)
        gate = open_gate(settings, reloader, wall_clock_ms)
        responses_of = open_responses(settings, gate)
    except CannotServe:
        engine.close()
        raise
    try:
        streams = await Log.start(
            engine,
            limits,
            linger_ms=settings.linger_ms,
            sealing=settings.seal_policy(),
            archive=settings.archive_policy(),
            quotas=parse_quotas(settings.quotas),
        )
    except ValueError as error:
        engine.close()
        raise CannotServe(str(error)) from None
    heartbeat = Heartbeat(settings.sse_lifetime_ms / 1000)
    feeds = Feeds(streams)
    groups = await Groups.start(streams)
    live = Live(streams, waiters_max=settings.live_waiters_max, metrics=settings.live_metrics)
    webhooks = Webhooks(limits, development=settings.allows_local_webhooks)
    subscriptions = await Subscriptions.start(streams, webhooks, public_url=settings.public_url)
    documents = open_documents(settings, streams)
    clustering = await Clustering.start(streams, subscriptions, feeds, heartbeat)
    metrics, figures = Metrics(), Figures(streams.clock)
    responses = None if responses_of is None else responses_of(streams)
    resources = resources_of(
        streams,
        feeds,
        groups,
        live,
        subscriptions,
        heartbeat=heartbeat,
        long_poll_timeout_ms=settings.long_poll_timeout_ms,
        console=settings.console,
        identity=None if gate is None else gate.identity,
        metrics=metrics,
        figures=figures,
        ask=ask,
        documents=documents,
        responses=responses,
        cluster=None if clustering is None else clustering.resource,
    )
    knows_callers = gate is not None and gate.identity is not None
    origins = settings.origins(access=knows_callers)
    browsers = Browsers(origins, settings.hosts(access=knows_callers))
    app = App(
        resources,
        cors=origins is None or bool(origins),
        gate=gate,
        browsers=browsers,
        documents_root=f"{settings.documents_prefix}/".encode(),
    )
    traffic = _traffic(settings)
    if tracing is not None:
        traffic.watchers.append(tracing.watch)
        streams.writer.on_commit = tracing.committed
    server = Server(
        handler_of(app, streams, resources, clustering),
        limits,
        origins=origins,
        certificate=certificate,
        is_private=knows_callers,
        screen=app.screen if clustering is None else clustering.screen,
        recognise=None if clustering is None else clustering.recognise,
        traffic=traffic,
    )
    collectors.add_all(
        metrics, streams, feeds, groups, live, subscriptions, server, gate, responses
    )
    metrics.add(lambda: collectors.of_pipelines(resources.pipelines))
    of_documents = documents.compaction.figures if documents else DocumentFigures()
    metrics.add(lambda: collectors.of_documents(of_documents))
    metrics.add(lambda: collectors.of_cluster(*(clustering.parts if clustering else NO_PARTS)))
    try:
        port = await server.start(settings.host, settings.port)
    except OSError as error:
        if responses is not None:
            await responses.stop()
        await subscriptions.stop()
        await streams.stop()
        raise CannotServe(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"
        ) from None
    streams.watches += [heartbeat.watch, server.watch, figures.watch, *reloader.watches]
    figures.start(streams, feeds, groups, server)
    reloader.start()
    if responses is not None:
        responses.start()
    if clustering is not None:
        clustering.take_along(documents, responses)
        clustering.node.start()
    try:
        yield server, port
    finally:
        if clustering is not None:
            await clustering.node.empty(settings.shutdown_grace_ms / 1000)
        await reloader.stop()
        feeds.release_polls()
        groups.stop()
        live.release()
        streams.wind_down()
        if responses is not None:
            await responses.stop()
        await subscriptions.stop()
        await server.stop(settings.shutdown_grace_ms / 1000)
        figures.stop()
        heartbeat.stop()
        if documents is not None:
            await documents.stop()
        await live.stop()
        if clustering is not None:
            await clustering.stop()
        await streams.stop()
        if tracing is not None:
            await asyncio.to_thread(tracing.stop)


def check_packages(settings: Settings) -> None:
    """What is loaded only when it is needed would be missed late."""
    if settings.documents and find_spec("pycrdt") is None:
        raise CannotServe("documents need pycrdt: pip install 'headwater[documents]'")
    if settings.history_store and find_spec("obstore") is None:
        raise CannotServe("history_store needs obstore: pip install 'headwater[history]'")


def open_documents(settings: Settings, streams: Log) -> Documents | None:
    policy = settings.document_policy()
    if policy is None:
        return None
    # Loaded only where it is used.
    from headwater.documents.documents import Documents

    return Documents(streams, policy)


def _traffic(settings: Settings) -> Traffic:
    traffic = Traffic(settings.slow_request_ms / 1000 if settings.slow_request_ms else float("inf"))
    if settings.access_log:
        traffic.watchers.append(log_access)
    return traffic


def _warn_of_plain_tokens(settings: Settings) -> None:
    if access_is_on(settings) and not settings.tls_cert and not settings.listens_on_loopback:
        log.warning(
            "tokens_in_plain_text",
            advice="use --tls-cert and --tls-key, or a proxy that does TLS on this machine",
        )
