"""One Spark session and one server for all tests of Spark; each test has streams of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headwater.client import Headwater
from pyspark_headwater.java import prepare_environment
from pyspark_headwater.wire import close_wires
from tests.spark.world import ROOT, World, local_session, up_and_running
from tests.support.server import ServerProcess


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("spark")
    group.addoption(
        "--spark-rounds",
        type=int,
        default=1,
        help="how often to kill the server and the driver of a query (default: %(default)s)",
    )
    group.addoption(
        "--spark-cluster",
        action="store_true",
        help="also run on a cluster of Spark while servers are killed, which takes minutes",
    )


# The options exist only when this directory is named on the command line, hence the defaults.


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    asked: int = request.config.getoption("spark_rounds", default=1)
    return asked


@pytest.fixture
def on_request(request: pytest.FixtureRequest) -> None:
    """Skips tests that take minutes, unless they were asked for."""
    if not request.config.getoption("spark_cluster", default=False):
        pytest.skip("takes minutes: --spark-cluster")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two workers that repeats a failed task up to three times."""
    prepare_environment()
    # What workers import, they import from here.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    session = local_session("local[2,4]")
    # Pages and notebooks are run as they are, so the patience they need is here.
    start = DataStreamWriter.start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            DataStreamWriter, "start", lambda *a, **kw: up_and_running(lambda: start(*a, **kw))
        )
        yield session
    session.stop()


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server on disk."""
    data = tmp_path_factory.mktemp("spark") / "data"
    with ServerProcess("--data", str(data)) as server:
        yield server.url


@pytest.fixture
def world(url: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """The server, with a prefix for the names of this test's streams."""
    prefix = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:80].strip("-")
    with Headwater(url) as client:
        yield World(client, url, prefix, tmp_path)
    close_wires()
