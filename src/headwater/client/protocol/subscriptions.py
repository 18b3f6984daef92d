"""What goes over the wire for subscriptions: requests and answers as values. No IO."""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

from headwater.client.errors import InvalidSignature, UnknownSigningKey
from headwater.client.protocol.groups import milliseconds
from headwater.client.protocol.streams import Request, Response, decoded
from headwater.client.protocol.values import UNREADABLE
from headwater.core.content_types import JSON
from headwater.core.numbers import whole_number

SIGNATURE_AGE_S: Final = 300
_JSON_HEADERS: Final = {"Content-Type": JSON}


class LinkedStream(msgspec.Struct, frozen=True):
    """A stream of a subscription.

    Attributes:
        path: the stream's path.
        link_type: `"explicit"` if it was named, `"glob"` if the pattern takes it in.
        acked_offset: the last offset that was acknowledged; `"-1"` if none was.
        tail_offset: where the stream ended when this was written.
        has_pending: whether there is something to do between the two.
    """

    path: str
    link_type: str
    acked_offset: str
    tail_offset: str = ""
    has_pending: bool = False


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """What the server says about a subscription.

    Attributes:
        name: the subscription's name.
        type: `"webhook"` or `"pull-wake"`.
        pattern: which streams it takes in, besides those that were named.
        webhook: the address that is woken.
        wake_stream: the stream that gets an event for each wake.
        lease_ttl_s: how long a woken worker may be silent.
        description: what it is for.
        status: `"active"`, or `"failed"` while waking fails and is tried again.
        state: `"idle"`, `"due"`, `"offered"` or `"leased"`.
        generation: how many wakes there were.
        holder: the worker that has claimed the wake.
        failures: how often waking has failed in a row.
        streams_total: how many streams it is linked to.
        streams_pending: how many of them have something to do.
        streams: those streams, if they were asked for.
    """

    name: str
    type: str
    pattern: str | None
    webhook: str | None
    wake_stream: str | None
    lease_ttl_s: float
    description: str | None
    status: str
    state: str
    generation: int
    holder: str | None
    failures: int
    streams_total: int
    streams_pending: int
    streams: tuple[LinkedStream, ...]


class WebhookWake(msgspec.Struct, frozen=True):
    """What a webhook is sent.

    Attributes:
        subscription_id: the name of the subscription.
        wake_id: names this wake.
        generation: its number.
        streams: the linked streams, those with something to do first.
        callback_url: where to report.
        callback_token: what to report with.
    """

    subscription_id: str
    wake_id: str
    generation: int
    streams: tuple[LinkedStream, ...]
    callback_url: str
    callback_token: str

    @property
    def pending(self) -> tuple[LinkedStream, ...]:
        """The streams with something to do."""
        return tuple(stream for stream in self.streams if stream.has_pending)


class Claimed(msgspec.Struct, frozen=True):
    """A wake that a worker has claimed."""

    wake_id: str
    generation: int
    token: str
    streams: tuple[LinkedStream, ...]
    lease_ttl_ms: int


# --- Requests ------------------------------------------------------------------------------------


def subscriptions_url(root: str) -> str:
    return f"{root}/__ds/subscriptions"


def subscription_url(root: str, name: str) -> str:
    """The address of one subscription.

    >>> subscription_url("http://localhost:4437/v1/stream", "mail")
    'http://localhost:4437/v1/stream/__ds/subscriptions/mail'
    """
    if not name:
        raise ValueError("a subscription needs a name")
    return f"{subscriptions_url(root)}/{quote(name, safe='')}"


def jwks_url(root: str) -> str:
    return f"{root}/__ds/jwks.json"


