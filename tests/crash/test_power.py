"""The disk on which crash tests lose power does what a disk does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import apsw
import pytest

from tests.crash.faults import power_loss
from tests.crash.shim.volatile_disk import lose_power

_TOOLS = """
import apsw, os, sys
def connect(synchronous):
    connection = apsw.Connection(sys.argv[1])
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", synchronous)
    return connection
def found(connection):
    return [x for x, in connection.execute("SELECT x FROM t ORDER BY x")]
synced, unsynced = connect("full"), connect("off")
"""


class Always(Random):
    def random(self) -> float:
        return 0.0


class Never(Random):
    def random(self) -> float:
        return 1.0


class Machine:
    """Runs processes, each of which ends as if killed."""

    def __init__(self, directory: Path) -> None:
        self.database = directory / "database"
        self._logs = directory / "logs"
        self._environment = os.environ | power_loss(self._logs)
        self.run("synced.execute('CREATE TABLE t (x)')")

    def run(self, code: str) -> None:
        command = [sys.executable, "-c", f"{_TOOLS}\n{code}\nos._exit(0)", str(self.database)]
        subprocess.run(command, env=self._environment, check=True, timeout=60)

    def lose_power(self, dice: Random) -> list[int]:
        """Returns what is left."""
        lose_power(self._logs, dice)
        connection = apsw.Connection(str(self.database))
        try:
            assert connection.pragma("integrity_check") == "ok"
            return [x for (x,) in connection.execute("SELECT x FROM t ORDER BY x")]
        finally:
            connection.close()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_was_not_synced_is_lost(machine: Machine) -> None:
    machine.run("synced.execute('INSERT INTO t VALUES (1)')")
    machine.run("unsynced.execute('INSERT INTO t VALUES (2)')")
    # Until then, everyone sees it.
    machine.run("assert found(synced) == [1, 2]")
    assert machine.lose_power(Never()) == [1]


def test_some_of_it_may_be_there(machine: Machine) -> None:
    machine.run("unsynced.execute('INSERT INTO t VALUES (1)')")
    assert machine.lose_power(Always()) == [1]


def test_a_sync_is_for_everyone(machine: Machine) -> None:
    machine.run("unsynced.execute('INSERT INTO t VALUES (1)')")
    machine.run("synced.execute('INSERT INTO t VALUES (2)')")
    machine.run("unsynced.execute('INSERT INTO t VALUES (3)')")
    assert machine.lose_power(Never()) == [1, 2]
    assert machine.lose_power(Never()) == [1, 2]


@pytest.mark.parametrize("dice", [Always(), Never()])
def test_files_that_shrink(machine: Machine, dice: Random) -> None:
    machine.run("synced.execute('INSERT INTO t VALUES (1), (2)')")
    wal = machine.database.with_name("database-wal")
    before = wal.read_bytes()
    machine.run("synced.execute('PRAGMA wal_checkpoint(TRUNCATE)')\nassert found(synced) == [1, 2]")
    assert wal.stat().st_size == 0
    lose_power(wal.parent / "logs", dice)
    assert wal.read_bytes() == (b"" if isinstance(dice, Always) else before)
    assert machine.lose_power(Never()) == [1, 2]


@pytest.mark.parametrize("number", range(5))
def test_luck_never_takes_what_was_synced(machine: Machine, number: int) -> None:
    dice = Random(number)
    kept: list[int] = []
    for x in range(0, 20, 2):
        machine.run(
            f"synced.execute('INSERT INTO t VALUES ({x})')\n"
            f"unsynced.execute('INSERT INTO t VALUES ({x + 1})')"
        )
        left = machine.lose_power(dice)
        assert left in ([*kept, x], [*kept, x, x + 1])
        kept = left
