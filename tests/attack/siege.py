"""A server under every attack at once, with a well-behaved client beside it.

The server has limits of a small machine. The attackers run in a process of their own at low
priority, as if they were somewhere else: what they compute is not at stake. Halfway through, the
server is killed and started again.

How long the client waits is at stake, so the machine must not decide it. The kernel counts how long
a thread was ready to run and had to wait for a core (`schedstat`). On a machine that does nothing
else that is next to nothing. Where other programs use the cores, `Load.slowdown` says by how much
longer the same work took, of the server's loop or of the client, and bounds on time grow by it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from headwater.core.access.grants import GrantsText
from headwater.core.access.keys import KeyBook, KeyRecord, digest_of, format_key
from headwater.core.limits import Limits
from headwater.store.key_file import change_keys
from tests.attack.bystander import Bystander, percentile
from tests.attack.peer import MIB
from tests.crash.wire import Wire
from tests.support.processes import committers
from tests.support.server import ServerProcess

P99_S_MAX: Final = 0.25
_LIFETIME: Final = "sse-lifetime-ms"
LIMITS: Final = {
    "body-bytes-max": 64 * MIB,
    "bodies-bytes-max": 128 * MIB,
    "queue-bytes-max": 64 * MIB,
    "buffers-bytes-max": 32 * MIB,
    "hot-bytes-max": 16 * MIB,
    "connections-per-address-max": 400,
    "producers-per-stream-max": 2_000,
    "subscriptions-max": 2_500,
    "connections-max": 2_000,
    "streams-in-memory-max": 4_000,
    _LIFETIME: 5_000,
}
# The sum of settings that the documentation promises.
MEMORY_MIB_MAX: Final = (
    Limits(**{name.replace("-", "_"): size for name, size in LIMITS.items() if name != _LIFETIME})
).memory_bytes_max // MIB
_SAMPLE_S: Final = 0.1
_REST_S: Final = 3.0


class Times(NamedTuple):
    """Seconds that a thread has run, and that it was ready and had no core."""

    ran: float = 0.0
    waited: float = 0.0

    @classmethod
    def of(cls, pid: int) -> Times:
        """Of the main thread of a process."""
        try:
            ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
        except OSError:
            return cls()
        return cls(int(ran) / 1e9, int(waited) / 1e9)

    def since(self, before: Times) -> Times:
        return Times(self.ran - before.ran, self.waited - before.waited)

    def plus(self, other: Times) -> Times:
        return Times(self.ran + other.ran, self.waited + other.waited)

    @property
    def slowdown(self) -> float:
        return (self.ran + self.waited) / self.ran if self.ran else 1.0


class Load:
    """What the server's process used, over all of its lives."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.peak_bytes = 0
        self.loop = Times()
        self._began, self._client_began = Times.of(server.pid), Times.of(os.getpid())

    def begin(self) -> None:
        self._began = Times.of(self._server.pid)

    def end(self) -> None:
        """The process is about to end: note what it used."""
        self.loop = self.loop.plus(Times.of(self._server.pid).since(self._began))
        self.client = Times.of(os.getpid()).since(self._client_began)

    @property
    def slowdown(self) -> float:
        """How much longer things took because others had the cores."""
        return max(self.loop.slowdown, self.client.slowdown)

    async def watch_memory(self) -> None:
        while True:
            self._measure()
            await asyncio.sleep(_SAMPLE_S)

    def _measure(self) -> None:
        if self._server.is_running:
            with suppress(OSError):
                processes = [self._server.pid, *committers(self._server.pid)]
                texts = [Path(f"/proc/{pid}/statm").read_text() for pid in processes]
                pages = sum(int(text.split()[1]) for text in texts)
                self.peak_bytes = max(self.peak_bytes, pages * os.sysconf("SC_PAGE_SIZE"))


