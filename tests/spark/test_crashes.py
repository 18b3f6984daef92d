"""Drivers and servers that die at any moment: every message is copied once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from headwater.client import Headwater, MaterializedState
from pyspark_headwater.java import prepare_environment
from tests.conftest import StartServer
from tests.spark.world import PATIENCE_S, ROOT, World, rows_of
from tests.support import seeds

COUNT = 200
SLOW_START = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, which a busy machine may not have."""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "nothing happens any more"
        time.sleep(0.1)


class Driver:
    """A process with a session of its own, and all that belongs to it."""

    def __init__(self, world: World, log: Path, until: str) -> None:
        prepare_environment()
        self._log = log
        self._before = len(log.read_text()) if log.exists() else 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.spark.chaos_child", world.url),
                    *(world.name("events"), world.name("sink"), str(world.directory), until),
                ],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """The whole group: Python, the JVM and the workers."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def finish(self) -> bool:
        """Whether it came to its good end; if not, it was for a slow start and nothing else."""
        code = self._process.wait(PATIENCE_S)
        said = self._log.read_text()[self._before :]
        assert code == 0 or SLOW_START in said, said[-3000:]
        return code == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def changes(numbers: range) -> list[Any]:
    """Changes of ten entities, of which some are deleted now and then; `n` says which change."""
    return [
        {
            "type": "even" if n % 2 == 0 else "odd",
            "key": str(n % 10),
            "value": {"n": n, ("old" if n < COUNT // 2 else "new"): str(n)},
            "headers": {"operation": "delete" if n % 13 == 0 else "upsert"},
        }
        for n in numbers
    ]


def wait_for_rows(rows: int, driver: Driver, world: World) -> None:
    wait_until(lambda: len(world.read()) >= rows or driver.has_ended())


@pytest.mark.slow
@pytest.mark.crash
def test_everything_fails_and_every_row_is_there_once(
    start_server: StartServer, tmp_path: Path, rounds: int
) -> None:
    """Tasks are lost after their work, drivers and the server are killed at random, all in one."""
    chance = random.Random(seeds.one(1))
    server = start_server("--data", str(tmp_path / "data"))
    log = tmp_path / "log"
    half = COUNT // 2
    with Headwater(server.url) as client:
        world = World(client, server.url, "chaos", tmp_path)
        source = world.stream("events", *[[one] for one in changes(range(half))])
        world.stream("sink")
        with Driver(world, log, "follow") as driver:
            wait_for_rows(chance.randrange(1, half), driver, world)
        for before in range(half, half * (rounds + 1), half):
            for one in changes(range(before, before + half)):
                source.append(one)
            with Driver(world, log, "follow") as driver:
                wait_for_rows(before + chance.randrange(half // 3), driver, world)
                server.kill()
                server.start()
                wait_for_rows(before + chance.randrange(half // 3, half), driver, world)
        deadline, is_over = time.monotonic() + PATIENCE_S, False
        while not is_over:
            assert time.monotonic() < deadline, "it never comes to its end"
            with Driver(world, log, "end") as driver:
                server.kill()
                server.start()
                is_over = driver.finish()
        check(world, source.read_json(), half * (rounds + 1))


def check(world: World, messages: list[Any], count: int) -> None:
    """Row by row: the stream, the archive, and the tables of the state."""
    assert messages == changes(range(count))
    assert sorted(world.read()) == [*range(count)]
    lake = f"{world.directory}/lake"
    archive = rows_of(f"{lake}/archive/{world.table()}")
    archive.sort(key=lambda row: (row["offset"], row["index"]))
    assert [json.loads(row["value"]) for row in archive] == messages
    state = MaterializedState()
    state.apply_messages(messages)
    for kind in ("even", "odd"):
        rows = rows_of(f"{lake}/state/{world.table()}/{kind}")
        assert len(rows) == len(state.of_type(kind))
        for row in rows:
            value = state.get(kind, row["key"])
            assert json.loads(row["_value"]) == value
            assert [row[name] for name in ("n", "old", "new")] == [
                value.get(name) for name in ("n", "old", "new")
            ]
    # It was as bad as it was meant to be: each batch lost a task, wherever it was written to.
    lost = Counter(one.name.split("-")[0] for one in (world.directory / "marks").iterdir())
    assert lost["date"] >= COUNT // 60
    assert lost["_bucket"] >= COUNT // 60
    assert sum(lost.values()) - lost["date"] - lost["_bucket"] >= COUNT // 40
