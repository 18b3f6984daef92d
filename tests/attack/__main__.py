"""Attack a server for some minutes and say how it took it: ``python -m tests.attack MINUTES``.

The last fifth of the time is without access control, and after it comes a minute in which attackers
use up the descriptors while the disk is full. Exits with 1 if a promise was not kept."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.attack.exhaustion import exhaust
from tests.attack.siege import besiege

_EXHAUSTION_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--access", choices=("on", "off"), help="only with or without it")
    options = parser.parse_args()
    shares = {"on": 0.8, "off": 0.2} if options.access is None else {options.access: 1.0}
    kept = True
    for access, share in shares.items():
        with tempfile.TemporaryDirectory(prefix="headwater-attack-") as directory:
            outcome = asyncio.run(besiege(Path(directory), options.minutes * 60 * share, access))
        print(outcome.report(), flush=True)
        kept = kept and not list(outcome.broken())
    if options.access is None:
        with tempfile.TemporaryDirectory(prefix="headwater-attack-") as directory:
            endured = asyncio.run(exhaust(Path(directory), _EXHAUSTION_S))
        print(endured.report(), flush=True)
        kept = kept and not list(endured.broken())
    print("every promise was kept" if kept else "promises were BROKEN")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
