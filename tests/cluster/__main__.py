"""`make nemesis`: a cluster on this machine, disturbed for as long as you like.

python -m tests.cluster SEED MINUTES [--patroni]

Ctrl-C or SIGTERM end it early, with everything that it has started.
"""

from __future__ import annotations

import asyncio
import sys
import time

from tests.cluster.ending import until_told
from tests.cluster.ordeal import ordeal

INTERRUPTED = 130


def main() -> int:
    seed, minutes = int(sys.argv[1]), float(sys.argv[2])
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    under_patroni = "--patroni" in sys.argv
    say(f"seed {seed}, {minutes:g} minutes{', under Patroni' if under_patroni else ''}")
    work = ordeal(seed, minutes * 60, say, under_patroni=under_patroni)
    try:
        _, broken = asyncio.run(until_told(work))
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


if __name__ == "__main__":
    sys.exit(main())
