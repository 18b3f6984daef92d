"""The parts of an embedded log, created together and stopped in order.

It is the server without sockets, keys, metrics and pages. An unused layer has nothing to do:
groups, live queries and subscriptions are loaded on demand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Self

from headwater.core.limits import Limits
from headwater.core.subscriptions.errors import WebhookUrlRejected
from headwater.embedded.transport import EmbeddedTransport
from headwater.http.app import App
from headwater.http.feeds.heartbeat import Heartbeat
from headwater.http.resources.assembly import resources_of
from headwater.service.feeds import Feeds
from headwater.service.groups.operations import Groups
from headwater.service.live.registry import Live
from headwater.service.log import Log
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.subscriptions.webhooks import Outcome, Webhooks
from headwater.store.engine import Engine
from headwater.store.history.policies import SealPolicy

_LONG_POLL_MS: Final = 30_000
_EVENTS_S: Final = 3_600.0
_PATIENCE_S: Final = 10.0


class _NoWebhooks(Webhooks):
    """A worker answers a wake by calling the server that sent it, and there is none here."""

    _REASON: Final = "a log in your own process sends no webhooks; use a pull-wake subscription"

    async def check(self, url: str) -> None:
        raise WebhookUrlRejected(self._REASON)

    async def post(self, url: str, body: bytes, signature: str) -> Outcome:
        return Outcome(False, problem=self._REASON)


class Parts:
    def __init__(self, log: Log, groups: Groups, subscriptions: Subscriptions) -> None:
        self.log = log
        self.groups = groups
        self._subscriptions = subscriptions
        self._feeds = Feeds(log)
        self._live = Live(log)
        self._heartbeat = Heartbeat(_EVENTS_S)
        resources = resources_of(
            log,
            self._feeds,
            groups,
            self._live,
            subscriptions,
            heartbeat=self._heartbeat,
            long_poll_timeout_ms=_LONG_POLL_MS,
            console=False,
        )
        self.transport = EmbeddedTransport(App(resources, cors=False), log.limits)
        self._ending: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, engine: Engine, limits: Limits | None, *, linger_ms: int) -> Self:
        log = await Log.start(engine, limits, linger_ms=linger_ms, sealing=SealPolicy())
        groups = await Groups.start(log)
        return cls(log, groups, await Subscriptions.start(log, _NoWebhooks(log.limits)))

    async def stop(self, client_done: Callable[[], Awaitable[None]]) -> None:
        """Stop once; later calls wait for the first. `client_done` waits for requests in flight."""
        if self._ending is None:
            self.transport.check()
            self._ending = asyncio.ensure_future(self._stop(client_done))
        # A cancelled caller must not leave it half open.
        await asyncio.shield(self._ending)

    async def _stop(self, client_done: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await client_done()
        except TimeoutError:
            pass
        self.transport.close()
        self._feeds.release_polls()
        self.groups.stop()
        self._live.release()
        self.log.wind_down()
        await self._subscriptions.stop()
        await self.transport.settled(_PATIENCE_S)
        self._heartbeat.stop()
        await self._live.stop()
        await self.log.stop()
