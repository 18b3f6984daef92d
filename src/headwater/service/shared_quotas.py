"""Quotas in a cluster: the database counts what exists, and this node admits what fits.

The rules are in `headwater.core.quotas`. A missing count is queried on a thread, once for all who
need it. Meanwhile writes are refused with `Uncounted`: those that can wait do so
(`headwater.http.quotas`) and try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from headwater.core.errors import TooBusy
from headwater.core.quotas import Amount, Estimate, Quota
from headwater.core.stream import Created, StreamState, Undeleted
from headwater.service.batches import Effect
from headwater.service.entries import Entry
from headwater.service.quotas import NewProducers, cost_of, kept_bytes
from headwater.service.waiting import shared
from headwater.service.writer import Writer
from headwater.store.engine.membership import Membership

_ACCOUNTS_MAX: Final = 10_000

Key = tuple[int, str]


class Uncounted(TooBusy):
    """The database has to count first."""

    def __init__(self, counted: asyncio.Future[None]) -> None:
        super().__init__("what is stored is being counted, because of a quota; try again")
        self._counted = counted

    async def shielded(self) -> None:
        """Wait for the count. Raises StorageUnavailable if it fails."""
        await shared(self._counted)


class SharedQuotas:
    def __init__(self, quotas: tuple[Quota, ...], membership: Membership) -> None:
        self._quotas = quotas
        self._membership = membership
        self._loop = asyncio.get_running_loop()
        self._estimates: dict[Key, Estimate] = {}
        self._asked: dict[Key, asyncio.Future[None]] = {}
        self._new_producers = NewProducers()

    def watch(self, writer: Writer) -> None:
        before = writer.admit

        def admit(effects: Sequence[Effect]) -> None:
            if before is not None:
                before(effects)
            self._admit(effects)

        writer.admit = admit
        writer.observers.append(self._settled)
        writer.failure_observers.append(self._settled)

    def may_keep(self, state: StreamState) -> bool:
        size = kept_bytes(state)
        known = (self._estimates.get(key) for key in self._accounts_of(state.config.path))
        return all(estimate.may_keep(size) for estimate in known if estimate is not None)

    # ── Admitting ────────────────────────────────────────────────────────────────────────────

    def _admit(self, effects: Sequence[Effect]) -> None:
        """All or nothing."""
        wanted: dict[Key, Amount] = {}
        introduced: list[tuple[int, str]] = []
        for owner, mutation in effects:
            new = self._new_producers.introduced(owner, mutation)
            cost = cost_of(mutation, new is not None)
            path = _path_of(owner, mutation)
            if cost is None or path is None:
                continue
            if new is not None:
                introduced.append(new)
            for key in self._accounts_of(path):
                wanted.setdefault(key, Amount()).add(cost[1])
        nodes, now_s = max(1, len(self._membership.seen.nodes)), monotonic()
        for key, amount in wanted.items():
            self._check(key, amount, nodes, now_s)
        for key, amount in wanted.items():
            self._estimates[key].accept(amount)
        self._new_producers.update(introduced)

    def _check(self, key: Key, amount: Amount, nodes: int, now_s: float) -> None:
        if not self._estimate(key).admits(amount, nodes, now_s):
            raise Uncounted(self._ask(key))

    def _estimate(self, key: Key) -> Estimate:
        found = self._estimates.get(key)
        if found is None:
            if len(self._estimates) >= _ACCOUNTS_MAX:
                # Changes in flight are in the database by the time it counts, or a moment later.
                self._estimates.clear()
            found = self._estimates[key] = Estimate(self._quotas[key[0]].limits, key[1])
        return found

    def _accounts_of(self, path: str) -> list[Key]:
        named = ((number, quota.account_of(path)) for number, quota in enumerate(self._quotas))
        return [(number, name) for number, name in named if name is not None]

    def _settled(self, effects: Sequence[Effect]) -> None:
        """Accepted changes were committed or failed; from now on the database knows."""
        for owner, mutation in effects:
            was_new = self._new_producers.settle(mutation)
            cost, path = cost_of(mutation, was_new), _path_of(owner, mutation)
            if cost is None or path is None:
                continue
            for key in self._accounts_of(path):
                estimate = self._estimates.get(key)
                if estimate is not None:
                    estimate.settle(cost[1])

    # ── Counting ─────────────────────────────────────────────────────────────────────────────

    def _ask(self, key: Key) -> asyncio.Future[None]:
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.ensure_future(self._count(key))
            asked.add_done_callback(lambda done: self._answered(key, done))
        return asked

    def _answered(self, key: Key, done: asyncio.Future[None]) -> None:
        self._asked.pop(key, None)
        # The waiting requests see the error; there may be none.
        if not done.cancelled():
            done.exception()

    async def _count(self, key: Key) -> None:
        estimate, began_s = self._estimate(key), monotonic()
        estimate.asking()
        count: Callable[[str], tuple[int, ...]] = self._membership.holdings
        streams, held, producers, kept = await self._loop.run_in_executor(None, count, key[1])
        now_s = monotonic()
        estimate.counted(Amount(streams, held, producers), kept, now_s, now_s - began_s)


def _path_of(owner: object, mutation: object) -> str | None:
    if isinstance(mutation, Created):
        return mutation.config.path
    if isinstance(mutation, Undeleted):
        return mutation.state.config.path
    return owner.path if isinstance(owner, Entry) else None
