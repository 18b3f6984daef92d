"""`headwater serve`, which kills itself at a step of its history that its parent chose.

    FATAL_STEP=FILE python -m tests.crash.history_node serve …

The file may appear at any time. "uploaded 2" in it means: the second time that something has been
uploaded from then on. A few appends are recorded in several transactions, and what nobody needs, or
is worth rewriting, is looked for often.
"""

from __future__ import annotations

import os
import signal
from functools import partialmethod
from pathlib import Path
from typing import Final

from headwater.cli import main
from headwater.service.history import compacting, publishing
from headwater.store.history import compaction, gathering, sealing
from headwater.store.postgresql.engine import PostgresqlEngine

VARIABLE: Final = "FATAL_STEP"


class Fatal:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._wanted = ""
        self._left = 0

    def __call__(self, name: str) -> None:
        wanted = self._file.read_text() if self._file.exists() else ""
        step, _, times = wanted.rpartition(" ")
        if wanted != self._wanted:
            self._wanted, self._left = wanted, int(times or 0)
        if name == step:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def prepare(fatal: Fatal) -> None:
    vars(gathering)["SLICE_APPENDS"] = 2
    vars(sealing)["_SLICE_APPENDS"] = 4
    vars(compaction)["_SLICE_EXTENTS"] = 4
    vars(publishing)["_PAUSE_S"] = 0.2
    vars(compacting).update(_PAUSE_S=0.2, _REST_PER_LOOK=0.0)
    join = PostgresqlEngine.__init__
    setattr(PostgresqlEngine, "__init__", partialmethod(join, step=fatal))  # noqa: B010


if __name__ == "__main__":
    prepare(Fatal(Path(os.environ[VARIABLE])))
    main()
