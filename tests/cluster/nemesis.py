"""Someone who kills, pauses, cuts off and misleads three nodes on three PostgreSQL.

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
from random import Random
from typing import Any, Final

import psycopg

from headwater.service.waiting import shared
from tests.cluster.proxy import BOTH, FROM_TARGET, TO_TARGET, Proxy, Victims
from tests.cluster.trio import Member, Trio
from tests.crash.faults import Clock
from tests.support.server import ServerFailedError, ServerProcess

LEASE_MS: Final = 1_500
LONG_POLL_MS: Final = 15_000
COMPACT_BYTES: Final = 4_000
HEALTHY_S: Final = 300
DATABASE: Final = "headwater"
_CUTS: Final = {
    "both ways": BOTH,
    "towards it": frozenset((TO_TARGET,)),
    "from it": frozenset((FROM_TARGET,)),
}

# Where no disk can be had that is really full.
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
Deed = Callable[[], Coroutine[Any, Any, None]]


class Node:
    """One node, with the proxies between it and the rest of the world."""

    def __init__(self, name: str, trio: Trio) -> None:
        self.name = name
        self.databases = [Proxy(server.port) for server in trio.servers]
        ports = {proxy.target: proxy.port for proxy in self.databases}
        self.process = ServerProcess(start_timeout_s=HEALTHY_S)
        self.peers = Proxy(self.process.port)
        self.process.args = (
            *("--engine", trio.url(DATABASE, ports), "--engine-lease-ms", str(LEASE_MS)),
            *("--advertise", f"http://127.0.0.1:{self.peers.port}"),
            *("--log-level", "warning", "--long-poll-timeout-ms", str(LONG_POLL_MS)),
            *("--documents", "--documents-compact-bytes", str(COMPACT_BYTES)),
        )
        self.clock = Clock()
        self.process.env = self.clock.environment
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
                await start(self.process)
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

    async def stop(self) -> None:
        self.resume()
        self.reap()
        for proxy in self.proxies:
            await proxy.stop()
        self.clock.close()


async def start(process: ServerProcess) -> None:
    """Start a node in a thread; if that is cancelled, it is not left behind."""
    starting = asyncio.ensure_future(asyncio.to_thread(process.start))
    try:
        await shared(starting)
    except asyncio.CancelledError:
        while not starting.done():
            if process._process is not None:
                process._process.kill()
            await asyncio.wait([starting], timeout=0.1)
        raise


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
        order: list[Deed] = []
        while time.monotonic() < deadline:
            # Each of them once, in any order, before any of them again.
            order = order or self._rng.sample(self.deeds, len(self.deeds))
            deed = order.pop()
            await deed()
            self.done[deed.__name__] = self.done.get(deed.__name__, 0) + 1
            await asyncio.sleep(self._rng.uniform(0.5, 2.5))
            for node in self._nodes:
                await node.start()

    @property
    def deeds(self) -> list[Deed]:
        return [
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
            self.set_clock,
        ]

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
        pids = [peer.process.pid]
        await self._cut(
            f"node {node.name} and its peer {peer.name}", [node.peers], victims=lambda: pids
        )

    async def cut_replication(self) -> None:
        """Of one replica: the other one has what is acknowledged. Of both: nothing is."""
        replicas = self._rng.sample(self._trio.replicas, self._rng.choice((1, 2)))
        primary = self._trio.primary
        names = " and ".join(self._trio.name_of(one) for one in replicas)
        what = f"PostgreSQL {names} and the primary, {self._trio.name_of(primary)}"
        await self._cut(what, [self._replication[one.port, primary.port] for one in replicas])

    async def _cut(
        self,
        what: str,
        proxies: list[Proxy],
        *,
        victims: Victims | None = None,
        longest_s: float = 3 * LEASE_MS / 1000,
    ) -> None:
        how = self._rng.choice(list(_CUTS))
        seconds = longest_s * self._rng.uniform(0.1, 1)
        self._say(f"{what}: cut {how} for {seconds:.1f} s")
        for proxy in proxies:
            proxy.cut(_CUTS[how], victims)
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
        self._say(f"{self._called(lost)}: killed")
        await self._trio.do(lost.kill)
        await asyncio.sleep(self._rng.uniform(0, 1))
        await self._promote()
        await asyncio.sleep(self._rng.uniform(0, 1))
        await self._trio.do(self._trio.bring_back, lost)
        await self._trio.do(self._trio.wait_for_replicas, 2)

    async def _promote(self) -> None:
        found = await self._trio.do(self._trio.fail_over)
        self._say(f"PostgreSQL {self._trio.name_of(found)}: promoted")

    async def kill_replica(self) -> None:
        lost = self._rng.choice(self._trio.replicas)
        self._say(f"{self._called(lost)}: killed")
        await self._trio.do(lost.kill)
        await asyncio.sleep(self._rng.uniform(0.1, 1.5))
        await self._trio.do(self._trio.bring_back, lost)
        await self._trio.do(self._trio.wait_for_replicas, 2)

    def _called(self, server: Member) -> str:
        role = "the primary" if server is self._trio.primary else "a replica"
        return f"PostgreSQL {self._trio.name_of(server)}, {role}"

    async def set_clock(self) -> None:
        """The time of day of one node is wrong from now on, by seconds up to a day; or right."""
        node = self._node()
        off_s = self._rng.choice((-1, 0, 1, 1)) * 10 ** self._rng.uniform(0, 5)
        self._say(f"node {node.name}: its clock is {off_s:+.0f} s ahead")
        node.clock.set(off_s)

    async def fill_disk(self) -> None:
        server = self._rng.choice((self._trio.primary, *self._trio.replicas))
        seconds = self._rng.uniform(1, 4)
        if server.disk is None:
            await self._refuse_to_grow(seconds)
            return
        self._say(f"{self._called(server)}: disk full for {seconds:.1f} s")
        server.disk.fill()
        await asyncio.sleep(seconds)
        server.disk.make_room()
        if not server.is_running:
            self._say(f"{self._called(server)}: had no room for its log, and ended")
            await self._start_again(server)

    async def _start_again(self, lost: Member) -> None:
        """With its disk as it was, or as a copy of the one that takes its place."""
        await self._trio.do(lost.kill)
        if lost is self._trio.primary and self._rng.random() < 0.5:
            await self._promote()
        await self._trio.do(self._trio.bring_back, lost)
        await self._trio.do(self._trio.wait_for_replicas, 2)

    async def _refuse_to_grow(self, seconds: float) -> None:
        """As PostgreSQL does when a table cannot be extended."""
        self._say(f"PostgreSQL's disk: as if full for {seconds:.1f} s")
        await self._trio.do(_execute, self._trio, _FULL)
        await asyncio.sleep(seconds)
        await self._trio.do(_execute, self._trio, _ROOM)


def _execute(trio: Trio, sql: str) -> None:
    with psycopg.connect(
        trio.url(DATABASE), target_session_attrs="read-write", autocommit=True
    ) as connection:
        connection.execute(sql.encode())


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
