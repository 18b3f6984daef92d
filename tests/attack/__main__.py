"""Attack a server for some minutes and say how it took it: ``python -m tests.attack MINUTES``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.attack.siege import besiege
from tests.attack.test_siege import assert_held


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("minutes", type=float)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headwater-attack-") as directory:
        outcome = asyncio.run(besiege(Path(directory), options.minutes * 60))
    print(outcome.report())
    assert_held(outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
