"""Unresponsive nodes: is the node that requests wait for still there?

An answer may take its time: a commit waits for its replicas, a worker for messages. So there is no
time limit for it. But a node that has not answered for a whole lease is asked for its proof again,
on a new connection. It gives that at once if it receives anything. If it has not for as long as
requests wait for an owner, all requests waiting for it fail. Other nodes may still reach it, and
PostgreSQL may see it alive, so nobody takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

import structlog

from headwater.http.nodes.links import Link, LinkBroken, Links

_ASK_AGAIN_S: Final = 0.5

log = structlog.get_logger()


class Liveness:
    """What is known about the nodes that this one waits for."""

    def __init__(self, lease_s: float, patience_s: float) -> None:
        self._lease_s = lease_s
        self._patience_s = patience_s
        self._heard_s: dict[int, float] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}

    def looked(self, node_id: int, links: Callable[[], Links], waiting: Iterable[Link]) -> None:
        """Check whether anything has waited too long for a node."""
        if node_id in self._asking:
            return
        since_s = monotonic() - self._lease_s
        if self._heard_s.get(node_id, 0.0) > since_s:
            return
        if any(link.is_kept_waiting(since_s) for link in waiting):
            asking = self._ask(node_id, links(), frozenset(waiting))
            task = self._asking[node_id] = asyncio.ensure_future(asking)
            task.add_done_callback(lambda _: self._asking.pop(node_id, None))

    async def _ask(self, node_id: int, links: Links, waiting: Iterable[Link]) -> None:
        deadline = monotonic() + self._patience_s
        while True:
            try:
                link = await links.connect()
            except LinkBroken as broken:
                if monotonic() < deadline:
                    await asyncio.sleep(_ASK_AGAIN_S)
                    continue
                log.warning("node_is_silent", address=links.address, reason=str(broken))
                for one in waiting:
                    one.give_up()
            else:
                link.release()
                self._heard_s[node_id] = monotonic()
            return

    def forget(self, node_id: int) -> None:
        self._heard_s.pop(node_id, None)

    def stop(self) -> None:
        for task in [*self._asking.values()]:
            task.cancel()
