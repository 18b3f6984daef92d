"""`headwater serve`: assemble the system, run it, end it well."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address

import structlog
import uvloop

from headwater import __version__
from headwater.http import collectors
from headwater.http.app import App
from headwater.http.beats import Heartbeat
from headwater.http.live import Hub
from headwater.http.metrics import Metrics
from headwater.http.server import Server
from headwater.http.tracing import Tracing, TracingUnavailable, open_tracing
from headwater.http.traffic import Traffic, log_access
from headwater.service.groups import Groups
from headwater.service.log import Log
from headwater.settings import Settings
from headwater.store.database import DataDirectoryError
from headwater.store.engine import Engine
from headwater.store.memory import MemoryEngine
from headwater.store.sqlite import SqliteEngine

log = structlog.get_logger()


class CannotServe(Exception):
    """The server cannot start; the message is one line that says why."""


def open_engine(settings: Settings) -> Engine:
    if settings.memory:
        return MemoryEngine()
    return SqliteEngine(settings.data, settings.limits().producers_preloaded_max)


def check_address(settings: Settings) -> None:
    """Without access control, only this machine may connect, unless that is really meant."""
    try:
        loopback = ip_address(settings.host).is_loopback
    except ValueError:
        loopback = settings.host == "localhost"
    if not loopback and not settings.insecure:
        raise CannotServe(
            f"{settings.host} is reachable from other machines and anyone could read and write; "
            "use --host 127.0.0.1, or --insecure if that is what you want"
        )


def serve(settings: Settings) -> None:
    check_address(settings)
    try:
        tracing = open_tracing() if settings.otel else None
        engine = open_engine(settings)
    except (DataDirectoryError, TracingUnavailable) as error:
        raise CannotServe(str(error)) from None
    # The commit thread and the event loop hand the interpreter lock to each other with every
    # batch; at the usual 5 ms, each commit would wait that long for a busy loop to let go.
    sys.setswitchinterval(0.0002)
    _raise_file_limit()
    uvloop.run(_serve(settings, engine, tracing))


def _raise_file_limit() -> None:
    """Every connection is an open file; use as many as this process may have."""
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))


async def _serve(settings: Settings, engine: Engine, tracing: Tracing | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with listening(settings, engine, tracing) as (server, port):
        _greet(settings, port)
        await stop.wait()
        log.info("stopping", connections=server.connections)
    log.info("stopped")


@asynccontextmanager
async def listening(
    settings: Settings, engine: Engine, tracing: Tracing | None = None
) -> AsyncIterator[tuple[Server, int]]:
    """The whole system, from the engine to an open port, and its orderly end."""
    limits = settings.limits()
    streams = await Log.start(engine, limits, linger_ms=settings.linger_ms)
    heartbeat = Heartbeat(settings.sse_lifetime_ms / 1000)
    hub = Hub(streams, settings.long_poll_timeout_ms, heartbeat)
    groups = await Groups.start(streams)
    metrics = Metrics()
    app = App(streams, hub, groups, cors=bool(settings.cors_origin), metrics=metrics)
    traffic = _traffic(settings)
    if tracing is not None:
        traffic.watchers.append(tracing.watch)
        streams.writer.on_commit = tracing.committed
    server = Server(app, limits, cors_origin=settings.cors_origin, traffic=traffic)
    collectors.add_all(metrics, streams, hub, groups, server)
    try:
        port = await server.start(settings.host, settings.port)
    except OSError as error:
        await streams.stop()
        raise CannotServe(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"
        ) from None
    try:
        yield server, port
    finally:
        hub.release_polls()
        groups.stop()
        await server.stop(settings.shutdown_grace_ms / 1000)
        heartbeat.stop()
        await streams.stop()
        if tracing is not None:
            await asyncio.to_thread(tracing.stop)


def _traffic(settings: Settings) -> Traffic:
    traffic = Traffic(settings.slow_request_ms / 1000 if settings.slow_request_ms else float("inf"))
    if settings.access_log:
        traffic.watchers.append(log_access)
    return traffic


def _greet(settings: Settings, port: int) -> None:
    """Lines to paste. On stdout, because they are what a person came for."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    base = f"http://{host}:{port}/v1/stream"
    where = "memory" if settings.memory else settings.data
    print(
        f"Headwater {__version__} listens on http://{host}:{port} (streams in {where})\n\n"
        f"  curl -X PUT  {base}/hello -H 'Content-Type: application/json'\n"
        f"  curl -X POST {base}/hello -H 'Content-Type: application/json' -d '{{\"n\": 1}}'\n"
        f"  curl -N     '{base}/hello?offset=-1&live=sse'\n",
        flush=True,
    )
    sys.stdout.flush()
