"""Answers from memory, only while it is certain that nobody else has taken over.

A node that was paused, or cut off from its database, does not know what has been committed since.
So every request waits until its lease is good, and is refused if that cannot be had.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headwater.http.messages import Answer, Deferred, Handler, Request
from headwater.http.targets import PROBE_TARGETS
from headwater.store.engine import Lease


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

    def __call__(self, request: Request) -> Answer | Deferred | Awaitable[Answer]:
        if self._lease.is_good or request.path in PROBE_TARGETS:
            return self._handler(request)
        return self._later(request)

    async def _later(self, request: Request) -> Answer:
        await self._in_thread(self._lease.renew)
        return await resolved(self._handler(request))


async def resolved(reply: Answer | Deferred | Awaitable[Answer]) -> Answer:
    if isinstance(reply, Deferred):
        return await reply.resolve()
    return reply if isinstance(reply, Answer) else await reply
