"""One subscription in memory: its state, and the task that runs its wake.

Every event (a stream grew, a lease ended, an acknowledgement came) ends in `kick`. One task per
subscription then does what is due, step by step, and ends when there is nothing left or when it has
to wait, for which it sets a timer. That task also makes the requests to webhooks, so a slow
receiver delays only its own subscription.

A wake is announced only when it is committed. After a crash, the stored state says what was in
progress, and it is done again.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

import msgspec
import structlog

from headwater.core import decisions
from headwater.core.content_types import JSON
from headwater.core.decisions import Append
from headwater.core.errors import OwnedElsewhere, StorageUnavailable, StreamError
from headwater.core.mutations import SubscriptionDecision
from headwater.core.producers import ProducerStamp
from headwater.core.subscriptions.decisions import (
    Changes,
    decide_begin,
    decide_completed,
    decide_delivered,
    decide_failed,
    decide_lapse,
    decide_offered,
)
from headwater.core.subscriptions.errors import SubscriptionNotFound
from headwater.core.subscriptions.signatures import make_token
from headwater.core.subscriptions.state import (
    Link,
    LinksMarked,
    LinksRemoved,
    Phase,
    StreamTail,
    SubscriptionMutation,
    SubscriptionState,
    Wake,
    evolve,
)
from headwater.service.batches import Effect, Owner
from headwater.service.replies import Reply
from headwater.service.subscriptions.figures import Share
from headwater.service.timers import Alarm

if TYPE_CHECKING:
    from headwater.service.elsewhere import Elsewhere
    from headwater.service.subscriptions.registry import SubscriptionRegistry

log = structlog.get_logger()

STREAMS_SHOWN_MAX: Final = 1_000
"""Streams in one wake. The rest comes with the next one."""
_RETRY_MS: Final = 1_000

R = TypeVar("R")


class Subscription(Owner):
    def __init__(self, registry: SubscriptionRegistry, state: SubscriptionState) -> None:
        self.state = state
        self.lost = False
        self.counted: Share | None = None
        """Its share of the metrics, while it is registered."""
        self._registry = registry
        self._released: int | None = None
        """The shard with which it moved to another node."""
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._alarm = Alarm(registry.timers, self.kick)

    @property
    def name(self) -> str:
        return self.state.record.name

    @property
    def over(self) -> bool:
        """Whether this state must not be used, for now or for good."""
        return self.lost or self.state.deleted

    # ── For the writer ───────────────────────────────────────────────────────────────────────

    def apply(self, mutation: SubscriptionMutation) -> None:
        evolve(self.state, mutation)
        if isinstance(mutation, LinksMarked):
            self._index([mark.path for mark in mutation.marks])
        elif isinstance(mutation, LinksRemoved):
            self._index(mutation.paths)
        self._count()

    def _index(self, paths: Iterable[str]) -> None:
        """Update the index for streams that are named, or no longer."""
        index = self._registry.index
        for path in paths if self.counted is not None else ():
            link = self.state.links.get(path)
            if link is not None and link.explicit:
                index.link(self, path)
            else:
                index.unlink(self, path)

    def _count(self) -> None:
        share = self.counted
        if share is not None and share != (now := Share.of(self.state)):
            self._registry.figures.drop(share)
            self._registry.figures.add(now)
            self.counted = now

    def forget_state(self) -> None:
        if not self.lost:
            self.lost = True
            self._registry.lost(self)

    async def release(self, shard: int) -> None:
        """Another node is about to own it."""
        self.lost, self._released = True, shard
        await self.stop()

    def found_again(self, state: SubscriptionState) -> None:
        """The stored state was loaded, and is valid."""
        self.state = state
        self.lost = False
        self.kick()

    # ── Changes of streams ───────────────────────────────────────────────────────────────────

    def appeared(self, stream: StreamTail) -> None:
        self.state.appeared(stream)
        self._woken()

    def grew(self, link: Link, stream_id: int, tail: int) -> None:
        self.state.grew(link, stream_id, tail)
        self._woken()

    def vanished(self, path: str, stream_id: int) -> None:
        link = self.state.links.get(path)
        self.state.vanished(path, stream_id)
        self._count()
        if link is not None and not link.explicit and path not in self.state.links:
            # Nobody waits for this: a mark for a deleted stream does no harm.
            with suppress(StreamError):
                removed = LinksRemoved(self.state.record.id, (path,))
                self.submit([removed], None)

    def found(self, path: str, stream: StreamTail | None) -> None:
        """What is at a path according to the engine, whatever was heard before."""
        link = self.state.links.get(path)
        known_id = link.stream_id if link is not None else 0
        if stream is not None and link is not None and known_id == stream.lineage.own:
            self.grew(link, known_id, stream.tail)
            return
        if known_id:
            self.vanished(path, known_id)
        if stream is not None and (path in self.state.links or self.state.globs(path)):
            self.appeared(stream)
        self._registry.rewatch(path)

    def _woken(self) -> None:
        self._count()
        if self.state.wake.phase is Phase.IDLE and self.state.pending:
            self.kick()

    # ── Requests ─────────────────────────────────────────────────────────────────────────────

    def require(self) -> SubscriptionState:
        """The state that decisions build on."""
        if self._released is not None:
            raise OwnedElsewhere(self._released)
        if self.lost:
            raise StorageUnavailable
        if self.state.deleted:
            raise SubscriptionNotFound(self.name)
        return self.state

    def submit(
        self, changes: Sequence[SubscriptionMutation], reply: R, extra: Sequence[Effect] = ()
    ) -> Reply[R]:
        effects: list[Effect] = [(self, change) for change in changes]
        return self._registry.streams.writer.submit([*effects, *extra], reply)

    async def change(
        self, decide: Callable[[SubscriptionState, int], SubscriptionDecision[R]]
    ) -> R:
        """Decide, commit, answer. A refusal also waits for the state it depends on."""
        writer = self._registry.streams.writer
        self.expire()
        try:
            decision = decide(self.require(), self._registry.streams.clock())
        except StreamError as error:
            await writer.fail_after(self, error)
            raise
        if not decision.mutations:
            return await writer.reply_after(self, decision.reply)
        answer = await self.submit(decision.mutations, decision.reply)
        self.kick()
        return answer

    def expire(self) -> None:
        """An expired lease is over, whether or not the timer has fired yet."""
        if not self.over:
            changes = decide_lapse(self.state, new_wake_id(), self._registry.streams.clock())
            if changes:
                self.submit(changes, None)
                self.kick()

    async def announced(self) -> None:
        """Wait until a wake that is being announced was announced or failed."""
        wake = self.state.wake
        fresh = wake.phase is Phase.DUE and wake.attempts == 0
        if fresh or (wake.phase is Phase.IDLE and self.state.pending):
            self.kick()
            if self._task is not None:
                await asyncio.wait([self._task])

    # ── The task ─────────────────────────────────────────────────────────────────────────────

    def kick(self) -> None:
        """Something changed: check what is due."""
        if self._task is not None:
            self._again = True
        elif not self.over:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        try:
            self._again = True
            while not self.over and (self._again or self._is_due()):
                self._again = False
                await self._step()
        except StreamError as error:
            log.warning("subscription_delayed", subscription=self.name, error=error.message)
            self._alarm.set(self._registry.streams.clock() + _RETRY_MS)
        except Exception as error:
            # Nobody waits for this task. The failure must be visible, and must not end the wakes.
            self._registry.watch.failed(error, _RETRY_MS / 1000)
            self._alarm.set(self._registry.streams.clock() + _RETRY_MS)
        else:
            if self.state.wake.phase in (Phase.DUE, Phase.LEASED):
                self._alarm.set(self.state.wake.until_ms)
        finally:
            self._task = None

    def _is_due(self) -> bool:
        wake = self.state.wake
        if wake.phase is Phase.IDLE:
            return bool(self.state.pending)
        waits = wake.phase in (Phase.DUE, Phase.LEASED)
        return waits and wake.until_ms <= self._registry.streams.clock()

    async def _step(self) -> None:
        state, now_ms = self.state, self._registry.streams.clock()
        wake = state.wake
        if wake.phase is Phase.IDLE:
            await self._commit(decide_begin(state, new_wake_id(), now_ms))
        elif wake.phase is Phase.LEASED:
            await self._commit(decide_lapse(state, new_wake_id(), now_ms))
        elif wake.phase is Phase.DUE and wake.until_ms <= now_ms:
            if state.config.webhook is not None:
                await self._deliver(state.config.webhook.url)
            else:
                await self._offer(wake)

    async def _commit(self, changes: Changes, extra: Sequence[Effect] = ()) -> None:
        if changes:
            await self.submit(changes, None, extra)

    # ── Webhooks ─────────────────────────────────────────────────────────────────────────────

    async def _deliver(self, url: str) -> None:
        keys = await self._registry.keyring.get()
        async with self._registry.webhooks.slots:
            # A callback may have just begun this wake: wait until it is committed.
            await self._registry.streams.writer.reply_after(self, None)
            state, wake = self.state, self.state.wake
            if wake.phase is not Phase.DUE or self.over:
                return
            snapshot = state.snapshot(STREAMS_SHOWN_MAX)
            body = msgspec.json.encode(
                {
                    "subscription_id": self.name,
                    "wake_id": wake.wake_id,
                    "generation": wake.generation,
                    "streams": snapshot.streams,
                    "callback_url": self._callback_url(),
                    "callback_token": make_token(keys.tokens, state.record.id, wake.generation),
                }
            )
            now_s = self._registry.streams.clock() // 1000
            signature = keys.signing[-1].signature(body, now_s)
            outcome = await self._registry.webhooks.post(url, body, signature)
        # A commit may have failed meanwhile; then there is another state, and the same wake.
        state, now_ms = self.state, self._registry.streams.clock()
        if self.over:
            return
        if outcome.done:
            changes = decide_completed(state, wake.wake_id, snapshot.marks, new_wake_id(), now_ms)
        elif outcome.taken:
            changes = decide_delivered(state, wake.wake_id, now_ms)
        else:
            changes = decide_failed(state, wake.wake_id, random.random(), now_ms)
            log.info("webhook_failed", subscription=self.name, problem=outcome.problem)
        await self._commit(changes)

    def _callback_url(self) -> str:
        base = self._registry.public_url or self.state.record.base_url
        return f"{base}/v1/stream/__ds/subscriptions/{quote(self.name, safe='')}/callback"

    # ── Wake streams ─────────────────────────────────────────────────────────────────────────

    async def _offer(self, wake: Wake) -> None:
        try:
            if self._registry.elsewhere is None:
                await self._offer_here(wake)
            else:
                await self._offer_anywhere(self._registry.elsewhere, wake)
        except StorageUnavailable:
            raise
        except StreamError as error:
            log.warning("wake_stream_refused", subscription=self.name, error=error.message)
            now_ms = self._registry.streams.clock()
            await self._commit(decide_failed(self.state, wake.wake_id, random.random(), now_ms))

    async def _offer_here(self, wake: Wake) -> None:
        """Append the event to the wake stream and mark the wake as offered, in one transaction."""
        streams, path = self._registry.streams, self.state.config.wake_stream or ""
        entry = await streams.entry(path)
        now_ms = streams.clock()
        changes = decide_offered(self.state, wake.wake_id)
        if not changes or self.over:
            return
        wake_stream = decisions.require(entry.state, path, now_ms)
        append = Append(self._event(wake, now_ms), JSON)
        decision = decisions.decide_append(wake_stream, append, now_ms)
        await self._commit(changes, [(entry, mutation) for mutation in decision.mutations])
        self._registry.wakes_offered += 1

    async def _offer_anywhere(self, elsewhere: Elsewhere, wake: Wake) -> None:
        """The same, if another node may own the wake stream: the subscription is a producer there,
        and its wake the epoch, so a repetition is stored once.
        """
        stamp = ProducerStamp(f"wake-{self.state.record.id}", wake.generation, 0)
        event = self._event(wake, self._registry.streams.clock())
        path = self.state.config.wake_stream or ""
        await elsewhere.append(path, Append(event, JSON, producer=stamp))
        if not self.over:
            await self._commit(decide_offered(self.state, wake.wake_id))
            self._registry.wakes_offered += 1

    def _event(self, wake: Wake, now_ms: int) -> bytes:
        event = {
            "type": "wake",
            "subscription_id": self.name,
            "stream": next(iter(self.state.pending), ""),
            "generation": wake.generation,
            "ts": now_ms,
        }
        return msgspec.json.encode(event)


def new_wake_id() -> str:
    return f"w_{secrets.token_hex(12)}"
