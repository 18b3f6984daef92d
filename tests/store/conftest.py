"""The engines that the contract suite runs over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.store.engine import Engine
from headwater.store.memory.engine import MemoryEngine
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.decided import CommittedStreams
from tests.support.postgresql import postgresql_engine


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, directory: Path) -> Iterator[Engine]:
    if request.param == "postgresql":
        with postgresql_engine() as engine:
            yield engine
        return
    engine = MemoryEngine() if request.param == "memory" else SqliteEngine(directory)
    yield engine
    engine.close()


@pytest.fixture
def streams(engine: Engine) -> CommittedStreams:
    """Decides commands and commits what comes of them to the engine."""
    return CommittedStreams(engine)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where a SQLite engine may put its files."""
    return tmp_path / "data"
