"""Requests to webhooks: checked, signed, bounded, and without delaying anything else."""

from __future__ import annotations

import asyncio
import ssl
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from headwater import __version__
from headwater.core.histograms import SECONDS, Histogram
from headwater.core.limits import KIB, Limits
from headwater.core.subscriptions.errors import WebhookUrlRejected
from headwater.core.subscriptions.targets import check_addresses, parse_target
from headwater.core.targets import Address, Target
from headwater.service.outbound import Outbound, Resolver

if TYPE_CHECKING:
    import httpx

_ANSWER_BYTES_MAX: Final = 64 * KIB


class Outcome(NamedTuple):
    """The outcome of a request."""

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
        """Held during a request. At most one request per subscription waits for it."""
        self.posted = {"done": 0, "taken": 0, "failed": 0}
        """Wakes sent since the start, by outcome."""
        self.seconds = Histogram(SECONDS)
        """How long that took."""
        self._development = development
        self._timeout_s = limits.webhook_timeout_ms / 1000
        self._outbound = Outbound(resolve=resolve, verify=verify)

    async def check(self, url: str) -> None:
        """Refuse an address that is not allowed.

        A name that cannot be resolved now is accepted: nothing is sent until it resolves to an
        allowed address.
        """
        target = parse_target(url, development=self._development)
        try:
            await self._addresses(target)
        except (OSError, TimeoutError):
            return

    async def post(self, url: str, body: bytes, signature: str) -> Outcome:
        """Send a wake. Any failure is an outcome, not an exception."""
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
        await self._outbound.stop()

    async def _addresses(self, target: Target) -> list[Address]:
        return check_addresses(target, await self._outbound.addresses(target))

    async def _send(
        self, target: Target, addresses: list[Address], body: bytes, signature: str
    ) -> Outcome:
        import httpx

        headers = [
            ("Content-Type", "application/json"),
            ("Accept-Encoding", "identity"),
            ("User-Agent", f"headwater/{__version__}"),
            ("Webhook-Signature", signature),
        ]
        try:
            response = await self._outbound.send(
                target, addresses, "POST", headers, body, self._timeout_s
            )
            try:
                return await _judge(response)
            finally:
                await response.aclose()
        except httpx.ConnectError as error:
            return Outcome(False, problem=f"cannot be reached: {error}")
        except httpx.HTTPError as error:
            return Outcome(False, problem=f"{type(error).__name__}: {error}")


async def _judge(response: httpx.Response) -> Outcome:
    if not response.is_success:
        return Outcome(False, problem=f"answered {response.status_code}")
    return Outcome(True, done=_says_done(await _read(response)))


async def _read(response: httpx.Response) -> bytes:
    """The relevant part of an answer. One that is too long is ignored."""
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
