"""The listening socket and all connections: limits, time-outs, and a graceful end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from time import monotonic, time
from typing import Final

from headwater.core.limits import Limits
from headwater.http.connection import Connection
from headwater.http.errors import plain_error
from headwater.http.headers import common_headers
from headwater.http.messages import Handler
from headwater.http.traffic import Traffic

_SWEEP_S: Final = 1.0
_BACKLOG: Final = 4096


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a peer may take, in seconds."""

    head_s: float = 30.0
    body_s: float = 60.0
    idle_s: float = 75.0
    write_s: float = 60.0


class Server:
    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        *,
        cors_origin: str = "*",
        timeouts: Timeouts | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.timeouts = timeouts or Timeouts()
        self.traffic = traffic or Traffic()
        self.stopping = False
        # Time-outs are long; a clock that moves once per sweep is good enough and free to read.
        self.now = monotonic()
        self._common = common_headers(cors_origin)
        self._head = b""
        self._head_second = 0
        self._connections: set[Connection] = set()
        self._empty = asyncio.Event()
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int) -> int:
        """Listen, and say on which port (of interest when 0 was asked for)."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self), host, port, backlog=_BACKLOG
        )
        self._sweep()
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    def constant_head(self) -> bytes:
        """The date and the headers that every response has; made once a second."""
        second = int(time())
        if second != self._head_second:
            self._head_second = second
            self._head = f"Date: {formatdate(second, usegmt=True)}\r\n".encode() + self._common
        return self._head

    # ── Connections ──────────────────────────────────────────────────────────────────────────

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        self.traffic.connections += 1
        if self.stopping:
            connection.wind_down()
        elif len(self._connections) > self.limits.connections_max:
            connection.turn_away(
                plain_error(
                    503,
                    "too_many_connections",
                    "the server has as many connections as it may; try again shortly",
                    [("Retry-After", "1")],
                )
            )

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._check_empty()

    def _check_empty(self) -> None:
        if self.stopping and not self._connections:
            self._empty.set()

    def _sweep(self) -> None:
        """Cut connections whose peer took too long. One timer for all of them."""
        self.now = now = monotonic()
        for connection in [c for c in self._connections if c.deadline < now]:
            connection.abort()
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    # ── The end ──────────────────────────────────────────────────────────────────────────────

    async def stop(self, grace_s: float) -> None:
        """Take no more connections, finish what is under way, cut what takes too long."""
        self.stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.wind_down()
        self._check_empty()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), grace_s)
        for connection in list(self._connections):
            connection.abort()
