"""Reading back after a crash, and comparing with what was promised."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random

from tests.crash.history import Kind, Tape, Violation
from tests.crash.wire import Wire
from tests.crash.workload import Reader, Slot

_OFFSETS_TRIED = 2


async def read_all(wire: Wire, path: str, kind: Kind, offset: str) -> tuple[bytes, str, bool]:
    """Everything behind an offset, chunk by chunk: the bytes, the last offset, closed or not."""
    content = bytearray()
    while True:
        reply = await wire.request("GET", path, query=f"offset={offset}")
        if reply.status != 200:
            raise Violation(f"reading {path} at {offset}: {reply}")
        content += kind.stored(reply.body)
        offset = reply.next_offset
        if reply.up_to_date:
            return bytes(content), offset, reply.closed


async def check_slots(wire: Wire, slots: Iterable[Slot], rng: Random) -> None:
    """Read on in every shared stream; nothing is under way."""
    for slot in slots:
        for tape in slot.tapes:
            if tape.created and not tape.closed:
                more, offset, closed = await read_all(wire, tape.path, tape.kind, tape.offset)
                tape.read_on(more, offset)
                tape.settle(closed)
                if closed:
                    slot.closed(tape)
                await _check_offsets(wire, tape, rng)


async def _check_offsets(wire: Wire, tape: Tape, rng: Random) -> None:
    """Offsets from acknowledgements still stand for the same position."""
    known = [(append, end) for append, end in tape.ends[-2_000:] if append.token]
    for append, end in rng.sample(known, min(_OFFSETS_TRIED, len(known))):
        content, _, _ = await read_all(wire, tape.path, tape.kind, append.token)
        if content != tape.content[end:]:
            raise Violation(f"{tape.path}: the offset {append.token} of {append.id} reads wrong")


async def check_from_the_start(wire: Wire, slots: Iterable[Slot]) -> None:
    """At the very end: what was read in pieces over all the crashes is what is there."""
    for slot in slots:
        for tape in slot.tapes:
            if not tape.created:
                continue
            content, offset, closed = await read_all(wire, tape.path, tape.kind, "-1")
            if (content, offset, closed) != (bytes(tape.content), tape.offset, tape.closed):
                raise Violation(f"{tape.path} reads differently from the start")


def check_readers(readers: Sequence[Reader]) -> None:
    for reader in readers:
        reader.check()


async def until_more(count: Callable[[], int], than: int, patience_s: float = 60) -> None:
    """Wait until enough has happened, however busy the machine is; but not for ever."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if count() > than:
            return
        await asyncio.sleep(0.01)


async def until_readers(port: int, path: str, count: int) -> None:
    """Wait until as many follow a stream."""
    wire = Wire(port)
    try:
        async with asyncio.timeout(60):
            while True:
                reply = await wire.call("GET", f"/v1/stream/{path}/_details")
                if json.loads(reply.body)["readers"] == count:
                    return
                await asyncio.sleep(0.02)
    finally:
        await wire.close()


def headwater(*arguments: str, under: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run a headwater command to its end, perhaps under another one."""
    return subprocess.run(
        [*under, sys.executable, "-m", "headwater", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def check_directory(directory: Path) -> None:
    """`headwater verify` finds nothing wrong."""
    done = headwater("verify", str(directory))
    if done.returncode != 0:
        raise Violation(f"verify ended with {done.returncode}:\n{done.stdout}{done.stderr}")
