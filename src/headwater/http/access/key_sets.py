"""Where verification keys come from: a file, or a URL that is fetched regularly.

A URL is fetched at startup, every five minutes, and when a token names an unknown key, but at most
every ten seconds, whatever tokens are sent. If that fails, the last good keys stay.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final, Protocol
from urllib.parse import urlsplit

import structlog

from headwater.http.access.verification import (
    InvalidKeySet,
    VerificationKey,
    merge,
    parse_key_set,
)
from headwater.service.background import Watch

SET_BYTES_MAX: Final = 256 * 1024
REFRESH_S: Final = 300.0
RETRY_S: Final = 10.0
_FETCH_TIMEOUT_S: Final = 5.0
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

log = structlog.get_logger()


class KeySource(Protocol):
    keys: list[VerificationKey]

    def refresh_if_due(self) -> None:
        """Called regularly."""

    async def look_again(self) -> bool:
        """A token names an unknown key. False if there is no point in trying again."""


class FixedKeys:
    """Keys from a file; its watcher replaces them."""

    def __init__(self, keys: list[VerificationKey]) -> None:
        self.keys = keys

    def replace(self, keys: list[VerificationKey]) -> None:
        self.keys = merge(self.keys, keys)

    def refresh_if_due(self) -> None:
        return

    async def look_again(self) -> bool:
        return False


class KeysAtUrl:
    def __init__(self, url: str) -> None:
        self.keys: list[VerificationKey] = []
        self.failures = 0
        self.watch = Watch("token_keys")
        self._url = url
        self._asked_at = -REFRESH_S
        self._asking: asyncio.Task[None] | None = None

    def refresh_if_due(self) -> None:
        if monotonic() - self._asked_at >= REFRESH_S:
            self._ask()

    async def look_again(self) -> bool:
        if self._asking is None and monotonic() - self._asked_at < RETRY_S:
            return False
        # A client that hangs up must not cancel the fetch for others that wait.
        await asyncio.shield(self._ask())
        return True

    async def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    def _ask(self) -> asyncio.Task[None]:
        if self._asking is None:
            self._asked_at = monotonic()
            self._asking = asyncio.get_running_loop().create_task(self._refresh())
            self._asking.add_done_callback(self._asked)
        return self._asking

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking = None

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(_FETCH_TIMEOUT_S):
                self.keys = merge(self.keys, parse_key_set(await _fetch(self._url)))
        except Exception as error:
            self.failures += 1
            self.watch.failed(error, REFRESH_S)
            log.warning(
                "keys_for_tokens_not_fetched",
                host=urlsplit(self._url).hostname,
                error=str(error) or type(error).__name__,
                keys_kept=len(self.keys),
            )
        else:
            self.watch.succeeded()


async def _fetch(url: str) -> bytes:
    import httpx

    async with (
        httpx.AsyncClient(timeout=_FETCH_TIMEOUT_S) as client,
        client.stream("GET", url, headers={"Accept": "application/json"}) as answer,
    ):
        answer.raise_for_status()
        parts, size = [], 0
        async for part in answer.aiter_bytes():
            size += len(part)
            if size > SET_BYTES_MAX:
                raise InvalidKeySet(f"it is larger than {SET_BYTES_MAX} bytes")
            parts.append(part)
    return b"".join(parts)


def check_url(url: str) -> str:
    """Require TLS or this machine; otherwise anyone in between could replace the keys."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    except ValueError:
        fine = False
    if not fine:
        raise InvalidKeySet("the address of a JWK set begins with https://")
    return url