def create_request(
    url: str,
    *,
    webhook: str | None,
    wake_stream: str | None,
    pattern: str | None,
    streams: Iterable[str],
    lease_ttl_s: float | None,
    description: str | None,
) -> Request:
    if (webhook is None) == (wake_stream is None):
        raise ValueError("name a webhook or a wake_stream, one of the two")
    fields = {
        "type": "webhook" if webhook is not None else "pull-wake",
        "webhook": {"url": webhook} if webhook is not None else None,
        "wake_stream": wake_stream,
        "pattern": pattern,
        "streams": list(streams) or None,
        "lease_ttl_ms": None if lease_ttl_s is None else milliseconds(lease_ttl_s),
        "description": description,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    return Request("PUT", url, headers=_JSON_HEADERS, body=msgspec.json.encode(given))


def action_request(
    url: str,
    action: str,
    fields: Mapping[str, Any],
    *,
    token: str | None = None,
    repeatable: bool = True,
) -> Request:
    """Something that is done with a subscription, with a wake's token if it needs one."""
    headers = dict(_JSON_HEADERS)
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    body = msgspec.json.encode(fields)
    return Request("POST", f"{url}/{action}", headers=headers, body=body, repeatable=repeatable)


def report_fields(
    wake_id: str, generation: int, acks: Mapping[str, str] | None, *, done: bool
) -> dict[str, Any]:
    """Progress with a wake: the last offset processed, by stream."""
    named = [{"stream": stream, "offset": offset} for stream, offset in (acks or {}).items()]
    return {"wake_id": wake_id, "generation": generation, "acks": named, "done": done}


# --- Answers -------------------------------------------------------------------------------------


class _WireWebhook(msgspec.Struct):
    url: str


class _WireInfo(msgspec.Struct):
    id: str
    type: str
    lease_ttl_ms: int
    status: str = "active"
    pattern: str | None = None
    webhook: _WireWebhook | None = None
    wake_stream: str | None = None
    description: str | None = None
    state: str = ""
    generation: int = 0
    holder: str | None = None
    failures: int = 0
    streams_total: int = 0
    streams_pending: int = 0
    streams: tuple[LinkedStream, ...] = ()

    def public(self) -> SubscriptionInfo:
        return SubscriptionInfo(
            name=self.id,
            type=self.type,
            pattern=self.pattern,
            webhook=self.webhook.url if self.webhook else None,
            wake_stream=self.wake_stream,
            lease_ttl_s=self.lease_ttl_ms / 1000,
            description=self.description,
            status=self.status,
            state=self.state,
            generation=self.generation,
            holder=self.holder,
            failures=self.failures,
            streams_total=self.streams_total,
            streams_pending=self.streams_pending,
            streams=self.streams,
        )


class _WirePage(msgspec.Struct):
    subscriptions: list[_WireInfo]
    next: str | None = None


class _WireReported(msgspec.Struct):
    next_wake: bool = False


def subscription_info(response: Response) -> SubscriptionInfo:
    return decoded(response, _WireInfo).public()


def subscription_page(response: Response) -> tuple[list[SubscriptionInfo], str | None]:
    """One page of the list, and where the next one begins."""
    page = decoded(response, _WirePage)
    return [info.public() for info in page.subscriptions], page.next


def claimed(response: Response) -> Claimed:
    return decoded(response, Claimed)


def next_wake(response: Response) -> bool:
    """Whether there is more to do, so that another wake follows at once."""
    return decoded(response, _WireReported).next_wake


# --- Signatures ----------------------------------------------------------------------------------


class _Key(msgspec.Struct):
    kid: str
    x: str
    kty: str = ""
    crv: str = ""


class _KeySet(msgspec.Struct):
    keys: list[_Key]


class WebhookKeys:
    """The public keys of a server, to check that a request to a webhook comes from it.

        keys = client.webhook_keys()
        wake = keys.verify(body, request.headers["Webhook-Signature"])

    Keep the keys; they change rarely. When `verify` raises `UnknownSigningKey`, fetch them again,
    but not more often than every few minutes.

    Args:
        jwks: the server's key set, as it is at `/v1/stream/__ds/jwks.json`.
    """

    def __init__(self, jwks: bytes | str) -> None:
        keys = msgspec.json.decode(jwks, type=_KeySet).keys
        self._keys = {key.kid: key for key in keys if (key.kty, key.crv) == ("OKP", "Ed25519")}

    def verify(
        self,
        body: bytes,
        signature: str,
        *,
        now_s: float | None = None,
        age_s: float = SIGNATURE_AGE_S,
    ) -> WebhookWake:
        """The wake in a request, if the server has sent it, and not long ago.

        Args:
            body: the request's body, byte for byte.
            signature: its `Webhook-Signature` header.
            now_s: the time in seconds since 1970; what the clock says by default.
            age_s: how far the time of the signature may be from that.
        """
        sent_s, kid, signed = _parts(signature)
        if abs((time.time() if now_s is None else now_s) - int(sent_s)) > age_s:
            raise InvalidSignature("the request was signed too long ago, or the clock is wrong")
        key = self._keys.get(kid)
        if key is None:
            raise UnknownSigningKey(f"the server's key {kid[:100]} is not known here")
        _check(key, signed, f"{sent_s}.".encode() + body)
        try:
            return msgspec.json.decode(body, type=WebhookWake)
        except UNREADABLE as error:
            raise InvalidSignature(f"the request is genuine but no wake: {error}") from None


def _parts(signature: str) -> tuple[str, str, bytes]:
    fields = dict(part.partition("=")[::2] for part in signature.split(","))
    try:
        sent_s, kid, signed = fields["t"], fields["kid"], fields["ed25519"]
        if whole_number(sent_s, digits_max=15) is None:
            raise ValueError
        return sent_s, kid, _decoded(signed)
    except (KeyError, ValueError, Base64Error):
        raise InvalidSignature("the Webhook-Signature header is missing or malformed") from None


def _check(key: _Key, signed: bytes, message: bytes) -> None:
    # Loaded when it is needed: most users of the client receive no webhooks.
    from cryptography.exceptions import InvalidSignature as DoesNotMatch
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(_decoded(key.x)).verify(signed, message)
    except (DoesNotMatch, ValueError, Base64Error):
        raise InvalidSignature("the signature does not match the request") from None


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
