"""Servers that many tests share: each test uses streams of its own, so one per engine will do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

# Before they are imported, so that a failed assertion in them shows its values.
from tests.http.client import Client
from tests.support.engines import serving
from tests.support.server import ServerProcess

# For reads that have to run out, or to be cut into pieces: a patience that costs no time, and
# pages so small that a few appends fill several.
HASTY = ("--long-poll-timeout-ms", "150", "--chunk-bytes-max", "64")


@pytest.fixture(scope="session", params=["memory", "sqlite", "history", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def server(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with default settings, on each engine in turn."""
    with serving(engine, tmp_path_factory.mktemp("plain")) as process:
        yield process


@pytest.fixture(scope="session")
def hasty_server(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that gives up soon and sends little at a time.

    It keeps no more of a stream in memory than the last append, so most reads reach the engine.
    """
    arguments = [*HASTY, "--hot-bytes-per-stream-max", "0"]
    with serving(engine, tmp_path_factory.mktemp("hasty"), *arguments) as process:
        yield process


def watched(server: ServerProcess) -> Iterator[Client]:
    """A client, and a look at what the server had to say about the test."""
    before = len(server.stderr)
    yield Client(server)
    said = server.stderr[before:]
    assert "Traceback" not in said, said
    assert "unexpected_error" not in said, said
    assert server.is_running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    yield from watched(server)


@pytest.fixture
def hasty(hasty_server: ServerProcess) -> Iterator[Client]:
    yield from watched(hasty_server)
