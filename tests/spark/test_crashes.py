"""Drivers and servers that die at any moment: every message is copied once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.client import Headwater
from pyspark_headwater.java import prepare_environment
from tests.conftest import StartServer
from tests.spark.world import PATIENCE_S, ROOT, World

MESSAGES = [[n, n + 1] for n in range(0, 400, 2)]
EVERY_NUMBER = [*range(400)]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "nothing happens any more"
        time.sleep(0.02)


class Driver:
    """A process with a session of its own, and all that belongs to it."""

    def __init__(self, world: World, log: Path) -> None:
        prepare_environment()
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.spark.query_child", world.url),
                    *(world.name("events"), world.name("sink"), world.checkpoint()),
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
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def finish(self) -> None:
        try:
            assert self._process.wait(PATIENCE_S) == 0, self._log.read_text()[-3000:]
        finally:
            if not self.has_ended():
                self.kill()


def kill_after(rows: int, driver: Driver, world: World) -> None:
    try:
        wait_until(lambda: len(world.read()) >= rows or driver.has_ended())
    finally:
        driver.kill()


@pytest.mark.slow
@pytest.mark.crash
def test_a_driver_that_is_killed_again_and_again(world: World) -> None:
    world.stream("events", *MESSAGES)
    world.stream("sink")
    chance = random.Random()
    log = world.directory / "log"
    for rows in (chance.randrange(1, 150), chance.randrange(150, 390)):
        kill_after(rows, Driver(world, log), world)
    Driver(world, log).finish()
    assert sorted(world.read()) == EVERY_NUMBER


@pytest.mark.crash
def test_a_server_that_is_killed_under_a_query(
    spark: SparkSession, start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server("--data", str(tmp_path / "data"))
    with Headwater(server.url) as client:
        world = World(client, server.url, "crash", tmp_path)
        source = world.stream("events", *MESSAGES[:100])
        world.stream("sink")
        query = (
            world.live(spark, maxOffsetsPerTrigger=50)
            .select("value")
            .writeStream.format("headwater")
            .options(**world.options("sink", rowsPerRequest=7))
            .option("checkpointLocation", world.checkpoint())
            .start()
        )
        try:
            wait_until(lambda: len(world.read()) >= 60 or not query.isActive)
            server.kill()
            server.start()
            for messages in MESSAGES[100:]:
                source.append_all(messages)
            wait_until(lambda: len(world.read()) >= len(EVERY_NUMBER) or not query.isActive)
            assert query.exception() is None
        finally:
            query.stop()
        assert sorted(world.read()) == EVERY_NUMBER
