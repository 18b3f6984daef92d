"""The seam between the client and the network.

Everything above sends a `Request` through a `Transport` and gets a `Response`, or a failure from
`headwater.client.errors`; nothing above knows about httpx. A test replaces the transport with an
object of its own, and so can an application that has its own way to the server.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, cast

import httpx

from headwater.client.errors import ConnectionFailed, HeadwaterError, RequestTimedOut
from headwater.client.protocol.retry import check_options
from headwater.client.protocol.streams import (
    ANSWER_BYTES_MAX,
    ERROR_BYTES_MAX,
    Patience,
    Request,
    Response,
    unexpected,
)

CONNECTIONS_MAX: Final = 1_000
KEEPALIVE_S: Final = 20.0

# Others, and one on top of another, could unpack a few bytes to more than there is memory for,
# before anyone can count it.
_ENCODINGS: Final = ("gzip", "deflate", "identity")

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

# What can go wrong before a request has left us, so that it cannot have had an effect.
_NOT_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.ProxyError,
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait for the server, in seconds.

    Attributes:
        connect_s: to establish a connection.
        answer_s: between two pieces of data during an ordinary request.
        long_poll_s: for the answer to a long-poll. Longer than the server holds one (30 s).
        sse_silence_s: without a byte on an event stream, where a server sends keep-alives.
    """

    connect_s: float = 10.0
    answer_s: float = 30.0
    long_poll_s: float = 75.0
    sse_silence_s: float = 75.0

    def __post_init__(self) -> None:
        check_options(self, positive=("connect_s", "answer_s", "long_poll_s", "sse_silence_s"))

    def for_patience(self, patience: Patience) -> float:
        """The longest silence that is not yet a failure."""
        by_patience = {"long-poll": self.long_poll_s, "sse": self.sse_silence_s}
        return by_patience.get(patience, self.answer_s)


class OpenResponse(Protocol):
    """An answer whose body is still arriving."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, names in lower case."""
        ...

    async def next_chunk(self) -> bytes | None:
        """More of the body; None at its proper end. Raises if it was cut off."""
        ...

    async def aclose(self) -> None:
        """Let go of the connection."""
        ...


