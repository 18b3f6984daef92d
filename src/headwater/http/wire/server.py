"""The listening socket and all connections: limits, timeouts, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final

from headwater.core.limits import Limits
from headwater.http.errors import plain_error
from headwater.http.messages import Handler, Request, Screen
from headwater.http.observe.traffic import Traffic
from headwater.http.wire.body_budget import BodyBudget
from headwater.http.wire.connection import Connection
from headwater.http.wire.descriptors import Descriptors
from headwater.http.wire.handshakes import Handshakes
from headwater.http.wire.known_heads import KnownHeads
from headwater.http.wire.outcomes import report
from headwater.http.wire.reader_budget import ReaderBudget
from headwater.http.wire.response_heads import Heads
from headwater.http.wire.tls import Certificate
from headwater.service.background import Watch
from headwater.service.clock import wall_clock_ms

_SWEEP_S: Final = 1.0
# What the kernel holds of an answer that the peer has no room for. The rest is ours to count.
_KERNEL_UNSENT_BYTES: Final = 256 * 1024
# An interpreter that was built to run on old systems too, such as those that uv installs, has no
# name for it.
_NOTSENT_LOWAT: Final[int | None] = getattr(
    socket, "TCP_NOTSENT_LOWAT", 25 if sys.platform == "linux" else None
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a peer may take, in seconds."""

    handshake_s: float = 10.0
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
        origins: frozenset[str] | None = None,
        timeouts: Timeouts | None = None,
        certificate: Certificate | None = None,
        is_private: bool = False,
        screen: Screen | None = None,
        recognise: Callable[[Request], None] | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.handler = handler
        self.watch = Watch("sweep")
        self.limits = limits
        self.timeouts = timeouts or Timeouts()
        self.traffic = traffic or Traffic()
        self.stopping = False
        self.readers = ReaderBudget(limits)
        self.known_heads = KnownHeads()
        self.bodies = BodyBudget(limits.bodies_bytes_max)
        self.refused_connections = 0
        self.descriptors = Descriptors()
        self.connections_max = self.descriptors.connections_max(limits.connections_max)
        self.screen = screen
        self.recognise = recognise
        """In a cluster: determines the sender of a request that another node forwarded."""
        self.is_private = is_private
        """Whether answers depend on the caller."""
        self.is_secure = certificate is not None
        self.scheme = "https" if certificate is not None else "http"
        self._certificate = certificate
        # Timeouts are long; a clock that moves once per sweep is good enough and free to read.
        self.now = monotonic()
        self.heads = Heads(origins, is_private=is_private)
        self._connections: set[Connection] = set()
        self._waited_for: dict[Connection, None] = {}
        """There is no room for these, but each may still send a probe; oldest first."""
        self._by_address: Counter[str] = Counter()
        self._empty = asyncio.Event()
        self._listeners: list[asyncio.Server] = []
        self._handshakes: Handshakes | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (useful if 0 was requested)."""
        loop = asyncio.get_running_loop()
        listen = partial(
            loop.create_server,
            lambda: Connection(self),
            backlog=self.descriptors.backlog,
            start_serving=self._certificate is None,
        )
        listener = await listen(host, port)
        self._listeners.append(listener)
        for listening in listener.sockets:
            if _NOTSENT_LOWAT is not None:
                # Inherited by every connection. Otherwise the kernel buffers megabytes for each.
                listening.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, _KERNEL_UNSENT_BYTES)
            if self._certificate is not None:
                self._shake_hands(listening, self._certificate)
                continue
            for _ in range(self.descriptors.accepts_per_turn - 1):
                same = socket.socket(fileno=os.dup(listening.fileno()))
                self._listeners.append(await listen(sock=same))
        self._sweep()
        bound: int = listener.sockets[0].getsockname()[1]
        return bound

    def _shake_hands(self, bound: socket.socket, certificate: Certificate) -> None:
        if self._handshakes is None:
            self._handshakes = Handshakes(
                certificate,
                lambda: Connection(self),
                lambda count: len(self._connections) + count <= self._bearable,
                self.timeouts.handshake_s,
            )
        self._handshakes.listen(bound, self.descriptors.backlog, self.descriptors.accepts_per_turn)

    # ── Connections ──────────────────────────────────────────────────────────────────────────

    @property
    def _bearable(self) -> int:
        """How many connections there may be, including those that may only send a probe."""
        return self.connections_max + self.descriptors.probes_max

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._by_address[connection.address] += 1
        self.traffic.connections += 1
        over = len(self._connections) - self.connections_max
        if self.stopping:
            connection.wind_down()
        elif over > 0:
            if over > self.descriptors.probes_max:
                self._give_up_oldest()
            reason = "the server has as many connections as it may"
            probes = len(self._waited_for) < self.descriptors.probes_max
            if probes:
                self._waited_for[connection] = None
            self._turn_away(connection, reason, probes=probes)
        elif 0 < self.limits.connections_per_address_max < self._by_address[connection.address]:
            self._turn_away(connection, "your address has as many connections as it may")

    def _turn_away(self, connection: Connection, reason: str, *, probes: bool = False) -> None:
        self.refused_connections += 1
        message, later = f"{reason}; try again shortly", [("Retry-After", "1")]
        response = plain_error(503, "too_many_connections", message, later)
        connection.turn_away(response, probes=probes)

    def _give_up_oldest(self) -> None:
        """Drop the oldest: a prober sends at once, and silent strangers must not be in the way."""
        silent = next((one for one in self._waited_for if one.current is None), None)
        if silent is not None:
            del self._waited_for[silent]
            self._each([silent], Connection.time_out)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._waited_for.pop(connection, None)
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]
        self._check_empty()

    def _check_empty(self) -> None:
        if self.stopping and not self._connections:
            self._empty.set()

    def _sweep(self) -> None:
        """Cut connections whose peer took too long or may not stay. One timer for all of them."""
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        try:
            self._sweep_once()
        except Exception as error:
            self.watch.failed(error, _SWEEP_S)
        else:
            self.watch.succeeded()

    def _sweep_once(self) -> None:
        self.now = now = monotonic()
        self._each([c for c in self._connections if c.deadline < now], Connection.time_out)
        if self.is_private:
            self._each(self._expired(wall_clock_ms()), Connection.expel)
        self.readers.measure()
        self.descriptors.look(len(self._connections), self.refused_connections)

    def _expired(self, now_ms: int) -> list[Connection]:
        callers = [(c, c.caller) for c in self._connections]
        return [c for c, caller in callers if caller is not None and not caller.is_valid(now_ms)]

    def _each(self, connections: list[Connection], act: Callable[[Connection], None]) -> None:
        """A failure of one must not affect the others."""
        for connection in connections:
            try:
                act(connection)
            except Exception as error:
                report(error)
                connection.abort()

    # ── Shutdown ─────────────────────────────────────────────────────────────────────────────

    async def stop(self, grace_s: float) -> None:
        """Accept no more connections, finish what is in progress, cut what takes too long."""
        self.stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for listener in self._listeners:
            listener.close()
        if self._handshakes is not None:
            self._handshakes.close()
        self._each(list(self._connections), Connection.wind_down)
        self._check_empty()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        for connection in list(self._connections):
            connection.abort()
