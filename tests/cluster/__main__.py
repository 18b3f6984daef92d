"""`make nemesis`: a cluster on this machine, disturbed for as long as you like.

python -m tests.cluster SEED MINUTES
"""

from __future__ import annotations

import asyncio
import sys
import time

from tests.cluster.ordeal import ordeal


def main() -> int:
    seed, minutes = int(sys.argv[1]), float(sys.argv[2])
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    say(f"seed {seed}, {minutes:g} minutes")
    _, broken = asyncio.run(ordeal(seed, minutes * 60, say))
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
