"""Subscriptions over HTTP: /v1/stream/__ds/…"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec

from headwater.core.errors import InvalidPath, InvalidQuery
from headwater.core.limits import LIST_PAGE_MAX
from headwater.core.subscriptions.config import STREAMS_NAMED_MAX, parse_config, stream_path
from headwater.core.subscriptions.errors import InvalidSubscription, TokenInvalid
from headwater.core.subscriptions.state import Phase, stream_info
from headwater.core.subscriptions.transitions import Ack
from headwater.http.errors import plain_error
from headwater.http.messages import Answer, Headers, Request, Response
from headwater.http.queries import number_in, query_of
from headwater.http.targets import decode_segments
from headwater.service.subscriptions.keyring import Keys
from headwater.service.subscriptions.operations import Subscriptions
from headwater.service.subscriptions.subscription import Subscription

JWKS: Final = "jwks.json"
ROOT: Final = "subscriptions"
# How many links are shown; a pattern may take in any number.
STREAMS_LISTED_MAX: Final = 10_000
ACKS_MAX: Final = 1_000
_LIST_PAGE_DEFAULT: Final = 100
_JSON: Final[Headers] = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
_NO_STORE: Final[Headers] = [("Cache-Control", "no-store")]
_KEY_SET: Final[Headers] = [
    ("Content-Type", "application/jwk-set+json"),
    ("Cache-Control", "public, max-age=300"),
]
_HOST = re.compile(r"[A-Za-z0-9\-._~\[\]:]{1,255}", re.ASCII)
_BEARER = re.compile(r"bearer +(\S+) *", re.IGNORECASE | re.ASCII)

B = TypeVar("B")
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
        self._actions: dict[str, Callable[[Request, str], Awaitable[Answer]]] = {
            "streams": self._link,
            "callback": self._callback,
            "claim": self._claim,
            "ack": self._ack,
            "release": self._release,
        }

    def handle(self, request: Request, target: bytes) -> Awaitable[Answer]:
        """What is asked for below `__ds/`, with the target as it was sent."""
        segments = decode_segments(target)
        if segments[0] not in (JWKS, ROOT):
            raise InvalidPath("everything below __ds is reserved; choose another name")
        match request.method, segments:
            case "GET" | "HEAD", ["jwks.json"]:
                return self._jwks()
            case "GET" | "HEAD", ["subscriptions"]:
                return self._list(request)
            case "GET" | "HEAD", ["subscriptions", name]:
                return self._get(name)
            case "PUT", ["subscriptions", name]:
                return self._put(request, name)
            case "DELETE", ["subscriptions", name]:
                return self._delete(name)
            case "POST", ["subscriptions", name, action] if action in self._actions:
                return self._actions[action](request, name)
            case "DELETE", ["subscriptions", name, "streams", *path] if path:
                # A stream's path may come as it is or with its slashes encoded.
                return self._unlink(name, "/".join(path))
        return self._not_here(segments)

    async def _not_here(self, segments: list[str]) -> Answer:
        allowed = "GET, HEAD" if segments in ([JWKS], [ROOT]) else None
        if segments[:1] == [ROOT]:
            if len(segments) == 2:
                allowed = "GET, HEAD, PUT, DELETE"
            elif len(segments) == 3 and segments[2] in self._actions:
                allowed = "POST"
            elif len(segments) > 3 and segments[2] == "streams":
                allowed = "DELETE"
        if allowed is None:
            return plain_error(404, "not_found", "a subscription has no such resource")
        allowed += ", OPTIONS"
        return plain_error(
            405, "method_not_allowed", f"this resource answers {allowed}", [("Allow", allowed)]
        )

    # ── The subscription itself ──────────────────────────────────────────────────────────────

    async def _jwks(self) -> Answer:
        keys = await self._subscriptions.keyring.get()
        body = {"keys": [key.jwk for key in keys.signing]}
        return Response(200, list(_KEY_SET), msgspec.json.encode(body))

    async def _list(self, request: Request) -> Answer:
        query = query_of(request)
        limit = number_in(query, "limit") if "limit" in query else _LIST_PAGE_DEFAULT
        if not 1 <= limit <= LIST_PAGE_MAX:
            raise InvalidQuery(f"limit must be a number from 1 to {LIST_PAGE_MAX}")
        page = self._subscriptions.list(query.get("prefix", ""), query.get("after", ""), limit + 1)
        body = {
            "subscriptions": [_summary(subscription) for subscription in page[:limit]],
            "next": page[limit - 1].name if len(page) > limit else None,
        }
        return Response(200, list(_JSON), msgspec.json.encode(body))

    async def _get(self, name: str) -> Answer:
        return await self._shown(200, self._subscriptions.get(name))

    async def _put(self, request: Request, name: str) -> Answer:
        config = parse_config(request.body)
        subscription, new = await self._subscriptions.put(name, config, _base_url(request))
        return await self._shown(201 if new else 200, subscription)

    async def _delete(self, name: str) -> Answer:
        await self._subscriptions.delete(name)
        return Response(204, list(_NO_STORE))

    async def _shown(self, status: int, subscription: Subscription) -> Answer:
        keys = await self._subscriptions.keyring.get()
        base_url = self._subscriptions.public_url or subscription.state.record.base_url
        body = msgspec.json.encode(_details(subscription, keys, base_url))
        return Response(status, list(_JSON), body)

    async def _link(self, request: Request, name: str) -> Answer:
        paths = [stream_path(path) for path in _read_body(request, StreamsBody).streams]
        await self._subscriptions.link(name, paths)
        return Response(204, list(_NO_STORE))

    async def _unlink(self, name: str, path: str) -> Answer:
        await self._subscriptions.unlink(name, stream_path(path))
        return Response(204, list(_NO_STORE))

    # ── Whoever is at work ───────────────────────────────────────────────────────────────────

    async def _claim(self, request: Request, name: str) -> Answer:
        claimed = await self._subscriptions.claim(name, _read_body(request, ClaimBody).worker)
        return Response(200, list(_JSON), msgspec.json.encode(claimed._asdict()))

    async def _callback(self, request: Request, name: str) -> Answer:
        return await self._settle(request, self._subscriptions.hooked(name))

    async def _ack(self, request: Request, name: str) -> Answer:
        return await self._settle(request, self._subscriptions.pulled(name))

    async def _settle(self, request: Request, subscription: Subscription) -> Answer:
        token = _token(request)
        body = _read_body(request, SettleBody)
        acks = [Ack(stream_path(ack.stream), ack.offset) for ack in body.acks]
        next_wake = await self._subscriptions.settle(
            subscription, token, body.generation, body.wake_id, acks, done=body.done
        )
        answer = {"ok": True, "next_wake": next_wake}
        return Response(200, list(_JSON), msgspec.json.encode(answer))

    async def _release(self, request: Request, name: str) -> Answer:
        subscription = self._subscriptions.pulled(name)
        token = _token(request)
        body = _read_body(request, ReleaseBody)
        await self._subscriptions.release(subscription, token, body.generation, body.wake_id)
        return Response(204, list(_NO_STORE))


# ── Requests ─────────────────────────────────────────────────────────────────────────────────


def _read_body(request: Request, kind: type[B]) -> B:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidSubscription(f"the body does not fit: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidSubscription("send a JSON object") from None


def _token(request: Request) -> str:
    found = _BEARER.fullmatch(request.header(b"authorization") or "")
    if found is None:
        raise TokenInvalid
    return found[1]


def _base_url(request: Request) -> str:
    """How the creator reaches this server, which is how callbacks will."""
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
