"""Three nodes on three PostgreSQL, disturbed for a while; and whether a promise was broken."""

from __future__ import annotations

import asyncio
from itertools import permutations
from random import Random

from headwater.store.engine import Problem
from headwater.store.postgresql.inspection import verify_address
from tests.cluster.crew import Desk, conclude, crew
from tests.cluster.disks import can_have_disks
from tests.cluster.editors import Editors
from tests.cluster.history import Fate, History, check
from tests.cluster.nemesis import DATABASE, LEASE_MS, Nemesis, Node, Say
from tests.cluster.proxy import Proxy
from tests.cluster.trio import Trio


async def ordeal(seed: int, seconds: float, say: Say) -> tuple[History, list[str]]:
    """Disturb a cluster for a while; what was recorded, and which promises were broken."""
    async with Trio.running(has_disks=can_have_disks()) as trio:
        return await _ordeal(trio, Random(seed), seconds, say)


async def _ordeal(trio: Trio, rng: Random, seconds: float, say: Say) -> tuple[History, list[str]]:
    nodes: list[Node] = []
    replication: dict[tuple[int, int], Proxy] = {}
    try:
        await trio.do(trio.create_database, DATABASE)
        for one, other in permutations(trio.servers, 2):
            replication[one.port, other.port] = Proxy(other.port)
            await replication[one.port, other.port].start()
        ports = {pair: proxy.port for pair, proxy in replication.items()}
        await trio.do(trio.replicate_through, ports)
        nodes = [Node(str(number), trio) for number in (1, 2, 3)]
        for node in nodes:
            for proxy in node.proxies:
                await proxy.start()
        for node in nodes:
            await node.start()
        history = await _disturbed(trio, nodes, replication, rng, seconds, say)
        broken = check(history)
        broken += [f"{p.where}: {p.what}" for p in await asyncio.to_thread(_damage, trio)]
        broken += [f"node {n.name} had an unexpected error" for n in nodes if _failed(n)]
        if broken:
            for node in nodes:
                say(f"--- node {node.name} ---\n{node.process.stderr[-6_000:]}")
        return history, broken
    finally:
        for node in nodes:
            await node.stop()
        for proxy in replication.values():
            await proxy.stop()


async def _disturbed(
    trio: Trio,
    nodes: list[Node],
    replication: dict[tuple[int, int], Proxy],
    rng: Random,
    seconds: float,
    say: Say,
) -> History:
    desk = Desk([node.process.port for node in nodes], rng)
    editors = Editors(desk)
    await desk.prepare()
    await editors.prepare()
    nemesis = Nemesis(trio, nodes, replication, rng, say)
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
    deeds = ", ".join(f"{count} {name}" for name, count in nemesis.done.items())
    history = desk.history
    say(f"{deeds}; {len(history.sent)} sent, {history.acknowledged} acknowledged")
    whole = sum(len(s.messages) > 1 and s.fate is Fate.ACKED for s in history.sent)
    say(f"{whole} transactions, {len(history.seen)} reads, {len(history.delivered)} deliveries")
    edits = sum(sum(one.states[0].values()) for one in history.edited.values())
    say(f"{edits} changes of a document")
    for what, count in sorted(desk.errors.items(), key=lambda one: -one[1])[:8]:
        say(f"{count:6} times {what}")
    return history


def _damage(trio: Trio) -> list[Problem]:
    return [line for line in verify_address(trio.url(DATABASE)) if isinstance(line, Problem)]


def _failed(node: Node) -> bool:
    said = node.process.stderr
    return "Traceback" in said or "never retrieved" in said
