"""A server whose power fails: all of its processes end, and what was not synced is lost.

    server = PoweredServer(data, unsynced, rng, "--data", str(data))

Its disk is a layer below SQLite, in every process of the server; see `shim/volatile_disk.py`.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.crash.faults import power_loss
from tests.crash.shim.volatile_disk import lose_power
from tests.support.processes import committers, is_locked, wait_until
from tests.support.server import ServerProcess


class PoweredServer(ServerProcess):
    def __init__(self, data: Path, logs: Path, rng: Random, *args: str) -> None:
        super().__init__(*args, env=power_loss(logs))
        self._data = data
        self._logs = logs
        self._dice = Random(rng.random())

    def kill(self) -> int:
        """Cut the power."""
        children = committers(self.pid) if self.is_running else []
        if self._dice.random() < 0.5:
            self._running().kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        status = super().kill()
        self._lose_power()
        return status

    def stop(self) -> int:
        """Ask it to end, and cut the power when it has."""
        status = super().stop()
        self._lose_power()
        return status

    def _lose_power(self) -> None:
        # A committer that was just being started ends by itself.
        wait_until(lambda: not is_locked(self._data), "somebody is still at work")
        lose_power(self._logs, self._dice)
