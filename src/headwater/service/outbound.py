"""Outgoing requests: resolved here, pinned to the checked address, never redirected.

Names are looked up here and nowhere else. A request goes to the address that was checked, with the
name in its Host header and in TLS, so there is no second look-up that could differ. Connections are
not reused: one made for a name must not serve another name that happens to resolve to the same
address. Redirects are answers like any other.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from headwater.core.targets import Address, Target

if TYPE_CHECKING:
    import httpx

Resolver = Callable[[str, int], Awaitable[list[str]]]
HeaderLines = Sequence[tuple[str, str]]

_ADDRESSES_TRIED_MAX: Final = 3
_LOOKUP_THREADS: Final = 8
_LOOKUP_TIMEOUT_S: Final = 10.0


class Outbound:
    def __init__(
        self,
        *,
        resolve: Resolver | None = None,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUP_THREADS, thread_name_prefix="headwater-dns")
        self._resolve = resolve or self._look_up
        self._verify = verify
        self._client: httpx.AsyncClient | None = None
        self._making_client = asyncio.Lock()

    async def addresses(self, target: Target) -> list[str]:
        """The host's current addresses. Raises `OSError` or `TimeoutError` if there are none."""
        async with asyncio.timeout(_LOOKUP_TIMEOUT_S):
            found = await self._resolve(target.host, target.port)
        if not found:
            raise OSError("the name has no addresses")
        return found

    async def send(
        self,
        target: Target,
        addresses: Sequence[Address],
        method: str,
        headers: HeaderLines,
        body: bytes,
        timeout: httpx.Timeout | float,
    ) -> httpx.Response:
        """The head of the first reachable address's answer. The caller closes the response."""
        import httpx

        client = await self._http()
        unreachable = httpx.ConnectError("cannot be reached")
        for address in addresses[:_ADDRESSES_TRIED_MAX]:
            request = client.build_request(
                method,
                target.url_at(address),
                content=body or None,
                headers=_encoded([("Host", target.host_header), *headers]),
                timeout=timeout,
                extensions={"sni_hostname": target.host},
            )
            try:
                return await client.send(request, stream=True)
            except httpx.ConnectError as error:
                unreachable = error
        raise unreachable

    async def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            await self._client.aclose()

    async def _look_up(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    async def _http(self) -> httpx.AsyncClient:
        """Created on first use, on a thread: reading all the certificates takes a while."""
        async with self._making_client:
            if self._client is None:
                loop = asyncio.get_running_loop()
                self._client = await loop.run_in_executor(self._threads, self._make_client)
            return self._client

    def _make_client(self) -> httpx.AsyncClient:
        import httpx

        return httpx.AsyncClient(
            verify=self._verify,
            follow_redirects=False,
            # A proxy from the environment would look up names itself.
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )


def _encoded(headers: HeaderLines) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
