"""Requests to webhooks: looked up, checked, signed, bounded, and never in anybody's way.

Names are looked up here and nowhere else. A request goes to the address that was checked, with the
name in its Host header and in TLS, so that there is no second look-up that could come out
differently. Connections are not kept: one that was made for a name must not serve another name
that happens to lead to the same address.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from headwater import __version__
from headwater.core.histograms import SECONDS, Histogram
from headwater.core.limits import KIB, Limits
from headwater.core.subscriptions.errors import WebhookUrlRejected
from headwater.core.subscriptions.targets import Address, Target, check_addresses, parse_target

if TYPE_CHECKING:
    import httpx

Resolver = Callable[[str, int], Awaitable[list[str]]]

_ANSWER_BYTES_MAX: Final = 64 * KIB
_ADDRESSES_TRIED_MAX: Final = 3
_LOOKUP_THREADS: Final = 8
_LOOKUP_TIMEOUT_S: Final = 10.0


class Outcome(NamedTuple):
    """What became of a request."""

    taken: bool
    done: bool = False
    problem: str = ""


class Webhooks:
    def __init__(
        self,
        limits: Limits,
        *,
        development: bool = False,
        resolve: Resolver | None = None,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self.slots = asyncio.Semaphore(limits.webhooks_at_once_max)
        """Held during a request. Those who wait for one are at most as many as subscriptions."""
        self.posted = {"done": 0, "taken": 0, "failed": 0}
        """Wakes that were sent since the start, by what became of them."""
        self.seconds = Histogram(SECONDS)
        """How long that took."""
        self._development = development
        self._timeout_s = limits.webhook_timeout_ms / 1000
        self._threads = ThreadPoolExecutor(_LOOKUP_THREADS, thread_name_prefix="headwater-dns")
        self._resolve = resolve or self._look_up
        self._verify = verify
        self._client: httpx.AsyncClient | None = None
        self._making_client = asyncio.Lock()

    async def check(self, url: str) -> None:
        """Refuse an address that is not allowed.

        A name that cannot be resolved now is let through: nothing is sent before it resolves to
        something that is allowed.
        """
        target = parse_target(url, development=self._development)
        try:
            await self._addresses(target)
        except (OSError, TimeoutError):
            return

    async def post(self, url: str, body: bytes, signature: str) -> Outcome:
        """Send a wake. Whatever goes wrong is an outcome, not an error."""
        began_s = monotonic()
        outcome = await self._post(url, body, signature)
        self.seconds.observe(monotonic() - began_s)
        self.posted["done" if outcome.done else "taken" if outcome.taken else "failed"] += 1
        return outcome

    async def _post(self, url: str, body: bytes, signature: str) -> Outcome:
        try:
            async with asyncio.timeout(self._timeout_s):
                target = parse_target(url, development=self._development)
                addresses = await self._addresses(target)
                return await self._send(target, addresses, body, signature)
        except WebhookUrlRejected as error:
            return Outcome(False, problem=error.message)
        except TimeoutError:
            return Outcome(False, problem="no answer in time")
        except OSError as error:
            return Outcome(False, problem=f"cannot be resolved: {error}")

    async def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            await self._client.aclose()

    # ── Finding the way ──────────────────────────────────────────────────────────────────────

    async def _addresses(self, target: Target) -> list[Address]:
        async with asyncio.timeout(_LOOKUP_TIMEOUT_S):
            found = await self._resolve(target.host, target.port)
        if not found:
            raise OSError("the name has no addresses")
        return check_addresses(target, found)

    async def _look_up(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._threads, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    # ── Sending ──────────────────────────────────────────────────────────────────────────────

    async def _send(
        self, target: Target, addresses: list[Address], body: bytes, signature: str
    ) -> Outcome:
        import httpx

        headers = {
            "Host": target.host_header,
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"headwater/{__version__}",
            "Webhook-Signature": signature,
        }
        client = await self._http()
        outcome = Outcome(False, problem="cannot be reached")
        for address in addresses[:_ADDRESSES_TRIED_MAX]:
            try:
                async with client.stream(
                    "POST",
                    target.url_at(address),
                    content=body,
                    headers=headers,
                    extensions={"sni_hostname": target.host},
                ) as response:
                    return await _judge(response)
            except httpx.ConnectError as error:
                outcome = Outcome(False, problem=f"cannot be reached: {error}")
            except httpx.HTTPError as error:
                return Outcome(False, problem=f"{type(error).__name__}: {error}")
        return outcome

    async def _http(self) -> httpx.AsyncClient:
        """Made when it is first needed, on a thread: reading all the certificates takes a while."""
        async with self._making_client:
            if self._client is None:
                loop = asyncio.get_running_loop()
                self._client = await loop.run_in_executor(self._threads, self._make_client)
            return self._client

    def _make_client(self) -> httpx.AsyncClient:
        import httpx

        return httpx.AsyncClient(
            timeout=self._timeout_s,
            verify=self._verify,
            follow_redirects=False,
            # A proxy of the environment would look names up by itself.
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )


async def _judge(response: httpx.Response) -> Outcome:
    if not response.is_success:
        return Outcome(False, problem=f"answered {response.status_code}")
    return Outcome(True, done=_says_done(await _read(response)))


async def _read(response: httpx.Response) -> bytes:
    """An answer, as far as it is of interest. One that is too long says nothing."""
    body = b""
    async for part in response.aiter_raw():
        body += part
        if len(body) > _ANSWER_BYTES_MAX:
            return b""
    return body


def _says_done(body: bytes) -> bool:
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(answer, dict) and answer.get("done") is True
