"""Subscriptions over HTTP: /v1/stream/__ds/…"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from headwater.core.json_bodies import decode_body
from headwater.core.subscriptions.config import STREAMS_NAMED_MAX, parse_config, stream_path
from headwater.core.subscriptions.decisions import Ack
from headwater.core.subscriptions.errors import InvalidSubscription, TokenInvalid
from headwater.core.subscriptions.state import Phase, stream_info
from headwater.http.answers import done, json_answer
from headwater.http.messages import Answer, Headers, Request, Response
from headwater.http.queries import page_of
from headwater.service.subscriptions.keyring import Keys
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.subscriptions.subscription import Subscription

JWKS: Final = "jwks.json"
# How many links are listed; a pattern may match any number.
STREAMS_LISTED_MAX: Final = 10_000
ACKS_MAX: Final = 1_000
_KEY_SET: Final[Headers] = [
    ("Content-Type", "application/jwk-set+json"),
    ("Cache-Control", "public, max-age=300"),
]
_HOST = re.compile(r"[A-Za-z0-9\-._~\[\]:]{1,255}", re.ASCII)
_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE | re.ASCII)

Generation = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class StreamsBody(msgspec.Struct):
    streams: Annotated[list[str], msgspec.Meta(min_length=1, max_length=STREAMS_NAMED_MAX)]


class ClaimBody(msgspec.Struct):
    worker: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class AckedOffset(msgspec.Struct):
    stream: Annotated[str, msgspec.Meta(max_length=1100)]
    offset: Annotated[str, msgspec.Meta(max_length=256)]


class ReleaseBody(msgspec.Struct):
    wake_id: Annotated[str, msgspec.Meta(max_length=256)]
    generation: Generation


class SettleBody(ReleaseBody):
    acks: Annotated[list[AckedOffset], msgspec.Meta(max_length=ACKS_MAX)] = []
    done: bool = False


class SubscriptionResource:
    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    # ── The subscription itself ──────────────────────────────────────────────────────────────

    async def jwks(self, request: Request) -> Answer:
        keys = await self._subscriptions.keyring.get()
        body = {"keys": [key.jwk for key in keys.signing]}
        return Response(200, list(_KEY_SET), msgspec.json.encode(body))

    async def index(self, request: Request) -> Answer:
        prefix, after, limit = page_of(request)
        page = self._subscriptions.list(prefix, after, limit + 1)
        body = {
            "subscriptions": [_summary(subscription) for subscription in page[:limit]],
            "next": page[limit - 1].name if len(page) > limit else None,
        }
        return await self._subscriptions.streams.writer.reply_after_all(json_answer(body))

    async def get(self, request: Request, name: str) -> Answer:
        return await self._shown(200, self._subscriptions.get(name))

    async def put(self, request: Request, name: str) -> Answer:
        config = parse_config(request.body)
        subscription, new = await self._subscriptions.put(name, config, _base_url(request))
        return await self._shown(201 if new else 200, subscription)

    async def delete(self, request: Request, name: str) -> Answer:
        await self._subscriptions.delete(name)
        return done()

    async def _shown(self, status: int, subscription: Subscription) -> Answer:
        keys = await self._subscriptions.keyring.get()
        base_url = self._subscriptions.public_url or subscription.state.record.base_url
        answer = json_answer(_details(subscription, keys, base_url), status)
        # What it shows may not be committed yet.
        return await self._subscriptions.streams.writer.reply_after(subscription, answer)

    async def streams(self, request: Request, name: str) -> Answer:
        paths = [
            stream_path(path)
            for path in decode_body(request.body, StreamsBody, InvalidSubscription).streams
        ]
        await self._subscriptions.link(name, paths)
        return done()

    async def unlink(self, request: Request, name: str, path: str) -> Answer:
        await self._subscriptions.unlink(name, stream_path(path))
        return done()

    # ── Workers and webhooks ─────────────────────────────────────────────────────────────────

    async def claim(self, request: Request, name: str) -> Answer:
        claimed = await self._subscriptions.claim(
            name, decode_body(request.body, ClaimBody, InvalidSubscription).worker
        )
        return json_answer(claimed._asdict())

    async def callback(self, request: Request, name: str) -> Answer:
        return await self._settle(request, name, by_webhook=True)

    async def ack(self, request: Request, name: str) -> Answer:
        return await self._settle(request, name, by_webhook=False)

    async def _settle(self, request: Request, name: str, *, by_webhook: bool) -> Answer:
        token = _token(request)
        body = decode_body(request.body, SettleBody, InvalidSubscription)
        acks = [Ack(stream_path(ack.stream), ack.offset) for ack in body.acks]
        subscription = await self._subscriptions.held(name, token, by_webhook=by_webhook)
        next_wake = await self._subscriptions.settle(
            subscription, token, body.generation, body.wake_id, acks, done=body.done
        )
        answer = {"ok": True, "next_wake": next_wake}
        return json_answer(answer)

    async def release(self, request: Request, name: str) -> Answer:
        token = _token(request)
        body = decode_body(request.body, ReleaseBody, InvalidSubscription)
        subscription = await self._subscriptions.held(name, token, by_webhook=False)
        await self._subscriptions.release(subscription, token, body.generation, body.wake_id)
        return done()


# ── Requests ─────────────────────────────────────────────────────────────────────────────────


def _token(request: Request) -> str:
    found = _BEARER.fullmatch(request.header(b"authorization") or "")
    if found is None:
        raise TokenInvalid
    return found[1]


def _base_url(request: Request) -> str:
    """The address at which the creator reached this server; callbacks use it too."""
    host = request.header(b"host") or ""
    if _HOST.fullmatch(host) is None:
        raise InvalidSubscription("send a Host header, so that callbacks find their way back")
    return f"http://{host}"


# ── Answers ──────────────────────────────────────────────────────────────────────────────────


def _summary(subscription: Subscription) -> dict[str, Any]:
    state = subscription.state
    config, wake = state.config, state.wake
    created = datetime.fromtimestamp(state.record.created_at_ms / 1000, UTC)
    fields = {
        "id": subscription.name,
        "subscription_id": subscription.name,
        "type": config.type,
        "pattern": config.pattern,
        "webhook": {"url": config.webhook.url} if config.webhook else None,
        "wake_stream": config.wake_stream,
        "lease_ttl_ms": config.lease_ttl_ms,
        "description": config.description,
        "created_at": created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "status": "failed" if wake.attempts else "active",
        "generation": wake.generation,
        "state": wake.phase.name.lower(),
        "holder": wake.holder,
        "failures": wake.attempts,
        "next_attempt_at": wake.until_ms if wake.attempts and wake.phase is Phase.DUE else None,
        "streams_total": len(state.links),
        "streams_pending": len(state.pending),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _details(subscription: Subscription, keys: Keys, base_url: str) -> dict[str, Any]:
    fields = _summary(subscription)
    state = subscription.state
    if state.config.webhook is not None:
        fields["webhook"]["signing"] = {
            "alg": "ed25519",
            "kid": keys.signing[-1].kid,
            "jwks_url": f"{base_url}/v1/stream/__ds/{JWKS}",
        }
    fields["streams"] = [stream_info(link) for link in state.first(STREAMS_LISTED_MAX)]
    return fields
