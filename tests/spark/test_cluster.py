"""The format and a pipeline on a cluster: two workers, each a process with its own directory.

Nothing may lean on the driver's memory, or on a module that only the driver has loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from headwater.client import Headwater
from pyspark_headwater.java import prepare_environment
from tests.conftest import StartServer
from tests.spark.test_crashes import wait_until
from tests.spark.world import PATIENCE_S, ROOT, World, run_to_end
from tests.support.cluster import Cluster
from tests.support.postgresql import databases
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
        found = submit(world, master, root)
    assert found == {"archived": 20, "executors": 2}
    assert sorted(row["n"] for row in world.read()) == [*range(20)]


def submit(world: World, master: str, root: str) -> Any:
    """What the driver finds that copies and archives a stream."""
    places = (world.url, world.name("events"), world.name("sink"), root)
    command = [sys.executable, "-m", "tests.spark.cluster_child", master, *places]
    said = run_to_end(command, ROOT, ENVIRONMENT, patience_s=4 * PATIENCE_S)
    return json.loads(said.splitlines()[-1])


def killing(world: World, kill: Callable[[], object]) -> threading.Thread:
    """Does something bad as soon as the driver has begun to write."""

    def watch() -> None:
        wait_until(lambda: world.get(world.name("sink")).status_code == 200)
        kill()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.usefixtures("on_request")
def test_a_server_that_is_killed_under_a_cluster(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("--data", str(tmp_path / "data"))

    def kill() -> None:
        server.kill()
        server.start()

    with Headwater(server.url) as client, cluster(tmp_path) as master:
        world = World(client, server.url, "killed", tmp_path)
        world.stream("events", *[[{"n": n, "payload": "x" * 30_000}] for n in range(200)])
        killer = killing(world, kill)
        found = submit(world, master, str(tmp_path / "lake"))
        killer.join(PATIENCE_S)
        assert found == {"archived": 200, "executors": 2}
        assert sorted(row["n"] for row in world.read()) == [*range(200)]


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.usefixtures("on_request")
def test_a_node_that_is_killed_under_a_cluster(tmp_path: Path) -> None:
    """Three nodes on PostgreSQL. The one that owns what is read dies; the query asks another."""
    with ExitStack() as stack:
        nodes = stack.enter_context(Cluster(stack.enter_context(databases())))
        asked = nodes.nodes[0]
        client = stack.enter_context(Headwater(asked.url))
        world = World(client, asked.url, "nodes", tmp_path)
        for number in range(100):
            world.prefix = f"nodes-{number}"
            world.stream("events")
            if nodes.owner_of(world.name("events")) is not asked:
                break
        owner = nodes.owner_of(world.name("events"))
        for n in range(200):
            client.stream(world.name("events")).append({"n": n, "payload": "x" * 30_000})
        master = stack.enter_context(cluster(tmp_path))
        killer = killing(world, owner.kill)
        found = submit(world, master, str(tmp_path / "lake"))
        killer.join(PATIENCE_S)
        assert not owner.is_running
        assert found == {"archived": 200, "executors": 2}
        assert sorted(row["n"] for row in world.read()) == [*range(200)]