@dataclass
class Outcome:
    client: Bystander
    load: Load
    access: str
    seconds: float
    patience: float
    """By how much the bound on time is stretched, for machines that are not known."""
    attacks: dict[str, Counter[str]] = field(default_factory=dict)
    restarted_s: float = 0.0
    """How long it took from the kill to the first answer."""
    missing: dict[str, list[int]] = field(default_factory=dict)
    problems: str = ""
    """What `/readyz` says at the end; empty if all is well."""
    log: str = ""

    @property
    def p99_s_max(self) -> float:
        return P99_S_MAX * self.load.slowdown * self.patience

    @property
    def memory_mib(self) -> float:
        return self.load.peak_bytes / MIB

    def broken(self) -> Iterator[str]:
        """What the server promises to everyone else, whatever some do, and did not keep."""
        client, seen = self.client, self.attacks
        for name, counts in seen.items():
            if not counts:
                yield f"{name} did not take place"
            yield from (f"{name}: {answer}" for answer in counts if answer.startswith("500"))
        for kind, times in client.times.items():
            if len(times) < self.seconds:
                yield f"only {len(times)} times for {kind}"
            if percentile(times, 0.99) >= self.p99_s_max:
                yield f"p99 of {kind} is {percentile(times, 0.99) * 1000:.0f} ms"
        if self.memory_mib >= MEMORY_MIB_MAX:
            yield f"memory peaked at {self.memory_mib:.0f} MiB"
        for name, answer in (
            ("send_trailers", "closed by a trailer"),
            ("poison_ordered_groups", "wedged"),
            ("work_longer_than_a_connection", "work taken away"),
        ):
            if seen[name][answer]:
                yield f"{name}: {answer}"
        yield from (f"refused: {reason}" for reason in client.refused)
        yield from (f"{name} lacks {numbers}" for name, numbers in self.missing.items())
        if self.problems:
            yield f"not ready at the end: {self.problems}"
        for word in ("task_failed", "Traceback"):
            if word in self.log:
                yield f"log: {self.log[self.log.index(word) :][:2000]}"

    def report(self) -> str:
        load = self.load
        lines = [
            f"access {self.access}, {self.seconds:.0f} s",
            f"{'':10} {'count':>7} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}",
        ]
        for kind, times in self.client.times.items():
            cuts = (percentile(times, share) * 1000 for share in (0.5, 0.99, 1.0))
            lines.append(f"{kind:10} {len(times):7} " + " ".join(f"{cut:8.1f}" for cut in cuts))
        lines += [
            f"memory     {self.memory_mib:.0f} MiB at most, {MEMORY_MIB_MAX} allowed",
            f"waiting    the server's loop ran {load.loop.ran:.1f} s and waited"
            f" {load.loop.waited:.1f} s for a core, the client {load.client.ran:.1f} s and"
            f" {load.client.waited:.1f} s: slowdown {load.slowdown:.2f}",
            f"bound      p99 under {self.p99_s_max * 1000:.0f} ms",
            f"restart    {self.restarted_s:.1f} s after the kill",
        ]
        lines += [f"{name}: {dict(counts)}" for name, counts in self.attacks.items()]
        broken = list(self.broken())
        return "\n".join([*lines, *(f"BROKEN {line}" for line in broken)])


def grant(keys: Path, number: int, pattern: str) -> str:
    """A new key that is good for everything that matches a pattern."""
    key_id, key = format_key(number.to_bytes(6), number.to_bytes(32))
    record = KeyRecord(key_id, digest_of(key), 0, GrantsText(admin=[pattern]))
    change_keys(keys, lambda book: KeyBook([*book.keys, record]))
    return key


async def besiege(
    directory: Path, seconds: float, access: str = "on", *, patience: float = 1.0
) -> Outcome:
    keys = directory / "keys.json"
    good, rogue, admin = (
        grant(keys, number, pattern) for number, pattern in enumerate(("good/**", "rogue/**", "**"))
    )
    limits = [word for name, size in LIMITS.items() for word in (f"--{name}", str(size))]
    with ServerProcess(
        *("--data", str(directory / "data"), "--access", access, "--keys-file", str(keys)),
        *("--log-level", "warning", *limits),
    ) as server:
        client, load = Bystander(server.port, good), Load(server)
        outcome = Outcome(client, load, access, seconds, patience)
        await client.create()
        attackers = start_attackers(str(server.port), rogue, admin, str(seconds))
        memory = asyncio.create_task(load.watch_memory())
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(client.run(seconds + _REST_S))
                await asyncio.sleep(seconds / 2)
                outcome.restarted_s = await _kill_and_start(server, client, load)
            seen, _ = await asyncio.to_thread(attackers.communicate, timeout=180)
        finally:
            memory.cancel()
            attackers.kill()
            attackers.wait()
        load.end()
        outcome.attacks = {name: Counter(counts) for name, counts in json.loads(seen).items()}
        outcome.problems = await find_problems(server.port)
        server.kill()
        server.start()
        outcome.missing, outcome.log = await client.missing(), server.stderr
        return outcome


def start_attackers(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.attack.attackers", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


async def _kill_and_start(server: ServerProcess, client: Bystander, load: Load) -> float:
    began = time.monotonic()
    client.server_goes()
    load.end()
    server.kill()
    await asyncio.to_thread(server.start)
    load.begin()
    client.server_is_back()
    return time.monotonic() - began


async def find_problems(port: int) -> str:
    wire = Wire(port)
    ready = await wire.call("GET", "/readyz")
    await wire.close()
    return "" if json.loads(ready.body) == {"status": "ready"} else ready.body.decode()
