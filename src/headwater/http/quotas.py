"""Requests that wait until the remaining room of a quota has been counted."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from headwater.http.messages import Answer, Deferred, Handler, Request
from headwater.http.wire.outcomes import resolved
from headwater.service.shared_quotas import Uncounted

_ATTEMPTS: Final = 50
"""Each attempt lets at least one waiting request through."""


class QuotaWaits:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def __call__(self, request: Request) -> Answer | Deferred | Awaitable[Answer]:
        try:
            reply = self._handler(request)
        except Uncounted as error:
            return self._again(request, error)
        if isinstance(reply, Deferred):
            failed = reply.future.exception() if reply.future.done() else None
            return self._again(request, failed) if isinstance(failed, Uncounted) else reply
        return reply if isinstance(reply, Answer) else self._or_again(request, reply)

    async def _or_again(self, request: Request, reply: Awaitable[Answer]) -> Answer:
        try:
            return await reply
        except Uncounted as error:
            return await self._again(request, error)

    async def _again(self, request: Request, error: Uncounted) -> Answer:
        """Nothing was done yet, so the request can be retried."""
        for _ in range(_ATTEMPTS):
            await error.shielded()
            try:
                return await resolved(self._handler(request))
            except Uncounted as again:
                error = again
        raise error