class Transport(Protocol):
    """Sends requests. Raises nothing but `ConnectionFailed`, `UnexpectedAnswer` if there is no end
    to an answer, and cancellation."""

    async def send(self, request: Request) -> Response:
        """Send a request and wait for the whole answer."""
        ...

    async def open(self, request: Request) -> OpenResponse:
        """Send a request and return when the answer's headers are there."""
        ...

    async def distrust(self) -> None:
        """An answer made no sense: send nothing more over the connections that are open now.

        If an answer does not belong to its request, the next one on that connection will not
        either.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class HttpxTransport:
    """The transport over httpx: pooled connections, HTTP/2 where the server offers it."""

    def __init__(self, *, timeouts: Timeouts | None = None, verify: Any = True) -> None:
        self._timeouts = timeouts or Timeouts()
        self._tls = _tls_context(verify)
        self._pool = _Pool(self._tls)
        self._retired: set[_Pool] = set()

    async def send(self, request: Request) -> Response:
        pool = self._pool
        async with self._in_use(pool):
            try:
                answer = await pool.client.send(self._build(pool, request), stream=True)
                try:
                    return await _whole(answer)
                finally:
                    await answer.aclose()
            except (httpx.HTTPError, httpx.StreamError) as error:
                raise failure_of(request, error) from error

    async def open(self, request: Request) -> OpenResponse:
        pool = self._pool
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._in_use(pool))
            try:
                answer = await pool.client.send(self._build(pool, request), stream=True)
            except (httpx.HTTPError, httpx.StreamError) as error:
                raise failure_of(request, error) from error
            try:
                _check_encoding(answer)
            except HeadwaterError:
                await answer.aclose()
                raise
            return _HttpxOpenResponse(request, answer, stack.pop_all())

    async def distrust(self) -> None:
        retired, self._pool = self._pool, _Pool(self._tls)
        self._retired.add(retired)
        await self._close_if_done(retired)

    async def aclose(self) -> None:
        for pool in (self._pool, *self._retired):
            await pool.client.aclose()

    @asynccontextmanager
    async def _in_use(self, pool: _Pool) -> AsyncIterator[None]:
        pool.requests += 1
        try:
            yield
        finally:
            pool.requests -= 1
            await self._close_if_done(pool)

    async def _close_if_done(self, pool: _Pool) -> None:
        if pool in self._retired and not pool.requests:
            self._retired.discard(pool)
            await pool.client.aclose()

    def _build(self, pool: _Pool, request: Request) -> httpx.Request:
        silence_s = self._timeouts.for_patience(request.patience)
        built = pool.client.build_request(
            request.method,
            request.url,
            params=request.params or None,
            headers=dict(request.headers),
            content=request.body or None,
            timeout=httpx.Timeout(
                self._timeouts.answer_s, read=silence_s, connect=self._timeouts.connect_s
            ),
        )
        if built.url.host in _LOOPBACK:
            # There is no bandwidth to save, only time on both sides.
            built.headers["Accept-Encoding"] = "identity"
        return built


def _tls_context(verify: Any) -> ssl.SSLContext:
    if isinstance(verify, str | Path):
        return ssl.create_default_context(cafile=verify)
    return httpx.create_ssl_context(verify=verify)


def _check_encoding(answer: httpx.Response) -> None:
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in _ENCODINGS:
        response = Response(answer.status_code, dict(answer.headers))
        raise unexpected(response, f"nobody asked for an answer encoded as {encoding!r}")


async def _whole(answer: httpx.Response) -> Response:
    """An answer with its body, unless that is larger than any server means it to be."""
    _check_encoding(answer)
    response = Response(answer.status_code, dict(answer.headers))
    pieces, size = [], 0
    async for piece in answer.aiter_bytes():
        pieces.append(piece)
        size += len(piece)
        if answer.is_error and size > ERROR_BYTES_MAX:
            break
        if size > ANSWER_BYTES_MAX:
            raise unexpected(response, f"the answer is over {ANSWER_BYTES_MAX} bytes")
    return replace(response, body=b"".join(pieces))


class _Pool:
    """The connections that are in use until something makes no sense."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self.requests = 0
        self.client = httpx.AsyncClient(
            headers={"Accept-Encoding": "gzip, deflate"},
            http2=True,  # negotiated by TLS; plain connections stay with HTTP/1.1
            verify=tls,
            # Never through a proxy; an IPv6 address is bracketed in a URL.
            mounts={f"all://{f'[{host}]' if ':' in host else host}": None for host in _LOOPBACK},
            limits=httpx.Limits(
                max_connections=CONNECTIONS_MAX,
                max_keepalive_connections=CONNECTIONS_MAX,
                keepalive_expiry=KEEPALIVE_S,
            ),
        )


class _HttpxOpenResponse:
    def __init__(self, request: Request, answer: httpx.Response, use: AsyncExitStack) -> None:
        self.status = answer.status_code
        self.headers: Mapping[str, str] = dict(answer.headers)
        self._request = request
        self._answer = answer
        self._use = use
        self._chunks = cast(AsyncGenerator[bytes, None], answer.aiter_bytes())

    async def next_chunk(self) -> bytes | None:
        try:
            return await anext(self._chunks, None)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise failure_of(self._request, error) from error

    async def aclose(self) -> None:
        # The connection is being given up; how that fails is of no interest to anyone.
        with suppress(httpx.HTTPError, httpx.StreamError):
            await self._chunks.aclose()
            await self._answer.aclose()
        await self._use.aclose()


def failure_of(request: Request, error: Exception) -> HeadwaterError:
    """What httpx raised, as a failure of this package."""
    kind = RequestTimedOut if isinstance(error, httpx.TimeoutException) else ConnectionFailed
    detail = str(error) or type(error).__name__
    return kind(
        f"{request.method} {request.url}: {detail}", in_doubt=not isinstance(error, _NOT_SENT)
    )
