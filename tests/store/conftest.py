"""The engines that the contract suite runs over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.store.engine import Engine
from tests.support.decided import CommittedStreams
from tests.support.engines import running


@pytest.fixture(params=["memory", "sqlite", "files", "postgresql"])
def engine(request: pytest.FixtureRequest, directory: Path) -> Iterator[Engine]:
    with running(request.param, directory) as engine:
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
