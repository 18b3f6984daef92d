"""Answers from memory, only while it is certain that no other node has taken over.

A node that was paused, or cut off from its database, does not know what has been committed since.
So every request waits until the lease is valid, and is refused if it cannot be renewed. However
many requests wait, the lease is renewed once; an unresponsive database is waited for no longer than
`PATIENCE_S`. Probes and metrics concern only the node itself, and are always answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from headwater.core.errors import StorageUnavailable
from headwater.http.messages import Answer, Deferred, Handler, Request
from headwater.http.paths import PROBE_TARGETS
from headwater.http.wire.outcomes import resolved
from headwater.service.waiting import shared
from headwater.store.engine.membership import Lease

PATIENCE_S: Final = 10.0
_ABOUT_THE_NODE: Final = frozenset({*PROBE_TARGETS, b"/metrics"})


class Leased:
    def __init__(
        self,
        handler: Handler,
        lease: Lease,
        in_thread: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self._handler = handler
        self._lease = lease
        self._in_thread = in_thread
        self._renewing: asyncio.Future[None] | None = None

    def __call__(self, request: Request) -> Answer | Deferred | Awaitable[Answer]:
        if self._lease.is_good or request.path in _ABOUT_THE_NODE:
            return self._handler(request)
        return self._later(request)

    async def _later(self, request: Request) -> Answer:
        renewing = self._renewing
        if renewing is None:
            renewing = asyncio.ensure_future(self._in_thread(self._lease.renew))
            self._renewing = renewing
            renewing.add_done_callback(self._renewed)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await shared(renewing)
        except TimeoutError:
            raise StorageUnavailable(
                "this node cannot reach its database, so another may have taken over; ask another "
                "node, or try again"
            ) from None
        return await resolved(self._handler(request))

    def _renewed(self, renewing: asyncio.Future[None]) -> None:
        self._renewing = None
        # The waiting requests get the error; there may be none left.
        if not renewing.cancelled():
            renewing.exception()
