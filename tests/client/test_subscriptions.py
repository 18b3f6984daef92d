"""Subscriptions from the client, in both flavours, and the check of what a webhook gets."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from headwater.client import (
    AlreadyClaimed,
    AsyncHeadwater,
    AsyncSubscription,
    Conflict,
    Fenced,
    InvalidSignature,
    NoPendingWork,
    SubscriptionNotFound,
    UnknownSigningKey,
    WebhookKeys,
)
from headwater.client.protocol.subscriptions import subscription_url
from headwater.core.subscriptions.signatures import SigningKey
from tests.client.conftest import served
from tests.subscriptions.receiver import TAKEN, Receiver

NOW_S = 1_700_000_000
KEY = SigningKey(b"k" * 32)
JWKS = json.dumps({"keys": [{"kty": "RSA", "kid": "x", "x": ""}, KEY.jwk]})
WAKE = {
    "subscription_id": "mail",
    "wake_id": "w_1",
    "generation": 3,
    "streams": [
        {
            "path": "inbox/a",
            "link_type": "glob",
            "acked_offset": "-1",
            "tail_offset": "1_1",
            "has_pending": True,
        }
    ],
    "callback_url": "http://localhost/callback",
    "callback_token": "3.token",
    "something_new": {"in": "a later version"},
}
BODY = json.dumps(WAKE).encode()


@pytest.fixture
def name() -> str:
    return f"sub-{uuid.uuid4().hex}"


@pytest.fixture
def subscription(client: AsyncHeadwater, name: str) -> AsyncSubscription:
    return client.subscription(name)


async def test_a_subscription_from_beginning_to_end(
    client: AsyncHeadwater, subscription: AsyncSubscription, name: str, new_path: str
) -> None:
    with pytest.raises(SubscriptionNotFound):
        await subscription.info()
    wakes = f"{new_path}-wakes"
    info = await subscription.create(
        pattern=f"{new_path}/*", wake_stream=wakes, lease_ttl_s=2.5, description="for tests"
    )
    assert (info.name, info.type, info.wake_stream) == (name, "pull-wake", wakes)
    assert (info.lease_ttl_s, info.description, info.streams) == (2.5, "for tests", ())
    with pytest.raises(Conflict):
        await subscription.create(pattern="x", wake_stream=wakes)
    await subscription.add_streams([f"{new_path}/named", "other"])
    await subscription.remove_stream("other")
    info = await subscription.info()
    assert [(s.path, s.link_type) for s in info.streams] == [(f"{new_path}/named", "explicit")]
    assert [each.name for each in await client.subscriptions(name)] == [name]
    await subscription.delete()
    with pytest.raises(SubscriptionNotFound):
        await subscription.delete()
    assert await client.subscriptions(name) == []


async def test_claims(
    client: AsyncHeadwater, subscription: AsyncSubscription, new_path: str
) -> None:
    await subscription.create(pattern=new_path, wake_stream=f"{new_path}-wakes")
    with pytest.raises(NoPendingWork):
        await subscription.claim()
    stream = client.stream(new_path)
    await stream.create(content_type="application/json")
    await stream.append(1)
    claim = await subscription.claim("ann")
    assert (claim.generation, claim.lease_ttl_s) == (1, 30.0)
    assert [linked.path for linked in claim.pending] == [new_path]
    with pytest.raises(AlreadyClaimed):
        await client.subscription(subscription.name).claim("bob")
    assert (await subscription.info()).holder == "ann"
    assert await claim.ack() is False
    await claim.release()
    with pytest.raises(Fenced):
        await claim.ack(done=True)
    second = await subscription.claim()
    acks = {each.path: each.tail_offset for each in second.pending}
    assert await second.ack(acks, done=True) is False


async def test_a_claim_in_a_block(
    client: AsyncHeadwater, subscription: AsyncSubscription, new_path: str
) -> None:
    await subscription.create(pattern=new_path, wake_stream=f"{new_path}-wakes")
    stream = client.stream(new_path)
    await stream.create(content_type="application/json")
    await stream.append(1)
    with pytest.raises(ZeroDivisionError):
        async with await subscription.claim():
            raise ZeroDivisionError
    assert (await subscription.info()).streams_pending == 1
    async with await subscription.claim() as claim:
        assert claim.generation == 2
    assert (await subscription.info()).streams_pending == 0
    await stream.append(2)
    async with await subscription.claim() as claim:
        beyond = (await stream.append(3)).next_offset or ""
        await claim.ack({new_path: beyond})
    assert (await subscription.info()).streams[0].acked_offset == beyond


@served
async def test_a_webhook_checks_and_reports(
    client: AsyncHeadwater, subscription: AsyncSubscription, new_path: str
) -> None:
    with Receiver(TAKEN) as receiver:
        await subscription.create(webhook=receiver.url, streams=[new_path])
        await client.stream(new_path).create(content_type="application/json")
        await client.stream(new_path).append(1)
        received = await asyncio.to_thread(receiver.next)
        keys = await client.webhook_keys()
        wake = keys.verify(received.raw, received.signature)
        assert (wake.subscription_id, wake.generation) == (subscription.name, 1)
        acks = {each.path: each.tail_offset for each in wake.pending}
        assert await subscription.report(wake, acks, done=True) is False
        with pytest.raises(Fenced):
            await subscription.report(wake, acks, done=True)
        await subscription.delete()


async def test_the_token_of_a_wake_wins_over_the_clients_own(base_url: str, name: str) -> None:
    async with AsyncHeadwater(base_url, token="of the client") as client:
        subscription = client.subscription(name)
        await subscription.create(pattern=f"{name}/*", wake_stream=f"{name}-wakes")
        await client.stream(f"{name}/a").create(content_type="application/json", data=1)
        await (await subscription.claim()).release()


def test_what_cannot_be_meant_is_refused_at_once(base_url: str) -> None:
    client = AsyncHeadwater(base_url)
    with pytest.raises(ValueError, match="one of the two"):
        asyncio.run(client.subscription("x").create(pattern="a"))
    with pytest.raises(ValueError, match="needs a name"):
        client.subscription("")
    assert subscription_url("http://h/v1/stream", "a b/c").endswith("/a%20b%2Fc")


# ── Signatures ───────────────────────────────────────────────────────────────────────────────


def test_a_genuine_request() -> None:
    wake = WebhookKeys(JWKS).verify(BODY, KEY.signature(BODY, NOW_S), now_s=NOW_S + 299)
    assert (wake.wake_id, wake.generation) == ("w_1", 3)
    assert [linked.path for linked in wake.pending] == ["inbox/a"]


def test_a_request_that_was_changed() -> None:
    signature = KEY.signature(BODY, NOW_S)
    later = signature.replace(f"t={NOW_S}", f"t={NOW_S + 1}")
    other = SigningKey(b"o" * 32)
    forged = other.signature(BODY, NOW_S).replace(other.kid, KEY.kid)
    for body, header in ((BODY + b" ", signature), (BODY, later), (BODY, forged)):
        with pytest.raises(InvalidSignature, match="does not match"):
            WebhookKeys(JWKS).verify(body, header, now_s=NOW_S)


@pytest.mark.parametrize("now_s", [NOW_S - 301, NOW_S + 301])
def test_a_request_that_is_replayed_later(now_s: int) -> None:
    with pytest.raises(InvalidSignature, match="too long ago"):
        WebhookKeys(JWKS).verify(BODY, KEY.signature(BODY, NOW_S), now_s=now_s)


def test_a_key_that_is_not_known() -> None:
    signature = SigningKey(b"o" * 32).signature(BODY, NOW_S)
    with pytest.raises(UnknownSigningKey):
        WebhookKeys(JWKS).verify(BODY, signature, now_s=NOW_S)


@pytest.mark.parametrize(
    "signature",
    ["", "t=1", "t=x,kid=k,ed25519=AA", "t=1,kid=k,ed25519=A", f"t={'9' * 50},kid=k,ed25519=AA"],
)
def test_headers_that_are_none(signature: str) -> None:
    with pytest.raises(InvalidSignature):
        WebhookKeys(JWKS).verify(BODY, signature, now_s=1)


def test_a_genuine_request_that_is_no_wake() -> None:
    with pytest.raises(InvalidSignature, match="no wake"):
        WebhookKeys(JWKS).verify(b"{}", KEY.signature(b"{}", NOW_S), now_s=NOW_S)
