"""Where tests get their random choices from.

`make test` makes the same choices every time: a rare find must not break an unrelated change. `make
explore` makes new choices. They all come from one number, the seed of the run, which is shown at
the top of the report and reproduces them.
"""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "EXPLORE_SEED"
EXPLORED: Final = int(os.environ.get(VARIABLE, "0"))
"""The seed of an exploring run; 0 if this run makes the usual choices."""


def one(usual: int) -> int:
    return EXPLORED or usual


def several(count: int) -> range:
    return range(EXPLORED, EXPLORED + count)
