"""Reading large answers without the event loop.

Bulk reads return answers of many megabytes. An event loop reads them in pieces of 64 KiB, which
costs as much as everything else that a task does with them. So over plain HTTP a thread reads such
an answer in one go, over its own connections. Everything else, and anything over TLS or through a
proxy, goes the usual way.
"""

from __future__ import annotations

import asyncio
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from headwater.client import ConnectionFailed, Timeouts, Transport
from headwater.client.aio.transport import OpenResponse
from headwater.client.errors import RequestTimedOut
from headwater.client.protocol.streams import Request, Response

_BULK: Final = "/_bulk"
_IDLE_MAX: Final = 8


class LargeAnswers:
    """A transport that reads bulk answers itself and delegates the rest."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._timeouts = Timeouts()
        # Shared by threads: appending and popping are atomic.
        self._idle: list[HTTPConnection] = []

    async def send(self, request: Request) -> Response:
        if _is_large(request):
            return await asyncio.to_thread(self._fetch, request)
        return await self._inner.send(request)

    async def open(self, request: Request) -> OpenResponse:
        return await self._inner.open(request)

    async def distrust(self) -> None:
        self._close()
        await self._inner.distrust()

    async def aclose(self) -> None:
        self._close()
        await self._inner.aclose()

    def _close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _fetch(self, request: Request) -> Response:
        while self._idle:
            connection = self._idle.pop()
            try:
                return self._ask(connection, request)
            except (OSError, HTTPException):
                # The server may have closed it long ago.
                connection.close()
        parts = urlsplit(request.url)
        connection = HTTPConnection(
            parts.hostname or "", parts.port, timeout=self._timeouts.connect_s
        )
        try:
            connection.connect()
            connection.sock.settimeout(self._timeouts.answer_s)
            return self._ask(connection, request)
        except (OSError, HTTPException) as error:
            connection.close()
            kind = RequestTimedOut if isinstance(error, TimeoutError) else ConnectionFailed
            what = str(error) or type(error).__name__
            # It only reads, so nothing is in doubt.
            raise kind(f"{request.method} {request.url}: {what}") from error

    def _ask(self, connection: HTTPConnection, request: Request) -> Response:
        parts = urlsplit(request.url)
        query = "&".join(filter(None, (parts.query, urlencode(request.params))))
        connection.request(request.method, f"{parts.path}?{query}", headers=dict(request.headers))
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        body = answer.read()
        if answer.will_close or len(self._idle) >= _IDLE_MAX:
            connection.close()
        else:
            self._idle.append(connection)
        return Response(answer.status, headers, body)


def _is_large(request: Request) -> bool:
    parts = urlsplit(request.url)
    if request.method != "GET" or parts.scheme != "http" or not parts.path.endswith(_BULK):
        return False
    host = parts.hostname or ""
    return "http" not in getproxies() or host == "localhost" or bool(proxy_bypass(host))
