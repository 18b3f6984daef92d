"""The server's secrets: created on first use, stored, and never changed."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final, NamedTuple

from headwater.core.subscriptions.signatures import SECRET_BYTES, SigningKey
from headwater.core.subscriptions.state import SecretStored
from headwater.service.batches import Effect, Owner
from headwater.service.log import Log

_SIGNING: Final = "ed25519"
_TOKENS: Final = "tokens"


class Keys(NamedTuple):
    signing: list[SigningKey]
    """Oldest first: the last one signs, and all of them are published."""
    tokens: bytes


class Keyring(Owner):
    """No secret is used before it is stored, so no state runs ahead."""

    def __init__(self, streams: Log) -> None:
        self._streams = streams
        self._keys: Keys | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> Keys:
        async with self._lock:
            if self._keys is None:
                self._keys = await self._load()
            return self._keys

    async def _load(self) -> Keys:
        stored = await self._streams.in_thread(self._streams.engine.subscriptions.secrets)
        missing = {_SIGNING, _TOKENS} - {secret.kind for secret in stored}
        membership = self._streams.membership
        if missing and membership is not None:
            # Several nodes may need one at the same time, and all must get the same.
            for kind in sorted(missing):
                fresh_one = secrets.token_bytes(SECRET_BYTES)
                await self._streams.in_thread(membership.secret, kind, fresh_one)
            stored = await self._streams.in_thread(self._streams.engine.subscriptions.secrets)
        elif missing:
            now_ms = self._streams.clock()
            fresh = [
                SecretStored(kind, secrets.token_bytes(SECRET_BYTES), now_ms)
                for kind in sorted(missing)
            ]
            effects: list[Effect] = [(self, secret) for secret in fresh]
            await self._streams.writer.submit(effects, None)
            stored = [*stored, *fresh]
        values = {kind: [s.value for s in stored if s.kind == kind] for kind in (_SIGNING, _TOKENS)}
        return Keys([SigningKey(seed) for seed in values[_SIGNING]], values[_TOKENS][-1])
