"""`make cluster`: break it yourself, and see what happens.

Three PostgreSQL with quorum commit, three nodes and a small load run on this machine. The screen
shows them, and the commands that kill or pause each of them, to paste into another terminal. What
was killed is started again after a few seconds, as a supervisor would, and a primary that was
killed is replaced by a replica, as Patroni would. Ctrl-C ends everything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import psycopg
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tests.cluster import load
from tests.cluster.ending import until_told
from tests.cluster.nemesis import lag_of, start
from tests.cluster.trio import Member, Trio
from tests.crash.wire import Lost, Wire
from tests.support.server import ServerFailedError, ServerProcess

LEASE_MS: Final = 3_000
WRITERS: Final = 6
_NODES: Final = ("1", "2", "3")
_BACK_AFTER_S: Final = 5.0
_LINES: Final = 8
_REFRESH_S: Final = 0.5


class Demo:
    def __init__(self, trio: Trio, tally: load.Tally) -> None:
        self.trio = trio
        url = trio.create_database("headwater")
        self.nodes = {name: _node(url) for name in _NODES}
        self.tally = tally
        self.lines: list[str] = []
        self.rate = 0
        self.shards: dict[str, int] = {}
        self.lags: dict[str, int] = {}
        self.is_over = False
        self._began = time.monotonic()
        self._families: dict[Member, list[int]] = {}
        self._running: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._returning: set[object] = set()
        self._turn = asyncio.Lock()

    def say(self, line: str) -> None:
        self.lines.append(f"{time.monotonic() - self._began:6.1f} s  {line}")

    async def __aenter__(self) -> Self:
        return self

    def go(self) -> list[asyncio.Future[None]]:
        """Let them write and see who is gone, until it is over."""
        ports = [node.port for node in self.nodes.values()]
        writing = load.run(ports, self.tally, WRITERS, lambda: self.is_over)
        self._running = [
            asyncio.ensure_future(work) for work in (self.watch(), self.look(), writing)
        ]
        return self._running

    async def __aexit__(self, *_: object) -> None:
        """End the nodes, paused ones too."""
        self.is_over = True
        for task in (*self._running, *self._tasks):
            task.cancel()
        await asyncio.gather(*self._running, *self._tasks, return_exceptions=True)
        print("ending everything…")
        for node in self.nodes.values():
            if node._process is not None:
                with suppress(ProcessLookupError):
                    os.kill(node.pid, signal.SIGCONT)
                node.kill()

    # ── What a supervisor and Patroni would do ───────────────────────────────────────────────

    async def watch(self) -> None:
        """See who is gone, and have them come back."""
        while not self.is_over:
            for server in self.trio.servers:
                if server.is_running:
                    with suppress(OSError):
                        self._families[server] = server.processes()
                elif server not in self._returning:
                    await self._lost(server)
            for name, node in self.nodes.items():
                if not node.is_running and node not in self._returning:
                    self.say(f"node {name} is gone")
                    self._later(node, self._return_node(name, node))
            await asyncio.sleep(0.1)

    def _later(self, what: object, work: Coroutine[Any, Any, None]) -> None:
        self._returning.add(what)
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._returned(what, done))

    def _returned(self, what: object, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._returning.discard(what)
        if not task.cancelled() and task.exception() is not None:
            self.say(f"could not be started again: {task.exception()}")

    async def _lost(self, server: Member) -> None:
        name = self.trio.name_of(server)
        is_primary = server is self.trio.primary
        self.say(f"PostgreSQL {name}{', the primary,' if is_primary else ''} is gone")
        # Before anybody is promoted, it must be certain that nothing of the primary lives.
        for pid in self._families.get(server, []):
            if _is_postgres(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        async with self._turn:
            await self.trio.do(server.kill)
            if is_primary:
                await self._promote()
        self._later(server, self._return_server(server))

    async def _promote(self) -> None:
        """Again and again: somebody may kill the one that is being promoted."""
        while not self.is_over:
            try:
                found = await self.trio.do(self.trio.fail_over)
            except (psycopg.Error, RuntimeError):
                await asyncio.sleep(_REFRESH_S)
            else:
                self.say(f"PostgreSQL {self.trio.name_of(found)} was promoted")
                return

    async def _return_server(self, server: Member) -> None:
        await asyncio.sleep(_BACK_AFTER_S)
        while not server.is_running and not self.is_over:
            # Whom it is copied from may be killed meanwhile.
            with suppress(psycopg.Error, RuntimeError, AssertionError):
                async with self._turn:
                    await self.trio.do(self.trio.bring_back, server)
            await asyncio.sleep(_REFRESH_S)
        if not server.is_running:
            return
        again = f"kill -9 {server.pid}"
        self.say(f"PostgreSQL {self.trio.name_of(server)} is back, as a replica ({again})")

    async def _return_node(self, name: str, node: ServerProcess) -> None:
        await asyncio.sleep(_BACK_AFTER_S)
        if node._process is not None:
            node.kill()
        while not node.is_running and not self.is_over:
            with suppress(ServerFailedError):
                await start(node)
        if node.is_running:
            self.say(f"node {name} is back (kill -9 {node.pid})")

    # ── What there is to see ─────────────────────────────────────────────────────────────────

    async def look(self) -> None:
        """Ask the nodes who owns what, and PostgreSQL who follows."""
        before = self.tally.acknowledged
        while not self.is_over:
            await asyncio.sleep(1)
            self.rate, before = self.tally.acknowledged - before, self.tally.acknowledged
            self.lags = dict(await asyncio.to_thread(lag_of, self.trio))
            for node in self.nodes.values():
                found = await _owned(node.port)
                if found is not None:
                    self._compare(found)
                    break

    def _compare(self, found: dict[str, int]) -> None:
        names = {f"http://127.0.0.1:{node.port}": name for name, node in self.nodes.items()}
        shards = {names.get(address, address): count for address, count in found.items()}
        if shards != self.shards and self.shards:
            spread = ", ".join(f"node {name}: {count}" for name, count in sorted(shards.items()))
            self.say(f"shards now: {spread}")
        self.shards = shards

    def screen(self) -> Group:
        return Group(self._parts(), self._figures(), self._commands(), self._log())

    def _parts(self) -> Table:
        table = Table(title="Headwater: three nodes on three PostgreSQL", expand=True)
        for column in ("", "process", "state", ""):
            table.add_column(column)
        for name, node in self.nodes.items():
            owns = f"{self.shards.get(name, 0)} shards" if node.is_running else ""
            table.add_row(f"node {name}", _pid(node), _state(node), f"{owns}  {_page(node)}")
        for server in self.trio.servers:
            name = self.trio.name_of(server)
            role = "primary" if server is self.trio.primary else "replica"
            lag = f"{self.lags[name]:,} bytes to replay" if name in self.lags else ""
            table.add_row(f"PostgreSQL {name}", _pid(server), _state(server), f"{role}  {lag}")
        return table

    def _figures(self) -> Panel:
        tally = self.tally
        style = "bold green" if tally.lost + tally.doubled == 0 else "bold red"
        text = Text.assemble(
            (f"{tally.acknowledged:,} acknowledged", "bold"),
            f"  ({self.rate}/s)   {tally.checked:,} read back   ",
            (f"lost {tally.lost}   stored twice {tally.doubled}", style),
            f"   {tally.retried:,} retries   longest wait {tally.wait_s:.1f} s",
        )
        return Panel(text)

    def commands(self) -> list[str]:
        found = []
        for name, node in self.nodes.items():
            if node.is_running:
                found.append(f"kill -9 {node.pid}    # node {name}")
        running = [node for node in self.nodes.values() if node.is_running]
        if running:
            pid = running[0].pid
            found.append(f"kill -STOP {pid}; sleep 6; kill -CONT {pid}    # longer than its lease")
        for server in self.trio.servers:
            if server.is_running:
                role = "the primary" if server is self.trio.primary else "a replica"
                found.append(
                    f"kill -9 {server.pid}    # PostgreSQL {self.trio.name_of(server)}, {role}"
                )
        return found

    def _commands(self) -> Panel:
        text = Text("\n".join(self.commands()), style="cyan", overflow="fold")
        return Panel(text, title="Paste into another terminal")

    def _log(self) -> Panel:
        return Panel("\n".join(self.lines[-_LINES:]) or "…", title="What happened")


def _node(url: str) -> ServerProcess:
    node = ServerProcess()
    node.args = (
        *("--engine", url, "--engine-lease-ms", str(LEASE_MS)),
        *("--advertise", node.url, "--log-level", "warning"),
    )
    return node


def _page(node: ServerProcess) -> str:
    return f"{node.url}/console/#/cluster"


def _pid(part: ServerProcess | Member) -> str:
    return str(part.pid) if part.is_running else ""


def _state(part: ServerProcess | Member) -> Text:
    if not part.is_running:
        return Text("gone", style="bold red")
    status = Path(f"/proc/{part.pid}/stat")
    with suppress(OSError):
        if status.read_text().rpartition(")")[2].split()[0] == "T":
            return Text("paused", style="bold yellow")
    return Text("running", style="green")


def _is_postgres(pid: int) -> bool:
    with suppress(OSError):
        return b"postgres" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


async def _owned(port: int) -> dict[str, int] | None:
    """How many shards each node owns, by its address, as one of them sees it."""
    wire = Wire(port)
    try:
        async with asyncio.timeout(1):
            reply = await wire.call("GET", "/v1/cluster")
    except (Lost, TimeoutError):
        return None
    finally:
        await wire.close()
    if reply.status != 200:
        return None
    return {str(node["address"]): int(node["shards"]) for node in json.loads(reply.body)["nodes"]}


async def run(seconds: float, tally: load.Tally) -> None:
    console = Console()
    console.print("starting three PostgreSQL and three nodes…")
    async with Trio.running() as trio, Demo(trio, tally) as demo:
        for node in demo.nodes.values():
            await start(node)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds or None):
                await _show(demo, console, demo.go())


async def _show(demo: Demo, console: Console, tasks: list[asyncio.Future[None]]) -> None:
    """A screen that changes, or lines where there is no screen."""
    shown = console.is_terminal
    said = 0
    with Live(console=console, auto_refresh=False, screen=shown) as live:
        if not shown:
            pages = [f"watch in a browser: {_page(node)}" for node in demo.nodes.values()]
            console.print("\n".join([*pages, *demo.commands()]), highlight=False, soft_wrap=True)
        while True:
            for task in (await asyncio.wait(tasks, timeout=_REFRESH_S))[0]:
                task.result()
            if shown:
                live.update(demo.screen(), refresh=True)
            else:
                for line in demo.lines[said:]:
                    console.print(line, highlight=False, soft_wrap=True)
                said = len(demo.lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster")
    parser.add_argument("--seconds", type=float, default=0, help="end by itself after so long")
    tally = load.Tally()
    with suppress(asyncio.CancelledError):
        asyncio.run(until_told(run(parser.parse_args().seconds, tally)))
    print(
        f"{tally.acknowledged:,} acknowledged, {tally.checked:,} read back, lost {tally.lost}, "
        f"stored twice {tally.doubled}, {tally.retried:,} retries, "
        f"longest wait {tally.wait_s:.1f} s"
    )
    return 1 if tally.lost or tally.doubled else 0


if __name__ == "__main__":
    sys.exit(main())
