"""Three nodes on three PostgreSQL, disturbed for a while; and whether a promise was broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import permutations
from random import Random

from headwater.store.engine import Problem
from headwater.store.postgresql.inspection import verify_address
from tests.cluster.crew import Desk, conclude, crew
from tests.cluster.disks import can_have_disks
from tests.cluster.editors import Editors
from tests.cluster.history import Fate, History, check
from tests.cluster.nemesis import DATABASE, LEASE_MS, Nemesis, Node, Say
from tests.cluster.patroni import Patroni
from tests.cluster.proxy import Proxy
from tests.cluster.supervised import SupervisedNemesis
from tests.cluster.trio import Trio


async def ordeal(
    seed: int, seconds: float, say: Say, *, under_patroni: bool = False
) -> tuple[History, list[str]]:
    """Disturb a cluster for a while; what was recorded, and which promises were broken."""
    kind: type[Trio] = Patroni if under_patroni else Trio
    async with kind.running(has_disks=can_have_disks()) as trio:
        return await _ordeal(trio, Random(seed), seconds, say)


async def _ordeal(trio: Trio, rng: Random, seconds: float, say: Say) -> tuple[History, list[str]]:
    async with AsyncExitStack() as stack:
        await trio.do(trio.create_database, DATABASE)
        nodes = [Node(str(number), trio) for number in (1, 2, 3)]
        desk = Desk([node.process.port for node in nodes], rng)
        nemesis: Nemesis
        if isinstance(trio, Patroni):
            nemesis = SupervisedNemesis(trio, nodes, rng, say, desk.history)
        else:
            replication = await stack.enter_async_context(_between(trio))
            nemesis = Nemesis(trio, nodes, replication, rng, say)
        for node in nodes:
            stack.push_async_callback(node.stop)
            for proxy in node.proxies:
                await proxy.start()
        for node in nodes:
            await node.start()
        await _disturbed(desk, nemesis, nodes, seconds)
        _sum_up(desk, nemesis, say)
        broken = check(desk.history)
        broken += [f"{p.where}: {p.what}" for p in await asyncio.to_thread(_damage, trio)]
        broken += [f"node {n.name} had an unexpected error" for n in nodes if _failed(n)]
        if broken:
            for node in nodes:
                say(f"--- node {node.name} ---\n{node.process.stderr[-6_000:]}")
        return desk.history, broken


@asynccontextmanager
async def _between(trio: Trio) -> AsyncIterator[dict[tuple[int, int], Proxy]]:
    """A proxy between any two PostgreSQL, by their ports."""
    found = {
        (one.port, other.port): Proxy(other.port) for one, other in permutations(trio.servers, 2)
    }
    try:
        for proxy in found.values():
            await proxy.start()
        await trio.do(trio.replicate_through, {pair: p.port for pair, p in found.items()})
        yield found
    finally:
        for proxy in found.values():
            await proxy.stop()


async def _disturbed(desk: Desk, nemesis: Nemesis, nodes: list[Node], seconds: float) -> None:
    editors = Editors(desk)
    await desk.prepare()
    await editors.prepare()
    async with asyncio.TaskGroup() as tasks:
        for client in crew(desk):
            tasks.create_task(client.run())
        tasks.create_task(editors.run())
        await nemesis.run(seconds)
        for node in nodes:
            await node.start()
        await asyncio.sleep(2 * LEASE_MS / 1000)
        desk.is_over = True
    await conclude(desk)
    await editors.conclude()


def _sum_up(desk: Desk, nemesis: Nemesis, say: Say) -> None:
    deeds = ", ".join(f"{count} {name}" for name, count in nemesis.done.items())
    history = desk.history
    say(f"{deeds}; {len(history.sent)} sent, {history.acknowledged} acknowledged")
    whole = sum(len(s.messages) > 1 and s.fate is Fate.ACKED for s in history.sent)
    say(f"{whole} transactions, {len(history.seen)} reads, {len(history.delivered)} deliveries")
    edits = sum(sum(one.states[0].values()) for one in history.edited.values())
    say(f"{edits} changes of a document")
    for what, count in sorted(desk.errors.items(), key=lambda one: -one[1])[:8]:
        say(f"{count:6} times {what}")


def _damage(trio: Trio) -> list[Problem]:
    return [line for line in verify_address(trio.url(DATABASE)) if isinstance(line, Problem)]


def _failed(node: Node) -> bool:
    said = node.process.stderr
    return "Traceback" in said or "never retrieved" in said
