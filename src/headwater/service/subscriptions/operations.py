"""All subscriptions: changing and using them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from headwater.core.content_types import JSON
from headwater.core.decisions import Create
from headwater.core.errors import ConfigConflict, StorageUnavailable, StreamError
from headwater.core.mutations import Decision, SubscriptionDecision
from headwater.core.paths import check_segment
from headwater.core.subscriptions import decisions
from headwater.core.subscriptions.config import SubscriptionConfig
from headwater.core.subscriptions.decisions import Ack, Changes, Proof
from headwater.core.subscriptions.errors import (
    AckConflict,
    InvalidSubscription,
    SubscriptionExists,
    TokenInvalid,
    TooManySubscriptions,
)
from headwater.core.subscriptions.signatures import make_token, read_token
from headwater.core.subscriptions.state import (
    NOTHING_ACKED,
    Mark,
    StreamInfo,
    SubscriptionDeleted,
    SubscriptionRecord,
    SubscriptionState,
)
from headwater.service.subscriptions.keyring import Keys
from headwater.service.subscriptions.registry import SubscriptionRegistry
from headwater.service.subscriptions.subscription import (
    STREAMS_SHOWN_MAX,
    Subscription,
    new_wake_id,
)

STREAMS_MATCHED_MAX: Final = 100_000
"""Existing streams that a new subscription may match."""


class Claimed(NamedTuple):
    wake_id: str
    generation: int
    token: str
    streams: list[StreamInfo]
    lease_ttl_ms: int


class Subscriptions(SubscriptionRegistry):
    """Operations on subscriptions. Create it with `await Subscriptions.start(...)`."""

    # ── Creating and changing ────────────────────────────────────────────────────────────────

    async def put(
        self, name: str, config: SubscriptionConfig, base_url: str
    ) -> tuple[Subscription, bool]:
        """Create a subscription, or find that it exists; True when it is new."""
        check_segment(name)
        if name not in self._known(name):
            if config.webhook is not None:
                await self.webhooks.check(config.webhook.url)
            if config.wake_stream is not None:
                await self._prepare_wake_stream(config.wake_stream)
        async with self._creating:
            while True:
                known = self._by_name.get(name)
                if known is None:
                    made = await self._create(name, config, base_url)
                    if made is not None:
                        return made, True
                    continue
                if known.lost:
                    raise StorageUnavailable
                await self.streams.writer.reply_after(known, None)
                if known.state.deleted:
                    self._forget(known)
                    continue
                if known.state.config != config:
                    raise SubscriptionExists
                return known, False

    async def _count(self) -> int:
        if self.hearing is None:
            return len(self._by_name)
        return await self.streams.in_thread(self.streams.engine.subscriptions.count)

    async def _create(
        self, name: str, config: SubscriptionConfig, base_url: str
    ) -> Subscription | None:
        """A new subscription; None if one of that name was created meanwhile."""
        if await self._count() >= self.streams.limits.subscriptions_max:
            raise TooManySubscriptions(self.streams.limits.subscriptions_max)
        new_id = await self.streams.new_id("subscriptions") or self._next_id
        record = SubscriptionRecord(new_id, name, self.streams.clock(), base_url)
        self._next_id += 1
        state = SubscriptionState(record, config)
        named = [Mark(path, True, 0, NOTHING_ACKED) for path in config.streams]
        prefixes = [state.pattern.prefix] if state.pattern is not None else []
        found = await self.survey(prefixes, config.streams)
        state.restore(named, found.values())
        if len(state.links) > STREAMS_MATCHED_MAX:
            raise InvalidSubscription(
                f"the pattern takes in more than {STREAMS_MATCHED_MAX} streams; narrow it down"
            )
        if name in self._known(name):
            # Its shard belonged to another node for a while, and came back with it.
            return None
        subscription = Subscription(self, state)
        self._add(subscription)
        try:
            await subscription.submit([decisions.decide_create(state)], None)
        except StreamError:
            # Unless it failed before it was queued, the loss was noticed and it is reloaded.
            if not subscription.lost:
                self._forget(subscription)
            raise
        subscription.kick()
        return subscription

    async def _prepare_wake_stream(self, path: str) -> None:
        if self.elsewhere is not None:
            await self.elsewhere.create(path, JSON)
            fits = await self.elsewhere.holds_json(path)
        else:
            entry = await self.streams.entry(path)
            if entry.state is None or entry.state.deleted:
                with suppress(ConfigConflict):
                    await self.streams.create(Create(path, JSON))
                entry = await self.streams.entry(path)
            stream = self.streams.view(entry).config
            fits = stream.is_json and stream.unique_ids is None
        if not fits:
            raise InvalidSubscription("wake_stream must hold application/json and not check ids")

    async def delete(self, name: str) -> None:
        subscription = self.get(name)
        await subscription.change(
            lambda state, _: Decision(None, [SubscriptionDeleted(state.record.id)])
        )
        self._forget(subscription)
        await subscription.stop()

    async def link(self, name: str, paths: Sequence[str]) -> None:
        subscription = self.get(name)
        if subscription.require().config.wake_stream in paths:
            raise InvalidSubscription("a subscription cannot be woken by its own wake_stream")
        found = await self.survey([], paths)
        await subscription.change(
            lambda state, _: self._relinked(decisions.decide_link(state, paths, found))
        )

    async def unlink(self, name: str, path: str) -> None:
        subscription = self.get(name)
        await subscription.change(
            lambda state, _: self._relinked(decisions.decide_unlink(state, path))
        )

    def _relinked(self, changes: Changes) -> SubscriptionDecision[None]:
        """The links of streams change as soon as this is decided."""
        self.version += 1
        return Decision(None, changes)

    # ── Using ────────────────────────────────────────────────────────────────────────────────

    async def claim(self, name: str, worker: str) -> Claimed:
        subscription = self.pulled(name)
        keys = await self.keyring.get()
        await self.look_at(subscription)
        subscription.expire()
        await subscription.announced()

        def decide(state: SubscriptionState, now_ms: int) -> SubscriptionDecision[Claimed]:
            changes = decisions.decide_claim(state, worker, now_ms)
            wake = state.wake
            claimed = Claimed(
                wake.wake_id,
                wake.generation,
                make_token(keys.tokens, state.record.id, wake.generation),
                state.snapshot(STREAMS_SHOWN_MAX).streams,
                state.config.lease_ttl_ms,
            )
            return Decision(claimed, changes)

        return await subscription.change(decide)

    async def settle(
        self,
        subscription: Subscription,
        token: str,
        generation: int,
        wake_id: str,
        acks: Sequence[Ack],
        *,
        done: bool,
    ) -> bool:
        """Acknowledge, then continue or finish; True if another wake follows at once."""
        keys = await self.keyring.get()

        def decide(state: SubscriptionState, now_ms: int) -> SubscriptionDecision[bool]:
            proof = _proof(keys, state, token, generation, wake_id)
            return decisions.decide_settle(
                state, proof, acks, done=done, next_id=new_wake_id(), now_ms=now_ms
            )

        try:
            return await subscription.change(decide)
        except AckConflict:
            if self.hearing is None:
                raise
        # A worker may have read something that this node has not heard of yet.
        await self.look_at_paths({ack.stream for ack in acks})
        return await subscription.change(decide)

    async def release(
        self, subscription: Subscription, token: str, generation: int, wake_id: str
    ) -> None:
        keys = await self.keyring.get()

        def decide(state: SubscriptionState, now_ms: int) -> SubscriptionDecision[bool]:
            proof = _proof(keys, state, token, generation, wake_id)
            return decisions.decide_release(state, proof, new_wake_id(), now_ms)

        await subscription.change(decide)

    async def held(self, name: str, token: str, *, by_webhook: bool) -> Subscription:
        """The subscription that a wake's token is for.

        Without a token, nobody can tell whether the subscription exists.
        """
        keys = await self.keyring.get()
        subscription = self._known(name).get(name)
        if subscription is None:
            raise TokenInvalid
        read_token(keys.tokens, subscription.state.record.id, token)
        return self.hooked(name) if by_webhook else self.pulled(name)

    def hooked(self, name: str) -> Subscription:
        """A subscription that wakes a webhook."""
        subscription = self.get(name)
        if subscription.state.config.webhook is None:
            raise InvalidSubscription("callbacks are for webhook subscriptions; use ack")
        return subscription

    def pulled(self, name: str) -> Subscription:
        """A subscription whose wakes are claimed."""
        subscription = self.get(name)
        if subscription.state.config.webhook is not None:
            raise InvalidSubscription("this is for pull-wake subscriptions; use the callback")
        return subscription


def _proof(
    keys: Keys, state: SubscriptionState, token: str, generation: int, wake_id: str
) -> Proof:
    return Proof(read_token(keys.tokens, state.record.id, token), generation, wake_id)
