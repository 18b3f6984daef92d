"""Three PostgreSQL servers on this machine: a primary and two replicas, with quorum commit.

A commit is acknowledged when the primary and at least one replica have it. What Patroni or a
managed service does when a primary is lost, `fail_over` does here by hand: it promotes the replica
that has received most, which has everything that was acknowledged. That is safe because it is only
done when the former primary has been killed with all of its processes: nobody has to find out
whether it still lives. A server that was primary comes back as a copy of the new one.

    with Trio() as trio:
        url = trio.create_database("headwater")
        trio.primary.kill()
        trio.fail_over()
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import psycopg

from headwater.service.waiting import shared
from tests.cluster.disks import Disk
from tests.postgres.server import PASSWORD, PostgresServer

PATIENCE_S: Final = 180
NAMES: Final = ("a", "b", "c")
_QUORUM: Final = """
synchronous_commit = on
synchronous_standby_names = 'ANY 1 (*)'
max_connections = 100
wal_keep_size = '64MB'
max_wal_size = '64MB'
wal_receiver_timeout = '3s'
wal_sender_timeout = '3s'
wal_retrieve_retry_interval = '200ms'
restart_after_crash = off
"""


_T = TypeVar("_T", bound="Trio")


class Member(PostgresServer):
    """One of the three. All but the first begin as a copy of another one."""

    disk: Disk | None = None

    def __init__(
        self, source: Member | None = None, more: str = "", *, has_disk: bool = False
    ) -> None:
        self._has_disk = has_disk
        if source is None:
            super().__init__(more=_QUORUM + more)
            return
        self._place(source._binaries)
        try:
            self.copy(source)
        except BaseException:
            self.close()
            raise

    def _place(self, binaries: Path | None = None) -> None:
        super()._place(binaries)
        if self._has_disk:
            self.disk = Disk(self._directory / "disk", self._owner)
            self._data = self.disk.place / "data"

    def reap(self) -> None:
        """See that nothing of it is left."""
        if self._process is not None:
            self.kill()

    def close(self) -> None:
        if self.disk is not None:
            self.reap()
            self.disk.close()
        super().close()

    def copy(self, source: Member) -> None:
        shutil.rmtree(self._data, ignore_errors=True)
        backup = ["pg_basebackup", "-d", f"{source.dsn}?application_name={self.port}"]
        self._run([*backup, "-D", str(self._data), "-X", "stream", "-c", "fast", "--no-sync"])
        (self._data / "standby.signal").touch()
        self.configure("")


class Trio:
    """A primary and two replicas, wherever they are at the moment; at will, on disks that can be
    full."""

    def __init__(self, more: str = "", *, has_disks: bool = False) -> None:
        self._stack = ExitStack()
        self._is_over = False
        self._stand_ins: dict[tuple[int, int], int] = {}
        self._to_copy: set[Member] = set()
        """Those that may have what the primary has not."""
        with self._stack:
            self._start(more, has_disks)
            # Only if something failed is it all ended here.
            self._stack = self._stack.pop_all()

    def _start(self, more: str, has_disks: bool) -> None:
        first = Member(more=more, has_disk=has_disks)
        self.servers = [first]
        self._stack.callback(first.close)
        self.primary = first
        # Commits wait for replicas, and there are none yet.
        first.configure("synchronous_standby_names = ''")
        first.start()
        for _ in NAMES[1:]:
            replica = Member(first, has_disk=has_disks)
            self.servers.append(replica)
            self._stack.callback(replica.close)
        for server in self.servers[1:]:
            self._follow(server)
            server.start()
        with first.connect() as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
            connection.execute("SELECT pg_reload_conf()")
        self.wait_for_replicas(2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        # The primary first: a replica that goes makes it wait.
        self._stack.close()

    @classmethod
    @asynccontextmanager
    async def running(cls, *, has_disks: bool = False) -> AsyncIterator[Self]:
        """The same on an event loop; nothing is left behind, whenever it is cancelled."""
        async with cls._started(partial(cls, has_disks=has_disks)) as trio:
            yield trio

    @staticmethod
    @asynccontextmanager
    async def _started(start: Callable[[], _T]) -> AsyncIterator[_T]:
        starting = asyncio.ensure_future(asyncio.to_thread(start))
        try:
            yield await shared(starting)
        finally:
            await asyncio.wait([starting])
            if starting.exception() is None:
                await asyncio.to_thread(starting.result().close)

    async def do(self, work: Callable[..., Any], *arguments: object) -> Any:
        """Do something in a thread, to its end: if it were cancelled half-way, what it starts would
        be left behind. Only what it waits for is given up."""
        doing = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
        try:
            return await shared(doing)
        except asyncio.CancelledError:
            self._is_over = True
            await asyncio.wait([doing])
            raise

    # ── Addresses ────────────────────────────────────────────────────────────────────────────

    def name_of(self, server: Member) -> str:
        return NAMES[self.servers.index(server)]

    @property
    def replicas(self) -> list[Member]:
        return [server for server in self.servers if server is not self.primary]

    def url(self, database: str, ports: dict[int, int] | None = None) -> str:
        """All hosts, of which the one that takes writes is used; `ports` are stand-ins."""
        through = ports or {}
        hosts = ",".join(f"127.0.0.1:{through.get(s.port, s.port)}" for s in self.servers)
        return f"postgresql://postgres:{PASSWORD}@{hosts}/{database}"

    def create_database(self, name: str) -> str:
        with self.primary.connect() as connection:
            create = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"
            connection.execute(create.encode())
        return self.url(name)

    # ── What happens to them ─────────────────────────────────────────────────────────────────

    def _follow(self, server: Member) -> None:
        """Let a server follow whoever is primary."""
        hosts = ",".join(["127.0.0.1"] * len(self.servers))
        through = [self._stand_ins.get((server.port, one.port), one.port) for one in self.servers]
        ports = ",".join(map(str, through))
        server.configure(
            f"primary_conninfo = 'host={hosts} port={ports} user=postgres password={PASSWORD}"
            f" target_session_attrs=read-write connect_timeout=3"
            f" application_name={self.name_of(server)}'\n"
            "synchronous_standby_names = 'ANY 1 (*)'"
        )

    def replicate_through(self, ports: dict[tuple[int, int], int]) -> None:
        """Let each server reach each other one by a stand-in: by their ports, the stand-in's."""
        self._stand_ins = ports
        for replica in self.replicas:
            self._follow(replica)
            with replica.connect() as connection:
                connection.execute("SELECT pg_reload_conf()")
        self.wait_for_replicas(len(self.replicas))

    def fail_over(self) -> Member:
        """Promote the replica that has received most. The primary must have been killed.

        What was acknowledged may be on one replica only, so those that are down are started first;
        not those that are behind since before, and are to be copied."""
        assert not self.primary.is_running, "two primaries would each accept writes"
        candidates = [server for server in self.replicas if server not in self._to_copy]
        for server in candidates:
            if not server.is_running:
                server.reap()
                server.start()
        found = max(candidates, key=_received)
        with found.connect() as connection:
            connection.execute("SELECT pg_promote(true, 30) WHERE pg_is_in_recovery()")
        self._to_copy.add(self.primary)
        self.primary = found
        return found

    def bring_back(self, server: Member) -> None:
        """Start a server that was killed; as a replica, unless it is still the primary."""
        if server in self._to_copy:
            server.copy(self.primary)
            self._follow(server)
        server.reap()
        server.start()
        self._to_copy.discard(server)

    def wait_for_replicas(self, count: int) -> None:
        def followed() -> bool:
            self._go_on()
            with self.primary.connect() as connection:
                sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
                return bool(connection.execute(sql).fetchall()[0][0] >= count)

        until(followed, f"{count} replicas follow")

    def _go_on(self) -> None:
        assert not self._is_over, "nobody waits any more"


def _received(server: Member) -> int:
    with server.connect() as connection:
        # What it has received counts from the beginning of a segment whenever it connects again.
        last = "greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())"
        sql = (
            f"SELECT pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN {last} ELSE 'F/0' END,"
            " '0/0')::bigint"
        )
        return int(connection.execute(sql.encode()).fetchall()[0][0] or 0)


def until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            if condition():
                return
        except psycopg.OperationalError:
            pass
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.05)
