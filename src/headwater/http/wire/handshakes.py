"""TLS connections until their handshake is done.

Each holds a descriptor, and nobody knows yet whose it is. The loop would neither count nor bound
them, so they are accepted here. If there are too many, the one that has waited longest is dropped:
a genuine client is done within a few round trips, and silent strangers must not keep others out.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headwater.http.wire.tls import Certificate

# How long a peer may take to close the TLS connection.
_SHUTDOWN_S: Final = 5.0
# How long to wait when there is no descriptor for another connection.
_EXHAUSTED_S: Final = 0.1


class Handshakes:
    def __init__(
        self,
        certificate: Certificate,
        make_connection: Callable[[], asyncio.Protocol],
        has_room: Callable[[int], bool],
        timeout_s: float,
    ) -> None:
        self._certificate = certificate
        self._make_connection = make_connection
        self._has_room = has_room
        """Whether the server can take this many of them."""
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._listening: list[socket.socket] = []
        self._under_way: dict[asyncio.Task[None], None] = {}
        """Oldest first."""

    def __len__(self) -> int:
        return len(self._under_way)

    def listen(self, bound: socket.socket, backlog: int, accepts_per_turn: int) -> None:
        listening = socket.socket(fileno=os.dup(bound.fileno()))
        listening.setblocking(False)
        listening.listen(backlog)
        self._listening.append(listening)
        self._watch(listening, accepts_per_turn)

    def close(self) -> None:
        for listening in self._listening:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        for task in [*self._under_way]:
            task.cancel()

    def _watch(self, listening: socket.socket, accepts_per_turn: int) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening, accepts_per_turn)

    def _accept(self, listening: socket.socket, most: int) -> None:
        for _ in range(most):
            try:
                peer, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError:
                self._loop.remove_reader(listening)
                self._loop.call_later(_EXHAUSTED_S, self._watch, listening, most)
                return
            task = self._loop.create_task(self._shake_hands(peer))
            self._under_way[task] = None
            task.add_done_callback(self._forget)
            if not self._has_room(len(self._under_way)):
                next(iter(self._under_way)).cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)

    async def _shake_hands(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        # Strangers send anything, or disconnect.
        with suppress(OSError):
            await self._loop.connect_accepted_socket(
                self._make_connection,
                peer,
                ssl=self._certificate.context,
                ssl_handshake_timeout=self._timeout_s,
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )
