"""Three nodes on three PostgreSQL, and someone who kills, pauses and cuts off each of them.

Between a node and PostgreSQL, in front of each node where its peers reach it, and between any two
PostgreSQL stands a proxy that can go silent in one direction or both: for everybody, or for one
peer. Clients reach the nodes directly.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine
from itertools import permutations
from random import Random
from typing import Any, Final

import psycopg

from headwater.store.engine import Problem
from headwater.store.postgresql.inspection import verify_address
from tests.cluster.crew import Desk, conclude, crew
from tests.cluster.history import Fate, History, check
from tests.cluster.proxy import BOTH, FROM_TARGET, TO_TARGET, Proxy
from tests.cluster.trio import Trio
from tests.support.server import ServerFailedError, ServerProcess

LEASE_MS: Final = 1_500
LONG_POLL_MS: Final = 15_000
HEALTHY_S: Final = 90
DATABASE: Final = "headwater"
_CUTS: Final = {
    "both ways": BOTH,
    "towards it": frozenset((TO_TARGET,)),
    "from it": frozenset((FROM_TARGET,)),
}

# A disk that is full for the log of PostgreSQL ends the server, which is what `kill_primary` does.
_FULL: Final = """
CREATE FUNCTION headwater.no_room() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER no_room BEFORE INSERT ON headwater.ops
  FOR EACH STATEMENT EXECUTE FUNCTION headwater.no_room();
