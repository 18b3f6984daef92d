"""Many files become few, and nobody who reads can tell."""

from __future__ import annotations

import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.lineage import ForkRequest, Span
from headwater.core.retention import Retention
from headwater.store.engine import Problem
from headwater.store.history.archive import Archive
from headwater.store.history.catalog import Catalog, decode_catalog
from headwater.store.history.cold_segments import fetching
from headwater.store.history.compaction import Rewriting, compact, usable
from headwater.store.history.ledger import Due
from headwater.store.history.object_storage import Remote
from headwater.store.history.recovery import restore
from headwater.store.history.segment import PRESENT, SegmentRow
from headwater.store.sqlite.engine import SqliteEngine
from tests.history.crash_child import far_from
from tests.support.decided import CommittedStreams
from tests.support.sealing import archive_all, compact_once, seal

BYTES = "application/octet-stream"


def scattered(directory: Path) -> tuple[SqliteEngine, CommittedStreams]:
    """Three streams and a fork, sealed a little at a time."""
    engine, random = SqliteEngine(directory), Random(8)
    streams = CommittedStreams(engine)
    for path in "abc":
        body, retention = b"first of " + path.encode(), Retention(size_bytes=1)
        streams.create(Create(path, BYTES, body, retention=retention), 1_000)
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
        found[path] = engine.streams.load(path)
        kept_from = state.config.kept_from
        for span in state.config.lineage.spans(kept_from, state.tail):
            found[path, span] = engine.appends.read(span, 10**9)
        own = Span(state.config.id, max(kept_from, state.config.lineage.base), state.tail)
        for position in range(own.start, own.end, 97):
            found[path, position] = engine.appends.append_at(own.run, position)
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
        assert engine.appends.read(Span(1, 0, 10_000), 10**9) == [b"x" * 10_000]


def test_what_is_needed_is_not_taken_for_waste(tmp_path: Path) -> None:
    """Where appends are tiny, there is more in the index of a file than in its bodies."""
    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        streams.create(Create("a", BYTES), 1_000)
        for number in range(500):
            streams.append("a", Append(b"x", BYTES), 1_000 + number)
        seal(engine)
        size = files(tmp_path)[0].stat().st_size
        assert size > 10 * 500
        assert compact(engine.history, size, 5_000) == (0, 0, 0, 0)


def test_what_goes_while_it_is_copied(tmp_path: Path) -> None:
    """Only what still lies where it did is moved, and nothing comes back."""
    engine, streams = scattered(tmp_path)
    with closing(engine):
        rewriting = Rewriting(engine.history, [one.row for one in usable(engine.history)])
        while rewriting.copy():
            pass
        rewriting.finish()
        streams.delete("c", 5_000)
        streams.trim("a", streams.positions(streams.by_path["a"])[5], 5_001)
        while engine.reap(3):
            pass
        before, left = everything(engine, streams), engine._query("SELECT run, start FROM extents")
        rewriting.note(5_000)
        while engine.reap(3):
            pass
        while rewriting.record():
            pass
        rewriting.end()
        after = engine._query("SELECT run, start FROM extents")
        assert (1, 0) not in left, "it was cut off"
        assert set(after) < set(left)
        assert {run for run, _ in after} == {1, 2}
        assert everything(engine, streams) == before
        while engine.reap(3):
            pass
        assert everything(engine, streams) == before
        assert [line for line in engine.verify() if isinstance(line, Problem)] == []


def test_a_file_that_is_still_being_recorded_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.store.history.sealing._SLICE_APPENDS", 2)
    monkeypatch.setattr("headwater.store.history.gathering.SLICE_APPENDS", 1)
    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        for path in "ab":
            streams.create(Create(path, BYTES), 1_000)
            for number in range(20):
                streams.append(path, Append(b"%d;" % number, BYTES), 1_000)
        before = everything(engine, streams)
        seal(engine, [2])
        recording = engine.history.gather([Due(1, 100)], 10**6)
        assert recording is not None
        while engine.history.record(recording, 5):
            assert [one.row.id for one in usable(engine.history)] == [1]
            assert compact_once(engine, 10**6) == 0
            assert everything(engine, streams) == before
        engine.history.settle(recording)
        assert compact_once(engine, 10**6) == 1
        assert everything(engine, streams) == before


@pytest.mark.slow
def test_at_every_step_everything_is_here_and_can_be_restored(tmp_path: Path) -> None:
    """What a crash would leave behind is copied, and so is what object storage has then."""
    data, moments = tmp_path / "data", list[Path]()
    engine, streams = scattered(data)
    contents = everything(engine, streams)
    with closing(engine):
        archive = Archive(engine.history, far_from(data), 10**6)
        archive_all(archive, 10**9)

        def copy(step: str) -> None:
            moment = tmp_path / f"{len(moments)} {step}"
            moments.append(moment)
            if step in ("noted", "before moving", "moved"):
                # The next catalog is due whenever it likes.
                archive.catalog(1_000)
            shutil.copytree(data, moment)
            shutil.copytree(f"{data}.far", f"{moment}.far")

        engine.history.step = copy
        assert compact_once(engine, 10**6, archive)
        while engine.reap(3):
            pass
        archive_all(archive, 10**9)
    steps = {moment.name.split(" ", 1)[1] for moment in moments}
    assert steps >= {"written", "noted", "uploaded", "moved", "removed from object storage"}
    for moment in moments:
        with closing(SqliteEngine(moment)) as engine:
            assert everything(engine, streams) == contents
        assert restored(far_from(moment), moment / "restored", streams) == contents
        for name in far_from(moment).catalogs():
            require_whole(far_from(moment), name)


def restored(remote: Remote, new: Path, streams: CommittedStreams) -> dict[object, object]:
    assert restore(remote, new).missing == []
    with closing(SqliteEngine(new)) as engine:
        Archive(engine.history, remote, 10**6)
        return fetching(partial(everything, engine, streams))


def require_whole(remote: Remote, name: str) -> None:
    """Everything that a catalog needs has to be there."""
    for row in needed_segments(decode_catalog(name, remote.get_catalog(name))):
        remote.verify(row)


def needed_segments(catalog: Catalog) -> list[SegmentRow]:
    """The segments that a catalog needs from object storage."""
    segments, extents = catalog.tables["segments"], catalog.tables["extents"]
    needed = {row[extents.columns.index("segment_id")] for row in extents.rows}
    rows = [dict(zip(segments.columns, row, strict=True)) for row in segments.rows]
    return [
        SegmentRow(row["id"], row["name"], row["size"], row["root"])
        for row in rows
        if row["id"] in needed and row["remote"] == PRESENT
    ]


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
