"""A server under every attack at once, with a well-behaved client beside it.

The server has access control and limits of a small machine. The attackers run in a process of
their own at low priority, as if they were somewhere else: what they compute is not at stake.

How long the client waits is at stake, so the machine must not decide it. The kernel counts how long
the loop's thread was ready to run and had to wait for a core (`schedstat`). On a machine that does
nothing else that is next to nothing. Where other programs use the cores, `Outcome.slowdown` says by
how much longer the same work took, and bounds on time grow by it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.core.access.grants import GrantsText
from headwater.core.access.keys import KeyBook, KeyRecord, digest_of, format_key
from headwater.store.key_file import change_keys
from tests.attack.bystander import Bystander, percentile
from tests.crash.wire import Wire
from tests.support.server import ServerProcess

MIB: Final = 1024 * 1024
LIMITS: Final = {
    "body-bytes-max": 32 * MIB,
    "bodies-bytes-max": 96 * MIB,
    "queue-bytes-max": 64 * MIB,
    "buffers-bytes-max": 64 * MIB,
    "hot-bytes-max": 32 * MIB,
}
_BESIDES_MIB: Final = 400
# Two answers of `_bulk` are made at a time. With tiny messages each takes about 80 MiB meanwhile.
_BULK_MIB: Final = 160
_LIMITS_MIB: Final = (sum(LIMITS.values()) - LIMITS["body-bytes-max"]) // MIB
MEMORY_MIB_MAX: Final = _LIMITS_MIB + _BESIDES_MIB + _BULK_MIB
_SAMPLE_S: Final = 0.1
_REST_S: Final = 3.0


@dataclass
class Outcome:
    client: Bystander
    attacks: dict[str, Counter[str]]
    memory_mib: float
    """The most that the server held."""
    slowdown: float
    """How much longer the loop took because others had the cores."""
    missing: dict[str, list[int]]
    missing_after_kill: dict[str, list[int]]
    problems: str
    """What `/readyz` and the count of failed tasks say at the end; empty if all is well."""
    log: str

    def report(self) -> str:
        client = self.client
        lines = [
            f"{name:12} {len(times):6}  p50 {percentile(times, 0.5) * 1000:6.1f} ms"
            f"  p99 {percentile(times, 0.99) * 1000:6.1f} ms  max {max(times) * 1000:6.1f} ms"
            for name, times in (
                ("appends", client.appends),
                ("deliveries", client.deliveries),
                ("probes", client.probes),
            )
        ]
        lines.append(f"memory {self.memory_mib:.0f} MiB of {MEMORY_MIB_MAX} allowed")
        lines.append(f"slowdown by others {self.slowdown:.2f}")
        lines += [f"{name}: {dict(counts)}" for name, counts in self.attacks.items()]
        lines.append(f"refused: {dict(client.refused)}")
        return "\n".join(lines)


def grant(keys: Path, number: int, prefix: str) -> str:
    """A new key that is good for everything below a prefix."""
    key_id, key = format_key(number.to_bytes(6), number.to_bytes(32))
    record = KeyRecord(key_id, digest_of(key), 0, GrantsText(admin=[f"{prefix}/**"]))
    change_keys(keys, lambda book: KeyBook([*book.keys, record]))
    return key


async def besiege(directory: Path, seconds: float) -> Outcome:
    keys = directory / "keys.json"
    good, rogue = grant(keys, 1, "good"), grant(keys, 2, "rogue")
    limits = [word for name, size in LIMITS.items() for word in (f"--{name}", str(size))]
    with ServerProcess(
        *("--data", str(directory / "data"), "--access", "on", "--keys-file", str(keys)),
        *("--log-level", "warning", *limits),
    ) as server:
        client = Bystander(server.port, good)
        await client.create()
        before = _loop_times(server.pid)
        attackers = _start_attackers(server.port, rogue, seconds)
        try:
            memory = asyncio.create_task(_watch_memory(server.pid))
            await client.run(seconds + _REST_S)
            attacks = await asyncio.to_thread(attackers.communicate, timeout=60)
        finally:
            attackers.kill()
            attackers.wait()
        memory.cancel()
        after = _loop_times(server.pid)
        running, waiting = (later - sooner for later, sooner in zip(after, before, strict=True))
        peak = (await asyncio.gather(memory))[0]
        problems = await _problems(server.port)
        missing = await client.missing()
        server.kill()
        server.start()
        return Outcome(
            client,
            {name: Counter(counts) for name, counts in json.loads(attacks[0]).items()},
            peak / MIB,
            (running + waiting) / running if running else 1.0,
            missing,
            await client.missing(),
            problems,
            server.stderr,
        )


def _start_attackers(port: int, token: str, seconds: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.attack.attackers", str(port), token, str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


async def _watch_memory(pid: int) -> int:
    most = 0
    try:
        while True:
            most = max(most, _resident_bytes(pid))
            await asyncio.sleep(_SAMPLE_S)
    except asyncio.CancelledError:
        return most


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _loop_times(pid: int) -> tuple[int, int]:
    """Nanoseconds that the loop's thread has run, and that it has waited for a core."""
    try:
        fields = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    except OSError:
        return 0, 0
    return int(fields[0]), int(fields[1])


async def _problems(port: int) -> str:
    wire = Wire(port)
    ready = await wire.call("GET", "/readyz")
    await wire.close()
    return "" if json.loads(ready.body) == {"status": "ready"} else ready.body.decode()
