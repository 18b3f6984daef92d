"""The format and a pipeline on a cluster: two workers, each a process with its own directory.

Nothing may lean on the driver's memory, or on a module that only the driver has loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from pyspark_headwater.java import prepare_environment
from tests.spark.test_crashes import wait_until
from tests.spark.world import ROOT, World, run_to_end
from tests.support.server import free_port

LAUNCHER = Path(pyspark.__path__[0]) / "bin" / "spark-class"
ENVIRONMENT = {
    "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
}


@contextmanager
def daemon(name: str, directory: Path, *arguments: str) -> Iterator[Path]:
    """A master or a worker; what it writes is in the file."""
    directory.mkdir()
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(LAUNCHER), f"org.apache.spark.deploy.{name}", *arguments],
            cwd=directory,
            env=os.environ | ENVIRONMENT,
            stdout=output,
            stderr=output,
        )
        try:
            yield log
        finally:
            process.kill()
            process.wait()


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """A master with two workers of one core."""
    prepare_environment()
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    place = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as stack:
        log = stack.enter_context(
            daemon("master.Master", directory / "master", *place, "--port", str(port))
        )
        wait_until(lambda: "I have been elected leader" in log.read_text())
        for number in (1, 2):
            resources = ("--cores", "1", "--memory", "1g", "--work-dir", "work")
            worker = directory / f"worker-{number}"
            stack.enter_context(daemon("worker.Worker", worker, *place, *resources, master))
        wait_until(lambda: log.read_text().count("Registering worker") == 2)
        yield master


@pytest.mark.slow
def test_a_cluster_of_two_workers(world: World) -> None:
    payload = "x" * 30_000
    world.stream("events", *[[{"n": n, "payload": payload}] for n in range(20)])
    root = str(world.directory / "lake")
    with cluster(world.directory) as master:
        places = (world.url, world.name("events"), world.name("sink"), root)
        command = [sys.executable, "-m", "tests.spark.cluster_child", master, *places]
        printed = run_to_end(command, ROOT, ENVIRONMENT)
    assert json.loads(printed.splitlines()[-1]) == {"archived": 20, "executors": 2}
    assert sorted(row["n"] for row in world.read()) == [*range(20)]
