"""Servers that ask who is calling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.access.guests import House
from tests.support.server import ServerProcess


@pytest.fixture(scope="session", params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def house(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server with access control, and everything it takes to be let in."""
    directory = tmp_path_factory.mktemp("house")
    with House.open(directory, engine) as house:
        yield house


@pytest.fixture
def own_house(tmp_path: Path) -> Iterator[House]:
    """One that nobody else uses."""
    with House.open(tmp_path, "memory") as house:
        yield house


@pytest.fixture(autouse=True)
def no_tracebacks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever is sent, the server is not surprised."""
    names = [name for name in ("house", "own_house") if name in request.fixturenames]
    servers: list[ServerProcess] = [request.getfixturevalue(name).server for name in names]
    yield
    for server in servers:
        assert "Traceback" not in server.stderr, server.stderr
        assert "unexpected_error" not in server.stderr, server.stderr
