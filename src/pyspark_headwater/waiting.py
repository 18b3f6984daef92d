"""Reporting waits.

Requests are retried for minutes, because a server that is away usually comes back. From outside,
that looks the same as a wrong address. So a process that waits longer than a moment reports it on
its standard error: that of the driver, or of an executor. The first line comes within five seconds,
and more follow at growing intervals while nothing changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final, TypeVar

from headwater.client import ConnectionFailed, Transport
from headwater.client.aio.transport import OpenResponse
from headwater.client.protocol.streams import Request, Response

# Attempts are at most 1.6 s apart by then, so the first failure after it is in time.
FAILING_S: Final = 1.5
UNANSWERED_S: Final = 4.0
_LOUDER: Final = 3.0

log = logging.getLogger(__name__)
T = TypeVar("T", bound=Response | OpenResponse)


class TellingTransport:
    """A transport that reports when the server does not answer, or answers 429 or 5xx."""

    def __init__(self, inner: Transport, patience_s: float) -> None:
        self._inner = inner
        self._patience_s = patience_s
        self._since: float | None = None
        self._next_s = FAILING_S

    async def send(self, request: Request) -> Response:
        return await self._watched(request, self._inner.send(request))

    async def open(self, request: Request) -> OpenResponse:
        return await self._watched(request, self._inner.open(request))

    async def distrust(self) -> None:
        await self._inner.distrust()

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _watched(self, request: Request, answer: Awaitable[T]) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        timer = None
        if request.patience == "answer":
            timer = loop.call_later(UNANSWERED_S, self._tell, began, _about(request, "no answer"))
        try:
            found = await answer
        except ConnectionFailed as error:
            self._failed(began, error.message)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if found.status == 429 or found.status >= 500:
            self._failed(began, _about(request, f"status {found.status}"))
        else:
            self._since, self._next_s = None, FAILING_S
        return found

    def _failed(self, began: float, why: str) -> None:
        self._since = began if self._since is None else self._since
        if asyncio.get_running_loop().time() - self._since >= self._next_s:
            self._tell(self._since, why)

    def _tell(self, began: float, why: str) -> None:
        since = began if self._since is None else self._since
        waited_s = asyncio.get_running_loop().time() - since
        self._next_s = max(waited_s, FAILING_S) * _LOUDER
        log.warning(
            "waiting for the Headwater server: %s (%.0f s so far, retryTimeout is %.0f). "
            "Is it running, and is the endpoint right?",
            why,
            waited_s,
            self._patience_s,
        )


def _about(request: Request, what: str) -> str:
    return f"{request.method} {request.url}: {what}"
