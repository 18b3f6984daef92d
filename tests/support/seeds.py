"""Where the choices of tests come from.

`make test` makes the same choices every time: a rare find must not break a change that has nothing
to do with it. `make explore` makes choices that nobody made before. They all come from one number,
the seed of the run, which is shown at the top of the report and repeats them.
"""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "EXPLORE_SEED"
EXPLORED: Final = int(os.environ.get(VARIABLE, "0"))
"""The seed of a run that explores; 0 if this one repeats what all others do."""


def one(usual: int) -> int:
    return EXPLORED or usual


def several(count: int) -> range:
    return range(EXPLORED, EXPLORED + count)
