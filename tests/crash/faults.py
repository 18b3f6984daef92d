"""Switching the disk and the clock of a server under test between right and wrong; see
`shim/sitecustomize.py`."""

from __future__ import annotations

import os
import struct
import tempfile
from enum import Enum
from pathlib import Path
from typing import Final

_SHIM: Final = Path(__file__).parent / "shim"
_ROOT: Final = Path(__file__).parents[2]


class Fault(Enum):
    SYNC_FAILS = "sync-fails"
    WRITE_FAILS = "write-fails"
    DISK_FULL = "disk-full"
    SHORT_WRITE = "short-write"
    DIES = "dies"
    """A sync fails, and no write after it works."""
    SLOW_READ = "slow-read"


WRITE_FAULTS: Final = [Fault.SYNC_FAILS, Fault.WRITE_FAILS, Fault.DISK_FULL, Fault.SHORT_WRITE]
"""Whatever one of them lets through, the log ends up as if the commit had never been tried."""


def _shimmed(**variables: str) -> dict[str, str]:
    path = [str(_SHIM), str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, path)), **variables}


def power_loss(logs: Path) -> dict[str, str]:
    """An environment in which it is known what was not synced; see `tests.crash.power`."""
    logs.mkdir(exist_ok=True)
    return _shimmed(FAULTS_POWER_LOSS=str(logs))


class Disk:
    """The switch: `disk.fail(Fault.DISK_FULL)`, `disk.recover()`."""

    def __init__(self, control: Path) -> None:
        self._control = control

    @property
    def environment(self) -> dict[str, str]:
        return _shimmed(FAULTS_CONTROL=str(self._control))

    def fail(self, fault: Fault) -> None:
        # Replaced in one step, so that nobody reads half of it.
        fresh = self._control.with_suffix(".new")
        fresh.write_text(fault.value)
        fresh.replace(self._control)

    def recover(self) -> None:
        self._control.unlink(missing_ok=True)


class Clock:
    """The time of day that a server goes by, however often it is started again."""

    def __init__(self) -> None:
        self._descriptor, self._name = tempfile.mkstemp(prefix="headwater-clock-")
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        return _shimmed(FAULTS_CLOCK=self._name)

    def set(self, ahead_s: float) -> None:
        os.pwrite(self._descriptor, struct.pack("<q", int(ahead_s * 1e9)), 0)

    def close(self) -> None:
        os.close(self._descriptor)
        os.unlink(self._name)