"""
_ROOM: Final = "DROP FUNCTION headwater.no_room() CASCADE"

Say = Callable[[str], None]


class Node:
    """One node, with the proxies between it and the rest of the world."""

    def __init__(self, name: str, trio: Trio) -> None:
        self.name = name
        self.databases = [Proxy(server.port) for server in trio.servers]
        ports = {proxy.target: proxy.port for proxy in self.databases}
        self.process = ServerProcess()
        self.peers = Proxy(self.process.port)
        self.process.args = (
            *("--engine", trio.url(DATABASE, ports), "--engine-lease-ms", str(LEASE_MS)),
            *("--advertise", f"http://127.0.0.1:{self.peers.port}"),
            *("--log-level", "warning", "--long-poll-timeout-ms", str(LONG_POLL_MS)),
        )
        self.is_paused = False

    @property
    def proxies(self) -> list[Proxy]:
        return [*self.databases, self.peers]

    async def start(self) -> None:
        """Start it, again and again until it runs, as a supervisor would."""
        deadline = time.monotonic() + HEALTHY_S
        while not self.process.is_running:
            self.reap()
            try:
                await asyncio.to_thread(self.process.start)
            except ServerFailedError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.3)

    def reap(self) -> None:
        if self.process._process is not None:
            self.process.kill()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            os.kill(self.process.pid, signal.SIGCONT)


class Nemesis:
    """Does one bad thing after the other, as a seed has it."""

    def __init__(
        self,
        trio: Trio,
        nodes: list[Node],
        replication: dict[tuple[int, int], Proxy],
        rng: Random,
        say: Say,
    ) -> None:
        self._trio = trio
        self._replication = replication
        self._nodes = nodes
        self._rng = rng
        self._say = say
        self.done: dict[str, int] = {}

    async def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        deeds: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self.kill_node,
            self.pause_node,
            self.cut_from_postgresql,
            self.cut_from_peers,
            self.cut_from_one_peer,
            self.cut_replication,
            self.reset_connections,
            self.kill_primary,
            self.kill_replica,
            self.fill_disk,
        ]
        order: list[Callable[[], Coroutine[Any, Any, None]]] = []
        while time.monotonic() < deadline:
            # Each of them once, in any order, before any of them again.
            order = order or self._rng.sample(deeds, len(deeds))
            deed = order.pop()
            await deed()
            self.done[deed.__name__] = self.done.get(deed.__name__, 0) + 1
            await asyncio.sleep(self._rng.uniform(0.5, 2.5))
            for node in self._nodes:
                await node.start()

    def _node(self) -> Node:
        return self._rng.choice(self._nodes)

    async def kill_node(self) -> None:
        node = self._node()
        self._say(f"node {node.name}: killed")
        node.process.kill()
        await asyncio.sleep(self._rng.uniform(0.1, 2 * LEASE_MS / 1000))
        await node.start()

    async def pause_node(self) -> None:
        node = self._node()
        seconds = LEASE_MS / 1000 * self._rng.uniform(0.5, 3)
        self._say(f"node {node.name}: paused for {seconds:.1f} s")
        node.pause()
        await asyncio.sleep(seconds)
        node.resume()

    async def cut_from_postgresql(self) -> None:
        node = self._node()
        await self._cut(f"node {node.name} and PostgreSQL", node.databases)

    async def cut_from_peers(self) -> None:
        node = self._node()
        await self._cut(f"node {node.name} and its peers", [node.peers])

    async def cut_from_one_peer(self) -> None:
        node, peer = self._rng.sample(self._nodes, 2)
        victim = peer.process.pid
        await self._cut(f"node {node.name} and its peer {peer.name}", [node.peers], victim)

    async def cut_replication(self) -> None:
        """Of one replica: the other one has what is acknowledged. Of both: nothing is."""
        replicas = self._rng.sample(self._trio.replicas, self._rng.choice((1, 2)))
        primary = self._trio.primary
        names = " and ".join(self._trio.name_of(one) for one in replicas)
        what = f"PostgreSQL {names} and the primary, {self._trio.name_of(primary)}"
        await self._cut(what, [self._replication[one.port, primary.port] for one in replicas])

    async def _cut(self, what: str, proxies: list[Proxy], victim: int | None = None) -> None:
        how = self._rng.choice(list(_CUTS))
        seconds = LEASE_MS / 1000 * self._rng.uniform(0.3, 3)
        self._say(f"{what}: cut {how} for {seconds:.1f} s")
        for proxy in proxies:
            proxy.cut(_CUTS[how], victim)
        await asyncio.sleep(seconds)
        for proxy in proxies:
            if self._rng.random() < 0.5:
                proxy.reset()
            proxy.heal()

    async def reset_connections(self) -> None:
        node = self._node()
        self._say(f"node {node.name}: all its connections to PostgreSQL and peers end")
        for proxy in node.proxies:
            proxy.reset()

    async def kill_primary(self) -> None:
        lost = self._trio.primary
        self._say(f"PostgreSQL {self._trio.name_of(lost)}, the primary: killed")
        await asyncio.to_thread(lost.kill)
        await asyncio.sleep(self._rng.uniform(0, 1))
        found = await asyncio.to_thread(self._trio.fail_over)
        self._say(f"PostgreSQL {self._trio.name_of(found)}: promoted")
        await asyncio.sleep(self._rng.uniform(0, 1))
        await asyncio.to_thread(self._trio.bring_back, lost)
        await asyncio.to_thread(self._trio.wait_for_replicas, 2)

    async def kill_replica(self) -> None:
        lost = self._rng.choice(self._trio.replicas)
        self._say(f"PostgreSQL {self._trio.name_of(lost)}, a replica: killed")
        await asyncio.to_thread(lost.kill)
        await asyncio.sleep(self._rng.uniform(0.1, 1.5))
        await asyncio.to_thread(self._trio.bring_back, lost)
        await asyncio.to_thread(self._trio.wait_for_replicas, 2)

    async def fill_disk(self) -> None:
        """PostgreSQL refuses whatever grows, as it does when a table cannot be extended."""
        seconds = self._rng.uniform(0.5, 2)
        self._say(f"PostgreSQL's disk: full for {seconds:.1f} s")
        await asyncio.to_thread(_execute, self._trio, _FULL)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(_execute, self._trio, _ROOM)


def _execute(trio: Trio, sql: str) -> None:
    with psycopg.connect(
        trio.url(DATABASE), target_session_attrs="read-write", autocommit=True
    ) as connection:
        connection.execute(sql.encode())


async def ordeal(seed: int, seconds: float, say: Say) -> tuple[History, list[str]]:
    """Disturb a cluster for a while; what was recorded, and which promises were broken."""
    rng = Random(seed)
    trio = await asyncio.to_thread(Trio)
    nodes: list[Node] = []
    replication: dict[tuple[int, int], Proxy] = {}
    try:
        await asyncio.to_thread(trio.create_database, DATABASE)
        for one, other in permutations(trio.servers, 2):
            replication[one.port, other.port] = Proxy(other.port)
            await replication[one.port, other.port].start()
        ports = {pair: proxy.port for pair, proxy in replication.items()}
        await asyncio.to_thread(trio.replicate_through, ports)
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
            node.resume()
            node.reap()
            for proxy in node.proxies:
                await proxy.stop()
        for proxy in replication.values():
            await proxy.stop()
        await asyncio.to_thread(trio.close)


async def _disturbed(
    trio: Trio,
    nodes: list[Node],
    replication: dict[tuple[int, int], Proxy],
    rng: Random,
    seconds: float,
    say: Say,
) -> History:
    desk = Desk([node.process.port for node in nodes], rng)
    await desk.prepare()
    nemesis = Nemesis(trio, nodes, replication, rng, say)
    async with asyncio.TaskGroup() as tasks:
        for client in crew(desk):
            tasks.create_task(client.run())
        await nemesis.run(seconds)
        for node in nodes:
            await node.start()
        await asyncio.sleep(2 * LEASE_MS / 1000)
        desk.is_over = True
    await conclude(desk)
    deeds = ", ".join(f"{count} {name}" for name, count in nemesis.done.items())
    history = desk.history
    say(f"{deeds}; {len(history.sent)} sent, {history.acknowledged} acknowledged")
    whole = sum(len(s.messages) > 1 and s.fate is Fate.ACKED for s in history.sent)
    say(f"{whole} transactions, {len(history.seen)} reads, {len(history.delivered)} deliveries")
    for what, count in sorted(desk.errors.items(), key=lambda one: -one[1])[:8]:
        say(f"{count:6} times {what}")
    return history


def _damage(trio: Trio) -> list[Problem]:
    return [line for line in verify_address(trio.url(DATABASE)) if isinstance(line, Problem)]


def _failed(node: Node) -> bool:
    return "Traceback" in node.process.stderr


def lag_of(trio: Trio) -> list[tuple[str, int]]:
    """How many bytes each replica is behind."""
    sql = (
        "SELECT application_name, pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint"
        " FROM pg_stat_replication ORDER BY 1"
    )
    try:
        with trio.primary.connect() as connection:
            return [(str(name), int(lag or 0)) for name, lag in connection.execute(sql).fetchall()]
    except psycopg.Error:
        return []
