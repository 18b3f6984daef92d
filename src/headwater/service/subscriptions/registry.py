"""The subscriptions in memory, by name, and how they learn about streams.

Changes of streams come from the writer, once after each commit. Without subscriptions, that costs
one test. Otherwise each stream in memory knows its subscriptions, so an append costs one
comparison, and a little for each of them. Nothing here ever waits for a woken worker.

Every subscription is in memory with the streams it is linked to. They are read when the server
starts, together with the tails of those streams, so that pending ones wake again. In a cluster, a
node has those of its own shards, reads them when it gets a shard, and hears from the other nodes
about their streams (`hints`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Self

import structlog

from headwater.core.errors import OwnedElsewhere, StorageUnavailable, StreamError
from headwater.core.stream import Appended, Created, Deleted, SoftDeleted, Undeleted
from headwater.core.subscriptions.errors import SubscriptionNotFound
from headwater.core.subscriptions.state import Link, StreamTail, SubscriptionState
from headwater.service.background import Retried
from headwater.service.batches import Effect
from headwater.service.elsewhere import Elsewhere
from headwater.service.entries import Entry
from headwater.service.log import Log
from headwater.service.subscriptions.figures import Share, SubscriptionFigures
from headwater.service.subscriptions.hints import Hearing
from headwater.service.subscriptions.index import SubscriptionIndex
from headwater.service.subscriptions.keyring import Keyring
from headwater.service.subscriptions.subscription import Subscription
from headwater.service.subscriptions.survey import Found, Survey, tail_of
from headwater.service.subscriptions.webhooks import Webhooks
from headwater.service.timers import Timers

log = structlog.get_logger()

_RETRY_MS: Final = 1_000


class _Watch(NamedTuple):
    """The subscriptions of a stream, as of some version of the links."""

    version: int
    targets: tuple[tuple[Subscription, Link], ...]


class _Tenure:
    """The period for which this node owns a shard."""

    is_loaded = False


class SubscriptionRegistry:
    def __init__(self, streams: Log, webhooks: Webhooks, next_id: int, public_url: str) -> None:
        self.streams = streams
        self.webhooks = webhooks
        self.public_url = public_url
        self.timers = Timers(streams.clock, streams.watch("subscription_timers"))
        self.watch = streams.watch("subscriptions")
        self.keyring = Keyring(streams)
        self._next_id = next_id
        self._by_name: dict[str, Subscription] = {}
        self.index = SubscriptionIndex()
        self.figures = SubscriptionFigures()
        self.wakes_offered = 0
        """Wakes written to wake streams since the start."""
        # Counts changes to the links between streams and subscriptions, other than a stream's own
        # creation and deletion.
        self.version = 0
        self._loaded = False
        self._shards: dict[int, _Tenure] = {}
        """In a cluster: the shards that this node owns."""
        self._creating = asyncio.Lock()
        self._reloads = Retried(streams.watch("subscription_lookups"))
        self.hearing = Hearing(self) if streams.membership is not None else None
        self.elsewhere: Elsewhere | None = None
        """In a cluster: how to use wake streams, whoever owns them."""

    @classmethod
    async def start(
        cls, streams: Log, webhooks: Webhooks | None = None, *, public_url: str = ""
    ) -> Self:
        webhooks = webhooks or Webhooks(streams.limits)
        next_id = await streams.in_thread(streams.engine.subscriptions.next_id)
        subscriptions = cls(streams, webhooks, next_id, public_url.rstrip("/"))
        streams.writer.observers.append(subscriptions._observe)
        streams.writer.failure_observers.append(subscriptions._doubt)
        if streams.membership is None:
            await subscriptions._load()
        return subscriptions

    async def _load(self) -> None:
        """Load the stored subscriptions. If that fails, streams can still be used."""
        try:
            states = await self._restored()
        except StreamError as error:
            log.error("subscriptions_unavailable", error=error.message)
            self._later(self._load)
            return
        self._loaded = True
        for state in states:
            self._add(Subscription(self, state)).kick()

    async def _restored(
        self, subscription_id: int | None = None, shards: Set[int] | None = None
    ) -> list[SubscriptionState]:
        """One subscription or all of them as stored, with the tails of their streams."""
        load = partial(self.streams.engine.subscriptions.load, subscription_id)
        among = load if shards is None else partial(load, shards=shards)
        stored = await self.streams.in_thread(among)
        states = [SubscriptionState(each.record, each.config, each.wake) for each in stored]
        prefixes = [state.pattern.prefix for state in states if state.pattern is not None]
        named = [mark.path for each in stored for mark in each.marks if mark.explicit]
        found = Found(await self.survey(prefixes, named))
        for state, each in zip(states, stored, strict=True):
            prefix = state.pattern.prefix if state.pattern is not None else None
            state.restore(each.marks, found.of(prefix, [mark.path for mark in each.marks]))
        return states

    async def survey(self, prefixes: Iterable[str], paths: Iterable[str]) -> dict[str, StreamTail]:
        return await Survey(self.streams, self.hearing).run(prefixes, paths)

    # ── In a cluster ─────────────────────────────────────────────────────────────────────────

    def shard_of(self, name: str) -> int:
        assert self.streams.membership is not None
        return self.streams.membership.seen.of_subscription(name)

    async def gained(self, shards: Set[int]) -> None:
        """This node now owns these shards."""
        tenures = {shard: _Tenure() for shard in shards}
        self._shards |= tenures
        await self._load_shards(tenures)

    async def _load_shards(self, tenures: Mapping[int, _Tenure]) -> None:
        try:
            states = await self._restored(shards=tenures.keys())
        except StreamError as error:
            log.error("subscriptions_unavailable", error=error.message)
            self._later(lambda: self._load_shards(tenures))
            return
        # A shard may have been given away again meanwhile, and its new owner continues.
        held = {shard for shard, tenure in tenures.items() if self._shards.get(shard) is tenure}
        for state in states:
            if self.shard_of(state.record.name) in held:
                self._add(Subscription(self, state)).kick()
        for shard in held:
            tenures[shard].is_loaded = True

    async def releasing(self, shards: Set[int]) -> None:
        """Another node is about to own these shards: do nothing more here."""
        for shard in shards:
            self._shards.pop(shard, None)
        for subscription in [*self._by_name.values()]:
            if (shard := self.shard_of(subscription.name)) in shards:
                self._forget(subscription)
                await subscription.release(shard)

    async def look_at(self, subscription: Subscription) -> None:
        """Learn of everything appended to its streams before, on any node."""
        if self.hearing is not None:
            await self._look_at({subscription})

    async def look_at_all(self) -> None:
        if self._by_name:
            await self._look_at({*self._by_name.values()})

    async def _look_at(self, subscriptions: Set[Subscription]) -> None:
        states = [each.state for each in subscriptions if not each.over]
        prefixes = [state.pattern.prefix for state in states if state.pattern is not None]
        named = {path for state in states for path, link in state.links.items() if link.explicit}
        linked = {path for state in states for path in state.links}
        found = await self.survey(prefixes, named)
        for path in linked | found.keys():
            for subscription in self.index.concerned(path):
                if subscription in subscriptions and not subscription.over:
                    subscription.found(path, found.get(path))

    async def look_at_paths(self, paths: Set[str]) -> None:
        found = await self.survey([], paths)
        for path in paths:
            for subscription in self.index.concerned(path):
                if not subscription.over:
                    subscription.found(path, found.get(path))

    async def stop(self) -> None:
        self.timers.stop()
        with suppress(ValueError):
            self.streams.writer.observers.remove(self._observe)
            self.streams.writer.failure_observers.remove(self._doubt)
        await self._reloads.stop()
        if self.hearing is not None:
            await self.hearing.stop()
        for subscription in self._by_name.values():
            await subscription.stop()
        await self.webhooks.stop()

    # ── Changes of streams ───────────────────────────────────────────────────────────────────

    def _observe(self, effects: Sequence[Effect]) -> None:
        if not self._by_name:
            return
        for owner, mutation in effects:
            if isinstance(mutation, Appended):
                assert isinstance(owner, Entry)
                watch = owner.watch
                if not isinstance(watch, _Watch) or watch.version != self.version:
                    watch = owner.watch = self._watch(owner.path)
                for subscription, link in watch.targets:
                    subscription.grew(link, mutation.stream_id, mutation.end)
            elif isinstance(mutation, Created | Undeleted | Deleted | SoftDeleted):
                assert isinstance(owner, Entry)
                owner.watch = None
                self._came_or_went(owner.path, mutation)

    def _watch(self, path: str) -> _Watch:
        found = [
            (subscription, subscription.state.links[path])
            for subscription in self.index.concerned(path)
            if path in subscription.state.links and not subscription.lost
        ]
        return _Watch(self.version, tuple(found))

    def rewatch(self, path: str) -> None:
        """A stream was found to be created or deleted elsewhere. If this node owns it by now, it
        may be watched already, for nobody or with the links of an earlier one.
        """
        entry = self.streams.ready(path)
        if entry is not None:
            entry.watch = None

    def _came_or_went(
        self, path: str, mutation: Created | Undeleted | Deleted | SoftDeleted
    ) -> None:
        for subscription in self.index.concerned(path):
            state = subscription.state
            if subscription.lost or state.deleted:
                continue
            if isinstance(mutation, Deleted | SoftDeleted):
                subscription.vanished(path, mutation.stream_id)
            elif path in state.links or state.globs(path):
                subscription.appeared(tail_of(path, mutation))

    # ── Finding ──────────────────────────────────────────────────────────────────────────────

    def _known(self, name: str | None = None) -> dict[str, Subscription]:
        """The subscriptions in memory, provided that one, or all of this node's, are loaded."""
        if self.hearing is None:
            is_loaded = self._loaded
        elif name is None:
            is_loaded = all(tenure.is_loaded for tenure in self._shards.values())
        else:
            tenure = self._shards.get(shard := self.shard_of(name))
            if tenure is None:
                raise OwnedElsewhere(shard)
            is_loaded = tenure.is_loaded
        if not is_loaded:
            raise StorageUnavailable("subscriptions cannot be read right now; try again")
        return self._by_name

    def get(self, name: str) -> Subscription:
        subscription = self._known(name).get(name)
        if subscription is None:
            raise SubscriptionNotFound(name)
        return subscription

    def list(self, prefix: str, after: str, limit: int) -> list[Subscription]:
        known, names = self._known(), self.index.names(prefix, after)
        return [known[name] for name in islice(names, limit)]

    def _add(self, subscription: Subscription) -> Subscription:
        self._by_name[subscription.name] = subscription
        self.index.add(subscription)
        subscription.counted = Share.of(subscription.state)
        self.figures.add(subscription.counted)
        self.version += 1
        self._held()
        return subscription

    def _forget(self, subscription: Subscription) -> None:
        if self._by_name.get(subscription.name) is subscription:
            del self._by_name[subscription.name]
            self.index.remove(subscription)
            if subscription.counted is not None:
                self.figures.drop(subscription.counted)
                subscription.counted = None
            self.version += 1
            self._held()

    def _held(self) -> None:
        if self.hearing is not None and len(self._by_name) <= 1:
            self.hearing.on_held()

    @property
    def has_any(self) -> bool:
        return bool(self._by_name)

    # ── After a failed commit ────────────────────────────────────────────────────────────────

    def _doubt(self, effects: Sequence[Effect]) -> None:
        """A commit reported as failed may have taken effect: look up the streams."""
        if self._by_name:
            paths = {owner.path for owner, _ in effects if isinstance(owner, Entry)}
            self._reloads.start(lambda: self._look_again(paths))

    async def _look_again(self, paths: Set[str]) -> None:
        try:
            await self.look_at_paths(paths)
        except StreamError as error:
            log.warning("look_failed", error=error.message)
            self._later(lambda: self._look_again(paths))
            return
        self.version += 1

    def _later(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        due_ms = self.streams.clock() + _RETRY_MS
        self.timers.at(due_ms, lambda: self._reloads.start(work))

    def lost(self, subscription: Subscription) -> None:
        self.version += 1
        self._reloads.start(lambda: self._reload(subscription))

    async def _reload(self, subscription: Subscription) -> None:
        """Start again from what is stored, if anything is."""
        try:
            states = await self._restored(subscription.state.record.id)
        except StreamError as error:
            log.warning("reload_failed", subscription=subscription.name, error=error.message)
            self._later(lambda: self._reload(subscription))
            return
        is_known = self._by_name.get(subscription.name) is subscription
        self._forget(subscription)
        if states and is_known:
            subscription.found_again(states[0])
            self._add(subscription)
