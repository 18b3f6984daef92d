"""`headwater serve`: assemble the system, run it, shut it down cleanly."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol

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
from headwater.cli.serving.parts import Parts
from headwater.cli.serving.process import prepare_process
from headwater.cli.serving.reloading import Reloader
from headwater.cli.serving.responses import open_responses
from headwater.cli.serving.tables import Tables
from headwater.core.cluster import parse_labels
from headwater.http.observe.tracing import Tracing, TracingUnavailable, open_tracing
from headwater.http.resources.tables import Ask
from headwater.http.wire.server import Server
from headwater.service.background import Watch
from headwater.service.clock import wall_clock_ms
from headwater.settings import Settings
from headwater.store.engine import CannotOpen, Engine
from headwater.store.memory.engine import MemoryEngine
from headwater.store.sqlite.engine import SqliteEngine

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_JOIN_AGAIN_S: Final = 1.0
_NODE: Final = "node"
"""Below the data directory: the cache of a node that keeps no data on its disk."""

log = structlog.get_logger()


def open_engine(settings: Settings, lost: Callable[[], None] = lambda: None) -> Engine:
    """The engine named by the settings. `lost` is called if another node takes over."""
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
        settings.data / _NODE if settings.history_store else None,
    )


class Loss:
    """Another node has taken over from this one, so this one stops."""

    def __init__(self) -> None:
        self.happened = False
        self._end: Callable[[], object] | None = None

    def __call__(self) -> None:
        """May be called from any thread, at any time."""
        self.happened = True
        if self._end is not None:
            self._end()

    def then(self, end: Callable[[], object]) -> None:
        self._end = end
        if self.happened:
            end()


class Sidecar(Protocol):
    """Runs alongside a server, from when it listens until just before it stops."""

    @property
    def lake(self) -> Path:
        """Where it keeps tables."""

    @property
    def watches(self) -> Iterable[Watch]:
        """The state of its tasks."""

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
    """Other nodes considered this one gone. Rejoin as soon as possible."""
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
            # Without files to reload, it still means that the terminal was closed.
            loop.add_signal_handler(signal.SIGHUP, reloader.reload)
        greet(settings, port)
        _warn_of_plain_tokens(settings)
        async with sidecar.running(address(settings, port), hurry) if sidecar else nullcontext():
            await stop.wait()
        log.info("stopping", connections=server.connections)
    log.info("stopped")
    for number in _STOP_SIGNALS:
        # The loop is about to remove them; another signal must not disturb the shutdown.
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
    """The whole system, from the engine to an open port, and its orderly shutdown."""
    reloader = reloader or Reloader()
    try:
        certificate = open_certificate(settings, reloader)
        gate = open_gate(settings, reloader, wall_clock_ms)
        responses_of = open_responses(settings, gate)
    except CannotServe:
        engine.close()
        raise
    parts = await Parts.start(settings, engine, gate, responses_of)
    server = parts.make_server(certificate, tracing, ask)
    try:
        port = await server.start(settings.host, settings.port)
    except OSError as error:
        await parts.abandon()
        raise CannotServe(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"
        ) from None
    parts.begin(server, reloader)
    try:
        yield server, port
    finally:
        await parts.stop(server, reloader)
        if tracing is not None:
            await asyncio.to_thread(tracing.stop)


def check_packages(settings: Settings) -> None:
    """Check now for packages that are loaded later; they would be missed too late."""
    if settings.documents and find_spec("pycrdt") is None:
        raise CannotServe("documents need pycrdt: pip install 'headwater[documents]'")
    if settings.history_store and find_spec("obstore") is None:
        raise CannotServe("history_store needs obstore: pip install 'headwater[history]'")


def _warn_of_plain_tokens(settings: Settings) -> None:
    if access_is_on(settings) and not settings.tls_cert and not settings.listens_on_loopback:
        log.warning(
            "tokens_in_plain_text",
            advice="use --tls-cert and --tls-key, or a proxy that does TLS on this machine",
        )
