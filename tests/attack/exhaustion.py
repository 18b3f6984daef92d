"""A server whose descriptors are used up by attackers and whose disk is full for a while.

Both at once, and a well-behaved client beside them. It may be told that nothing can be stored, and
its probes may find no connection. Whatever else it asks on connections that it has is answered, and
what was acknowledged stays. When there is room again, everything works again by itself.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.attack.bystander import Bystander
from tests.attack.siege import LIMITS, find_problems, grant, start_attackers
from tests.crash.faults import Disk, Fault
from tests.support.server import ServerProcess

FILES_MAX: Final = 256
_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 0.1
_PROBES: Final = ("/healthz", "/readyz")
_FULL: Final = ("storage_full", "storage_unavailable")


@dataclass
class Endured:
    client: Bystander
    refused_while_full: int = 0
    stored_afterwards: bool = False
    missing: dict[str, list[int]] = field(default_factory=dict)
    problems: str = ""
    log: str = ""

    def broken(self) -> Iterator[str]:
        for reason, times in self.client.refused.items():
            if not reason.startswith(_PROBES) and not any(code in reason for code in _FULL):
                yield f"refused {times} times: {reason}"
            if reason.startswith("GET") and any(code in reason for code in _FULL):
                yield f"reading needs no room: {reason}"
        if not self.refused_while_full:
            yield "the disk was never full"
        if not self.stored_afterwards:
            yield "nothing was stored after there was room again"
        if "connections_refused" not in self.log:
            yield "the log does not say that connections were refused"
        if self.problems:
            yield f"not ready at the end: {self.problems}"
        yield from (f"{name} lacks {numbers}" for name, numbers in self.missing.items())
        if "Traceback" in self.log:
            yield f"log: {self.log[self.log.index('Traceback') :][:2000]}"

    def report(self) -> str:
        counts = Counter({name: len(times) for name, times in self.client.times.items()})
        lines = [f"few descriptors, full disk: {dict(counts)}"]
        lines += [f"{times} times {reason}" for reason, times in self.client.refused.items()]
        return "\n".join([*lines, *(f"BROKEN {line}" for line in self.broken())])


async def exhaust(directory: Path, seconds: float) -> Endured:
    """The disk is full in the second third of the time."""
    keys, disk = directory / "keys.json", Disk(directory / "fault")
    good, rogue, admin = (
        grant(keys, number, pattern) for number, pattern in enumerate(("good/**", "rogue/**", "**"))
    )
    limits = [word for name, size in LIMITS.items() for word in (f"--{name}", str(size))]
    with ServerProcess(
        *("--data", str(directory / "data"), "--access", "on", "--keys-file", str(keys)),
        *("--log-level", "warning", *limits),
        env=disk.environment,
        python=_python_with_few_files(directory),
    ) as server:
        endured = Endured(client := Bystander(server.port, good))
        await client.create()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(client.run(seconds + _PATIENCE_S))
            await _until(lambda: all(client.acknowledged.values()) and client.times["work"])
            attackers = start_attackers(str(server.port), rogue, admin, str(seconds))
            try:
                await asyncio.sleep(seconds / 3)
                disk.fail(Fault.DISK_FULL)
                await asyncio.sleep(seconds / 3)
                disk.recover()
                endured.refused_while_full = _refusals(client)
                before = _stored(client)
                endured.stored_afterwards = await _until(lambda: _stored(client) > before)
                await asyncio.to_thread(attackers.communicate, timeout=seconds + _PATIENCE_S)
            finally:
                attackers.kill()
                attackers.wait()
            client.leave()
            await running
        # What failed at the end of it is tried again after a pause.
        for _ in range(int(_PATIENCE_S)):
            endured.problems = await find_problems(server.port)
            if not endured.problems:
                break
            await asyncio.sleep(1)
        server.kill()
        server.start()
        endured.missing, endured.log = await client.missing(), server.stderr
        return endured


def _python_with_few_files(directory: Path) -> Path:
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nulimit -n {FILES_MAX}\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python


def _stored(client: Bystander) -> int:
    return sum(map(len, client.acknowledged.values()))


def _refusals(client: Bystander) -> int:
    return sum(n for why, n in client.refused.items() if any(code in why for code in _FULL))


async def _until(holds: Callable[[], object]) -> bool:
    for _ in range(int(_PATIENCE_S / _PAUSE_S)):
        if holds():
            return True
        await asyncio.sleep(_PAUSE_S)
    return False
