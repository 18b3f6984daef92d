"""How many segment files are kept open."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.core.lineage import Lineage, Span
from headwater.core.stream import Appended, Created, StreamConfig
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.sealing import seal

FILES = 12


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SqliteEngine]:
    """As many streams as files, where only a hundred descriptors are allowed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource, "getrlimit", lambda _: (100, 100))
        opened = SqliteEngine(tmp_path)
    with closing(opened) as engine:
        for run in range(1, FILES + 1):
            config = StreamConfig(run, f"s{run}", "text/plain", 5, lineage=Lineage(run))
            engine.commit([Created(config), Appended(run, 0, b"0123456789", 0, 1, 1_000, None)])
            seal(engine)
        yield engine


def test_they_leave_descriptors_for_everything_else(engine: SqliteEngine) -> None:
    segments = engine.history.open_segments
    for run in range(1, FILES + 1):
        assert engine.appends.read_pieces(Span(run, 0, 10), 10)
    held = [segments.held(number) is not None for number in range(1, FILES + 1)]
    assert held == [False] * (FILES - 8) + [True] * 8
