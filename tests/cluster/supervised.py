"""A nemesis of three machines under Patroni, which nobody but Patroni brings back in order."""

from __future__ import annotations

import asyncio
import time
from random import Random

from tests.cluster.history import Fate, History
from tests.cluster.nemesis import Deed, Nemesis, Node, Say
from tests.cluster.patroni import TTL_S, Machine, Patroni
from tests.cluster.trio import PATIENCE_S


class SupervisedNemesis(Nemesis):
    """Does more than the other one, because more can go wrong. Each deed ends when there is a
    primary that two replicas follow."""

    _trio: Patroni

    def __init__(
        self, patroni: Patroni, nodes: list[Node], rng: Random, say: Say, history: History
    ) -> None:
        super().__init__(patroni, nodes, {}, rng, say)
        self._history = history

    @property
    def deeds(self) -> list[Deed]:
        more = [
            self.kill_postgresql,
            self.kill_etcd,
            self.cut_from_etcd,
            self.isolate_machine,
            self.pause_machine,
            self.switch_over,
        ]
        return [*super().deeds, *more]

    def _machine(self) -> Machine:
        """The primary as often as not."""
        primary = self._trio.primary
        return self._rng.choice((primary, primary, *self._replicas()))

    def _replicas(self) -> list[Machine]:
        return [one for one in self._trio.servers if one is not self._trio.primary]

    async def _settled(self) -> None:
        before = self._trio.primary
        await self._trio.do(self._trio.wait_for_replicas, 2)
        if self._trio.primary is not before:
            self._say(f"{self._called(self._trio.primary)} now")

    # ── What it does otherwise ───────────────────────────────────────────────────────────────

    async def kill_primary(self) -> None:
        lost = self._trio.primary
        self._say(f"{self._called(lost)}: its machine killed")
        await self._trio.do(lost.kill)
        if self._rng.random() < 0.3:
            # It comes back before anybody has missed it.
            await asyncio.sleep(self._rng.uniform(0, TTL_S / 4))
        else:
            await self._missed(time.monotonic())
        await self._trio.do(self._trio.bring_back, lost)
        await self._settled()

    async def _missed(self, began: float) -> None:
        """Until Patroni has promoted another one, and then until an append is acknowledged."""
        found = await self._trio.do(self._trio.fail_over)
        promoted_s = time.monotonic() - began
        later = len(self._history.sent)
        while not any(one.fate is Fate.ACKED for one in self._history.sent[later:]):
            assert time.monotonic() - began < PATIENCE_S, "nothing is acknowledged any more"
            await asyncio.sleep(0.02)
        served_s = time.monotonic() - began
        self._say(
            f"PostgreSQL {found.name}: promoted after {promoted_s:.1f} s, and the first append"
            f" was acknowledged {served_s - promoted_s:.1f} s later"
        )

    async def kill_replica(self) -> None:
        lost = self._rng.choice(self._replicas())
        self._say(f"{self._called(lost)}: its machine killed")
        await self._trio.do(lost.kill)
        await asyncio.sleep(self._rng.uniform(0.1, TTL_S / 2))
        await self._trio.do(self._trio.bring_back, lost)
        await self._settled()

    async def cut_replication(self) -> None:
        replicas = self._rng.sample(self._replicas(), self._rng.choice((1, 2)))
        primary = self._trio.primary
        names = " and ".join(one.name for one in replicas)
        await self._cut(
            f"PostgreSQL {names} and the primary, {primary.name}",
            [primary.ways.postgresql],
            victims=lambda: [pid for one in replicas for pid in one.processes()],
            longest_s=TTL_S / 2,
        )
        await self._settled()

    async def fill_disk(self) -> None:
        await super().fill_disk()
        await self._settled()

    # ── What only happens to machines with a supervisor ──────────────────────────────────────

    async def kill_postgresql(self) -> None:
        machine = self._machine()
        self._say(f"{self._called(machine)}: killed, and its Patroni lives")
        await self._trio.do(machine.kill_postgresql)
        # Not before Patroni has seen it.
        await asyncio.sleep(self._rng.uniform(2, 5))
        await self._settled()

    async def kill_etcd(self) -> None:
        seconds = self._rng.uniform(1, 1.5 * TTL_S)
        self._say(f"etcd: killed for {seconds:.1f} s")
        await self._trio.do(self._trio.etcd.kill)
        await asyncio.sleep(seconds)
        await self._trio.do(self._trio.etcd.start)
        await self._settled()

    async def cut_from_etcd(self) -> None:
        machine = self._machine()
        what = f"{self._called(machine)} and etcd"
        await self._cut(what, [machine.ways.etcd], longest_s=2 * TTL_S)
        await self._settled()

    async def isolate_machine(self) -> None:
        """From etcd and from the other two; nodes still reach it."""
        machine = self._machine()
        what = f"{self._called(machine)} and everything but nodes"
        await self._cut(what, machine.ways.all, longest_s=2 * TTL_S)
        await self._settled()

    async def pause_machine(self) -> None:
        """Either it is back before anybody misses it, or long after another one leads: what wakes
        up in between may take commits until its Patroni wakes up too, as there is no watchdog."""
        machine = self._machine()
        seconds = self._rng.choice((self._rng.uniform(1, TTL_S / 3), 2.5 * TTL_S))
        self._say(f"{self._called(machine)}: its machine paused for {seconds:.1f} s")
        await self._trio.do(machine.pause)
        try:
            await asyncio.sleep(seconds)
        finally:
            machine.resume()
        await self._settled()

    async def switch_over(self) -> None:
        self._say(f"{self._called(self._trio.primary)}: to hand over")
        await self._trio.do(self._trio.switch_over)
        await self._settled()
