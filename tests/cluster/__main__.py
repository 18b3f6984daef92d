"""`make nemesis`: a cluster on this machine, disturbed for as long as you like.

python -m tests.cluster SEED MINUTES

Ctrl-C or SIGTERM end it early, with everything that it has started.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

from tests.cluster.nemesis import Say
from tests.cluster.ordeal import ordeal

INTERRUPTED = 130


def main() -> int:
    seed, minutes = int(sys.argv[1]), float(sys.argv[2])
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    say(f"seed {seed}, {minutes:g} minutes")
    try:
        broken = asyncio.run(_ordeal(seed, minutes * 60, say))
    except asyncio.CancelledError:
        say("ended early; nothing was checked")
        return INTERRUPTED
    for line in broken[:50]:
        print(f"BROKEN  {line}")
    print(
        f"{len(broken)} promises broken"
        if broken
        else "nothing lost, nothing doubled, no promise broken"
    )
    return 1 if broken else 0


async def _ordeal(seed: int, seconds: float, say: Say) -> list[str]:
    """Whoever is told to end takes everything along."""
    task = asyncio.ensure_future(ordeal(seed, seconds, say))
    for number in (signal.SIGINT, signal.SIGTERM):
        # Once: being told again must not keep it from cleaning up.
        asyncio.get_running_loop().add_signal_handler(number, cancel_once, task)
    _, broken = await task
    return broken


def cancel_once(task: asyncio.Task[object]) -> None:
    if not task.cancelling():
        task.cancel()


if __name__ == "__main__":
    sys.exit(main())
