"""Many files become few, and nobody who reads can tell."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.lineage import ForkRequest, Span
from headwater.store.engine import Problem
from headwater.store.history.compacting import compact
from headwater.store.sqlite import SqliteEngine
from tests.support.decided import CommittedStreams
from tests.support.sealing import seal

BYTES = "application/octet-stream"


def scattered(directory: Path) -> tuple[SqliteEngine, CommittedStreams]:
    """Three streams and a fork, sealed a little at a time."""
    engine, random = SqliteEngine(directory), Random(8)
    streams = CommittedStreams(engine)
    for path in "abc":
        streams.create(Create(path, BYTES, b"first of " + path.encode()), 1_000)
    for number in range(12):
        for path in "abc":
            body = random.randbytes(random.randrange(1, 300))
            streams.append(path, Append(body, BYTES), 1_001 + number)
        seal(engine, None, 1_000)
        if number == 6:
            streams.create(Create("fork", fork=ForkRequest("b")), 1_500)
    return engine, streams


def everything(engine: SqliteEngine, streams: CommittedStreams) -> dict[object, object]:
    found: dict[object, object] = {}
    for path, state in streams.by_path.items():
        found[path] = engine.load(path)
        for span in state.config.lineage.spans(0, state.tail):
            found[path, span] = engine.read(span, 10**9)
        own = Span(state.config.id, state.config.lineage.base, state.tail)
        for position in range(own.start, own.end, 97):
            found[path, position] = engine.append_at(own.run, position)
    return found


def files(directory: Path) -> list[Path]:
    return [*(directory / "segments").iterdir()]


def test_nothing_changes_but_the_files(tmp_path: Path) -> None:
    engine, streams = scattered(tmp_path)
    with closing(engine):
        before, count = everything(engine, streams), len(files(tmp_path))
        extents = engine._query("SELECT count(*) FROM extents")[0][0]
        done = compact(engine.history, 10**6, 5_000)
        assert (done.files_before, done.files_after) == (count, 1)
        assert len(files(tmp_path)) == 1
        assert engine._query("SELECT count(*) FROM extents")[0][0] == 3 < extents
        assert everything(engine, streams) == before
        assert [line for line in engine.verify() if isinstance(line, Problem)] == []
        assert compact(engine.history, 10**6, 6_000) == (0, 0, 0, 0), "there is nothing to gain"
    with closing(SqliteEngine(tmp_path)) as engine:
        assert everything(engine, streams) == before


def test_several_files_if_one_would_be_too_large(tmp_path: Path) -> None:
    engine, streams = scattered(tmp_path)
    with closing(engine):
        before = everything(engine, streams)
        done = compact(engine.history, 3_000, 5_000)
        assert 1 < done.files_after < done.files_before
        assert everything(engine, streams) == before
        assert [line for line in engine.verify() if isinstance(line, Problem)] == []


def test_space_that_nobody_needs_is_given_back(tmp_path: Path) -> None:
    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        for path, size in (("small", 10_000), ("large", 200_000)):
            streams.create(Create(path, BYTES, b"x" * size), 1_000)
        seal(engine)
        streams.delete("large", 2_000)
        while engine.reap(10):
            pass
        assert len(files(tmp_path)) == 1, "the other one is in the same file"
        done = compact(engine.history, 150_000, 5_000)
        assert done.bytes_after < 20_000 < 200_000 < done.bytes_before
        assert sum(path.stat().st_size for path in files(tmp_path)) == done.bytes_after
        assert engine.read(Span(1, 0, 10_000), 10**9) == [b"x" * 10_000]


@pytest.mark.parametrize(
    "step", ["created", "written", "renamed", "verified", "noted", "before moving"]
)
def test_interrupted_it_leaves_everything_as_it_was(tmp_path: Path, step: str) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(taken: str) -> None:
        if taken == step:
            raise Interrupted

    engine, streams = scattered(tmp_path)
    with closing(engine):
        before = everything(engine, streams)
        engine.history.step = interrupt
        with pytest.raises(Interrupted):
            compact(engine.history, 10**6, 5_000)
        assert everything(engine, streams) == before
    with closing(SqliteEngine(tmp_path)) as engine:
        assert everything(engine, streams) == before
        known = {row[0] for row in engine._query("SELECT name FROM segments")}
        assert {path.name for path in files(tmp_path)} == known
