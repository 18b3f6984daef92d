"""Large appends: in a file before they are acknowledged, and never in a row."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headwater.core.decisions import Append, Create
from headwater.core.errors import StorageFull, StorageUnavailable, StreamError
from headwater.core.lineage import Span
from headwater.core.stream import Appended
from headwater.store.engine import Problem
from headwater.store.history.large_appends import LARGE_BYTES, choose, share_out
from headwater.store.history.segment_writer import SegmentBuilder, SegmentDraft
from headwater.store.sqlite.commits import Commits
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.decided import CommittedStreams
from tests.support.sealing import in_rows, seal

BYTES = "application/octet-stream"
LARGE, SMALL = b"l" * LARGE_BYTES, b"s" * (LARGE_BYTES - 1)


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "segments").glob("*"))


def contents(engine: SqliteEngine, streams: CommittedStreams, path: str) -> list[bytes]:
    state = streams.by_path[path]
    return engine.appends.read(Span(state.config.id, 0, state.tail), 10**9)


def check(directory: Path, streams: CommittedStreams, content: dict[str, Sequence[bytes]]) -> None:
    """The same after a restart, and nothing is wrong."""
    with closing(SqliteEngine(directory)) as engine:
        assert [line for line in engine.verify() if isinstance(line, Problem)] == []
        for path, bodies in content.items():
            assert contents(engine, streams, path) == bodies
            loaded = engine.streams.load(path)
            assert loaded is not None
            assert loaded.state.tail == sum(map(len, bodies))


# ── Which ones ───────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from([LARGE, SMALL]))),
    st.sets(st.integers(1, 3)),
)
def test_nothing_large_follows_a_row(sent: list[tuple[int, bytes]], with_rows: set[int]) -> None:
    appends = [Appended(run, at, body, at, 1, 5) for at, (run, body) in enumerate(sent)]
    chosen = choose(appends, lambda runs: with_rows & {*runs})
    for run in (1, 2, 3):
        own = [one for one in appends if one.stream_id == run]
        filed = chosen.get(run, [])
        assert filed == own[: len(filed)]
        if run in with_rows:
            assert not filed
        else:
            after = own[len(filed) :]
            assert not after or len(after[0].body) < LARGE_BYTES


def test_it_is_never_in_a_row(tmp_path: Path) -> None:
    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        streams.create(Create("a", BYTES, LARGE), 5)
        streams.append("a", Append(LARGE, BYTES), 6)
        streams.create(Create("b", BYTES, SMALL), 5)
        assert [row.run for row in in_rows(engine)] == [streams.by_path["b"].config.id]
        assert len(files(tmp_path)) == 2
        assert contents(engine, streams, "a") == [LARGE, LARGE]
        assert not engine.history.making
        assert engine.figures().history.local_bytes > 2 * LARGE_BYTES
    check(tmp_path, streams, {"a": [LARGE, LARGE], "b": [SMALL]})


def test_after_a_row_it_waits_for_sealing(tmp_path: Path) -> None:
    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        streams.create(Create("a", BYTES, LARGE), 5)
        for body in (b"small", LARGE):
            streams.append("a", Append(body, BYTES), 6)
        assert len(files(tmp_path)) == 1
        seal(engine)
        assert in_rows(engine) == []
        streams.append("a", Append(LARGE, BYTES), 7)
        assert in_rows(engine) == []
        wanted = [LARGE, b"small", LARGE, LARGE]
        assert contents(engine, streams, "a") == wanted
    check(tmp_path, streams, {"a": wanted})


def test_all_that_comes_with_it_is_stored(tmp_path: Path) -> None:
    """In one commit with other appends and changes, of the same stream and others."""
    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        streams.create(Create("a", BYTES), 5)
        streams.create(Create("b", BYTES), 5)
        ids = [streams.by_path[path].config.id for path in "ab"]
        appends = [
            Appended(ids[0], 0, LARGE, 0, 1, 6, stream_seq="x"),
            Appended(ids[1], 0, b"first", 0, 1, 6),
            Appended(ids[0], len(LARGE), SMALL, 1, 1, 7),
            Appended(ids[0], len(LARGE) + len(SMALL), LARGE, 2, 1, 8),
            Appended(ids[1], 5, LARGE, 1, 1, 8),
        ]
        engine.commit(appends)
        for append in appends:
            found = engine.appends.append_at(append.stream_id, append.start)
            assert found == replace(append, stream_seq=None)
        assert [row.size_bytes for row in in_rows(engine)] == [
            len(SMALL) + len(LARGE),
            5 + len(LARGE),
        ]
        loaded = engine.streams.load("a")
        assert loaded is not None
        assert loaded.state.last_stream_seq == "x"
        assert loaded.state.messages == 3


@given(st.dictionaries(st.integers(1, 9), st.integers(1, 5), min_size=1), st.integers(1, 3))
def test_shares_are_fair(sizes: dict[int, int], number: int) -> None:
    chosen = {run: [Appended(run, 0, bytes(size), 0, 1, 5)] for run, size in sizes.items()}
    shares = share_out(chosen, number)
    assert len(shares) == min(number, len(chosen))
    assert {run: one for share in shares for run, one in share.items()} == chosen
    assert sum(map(len, shares)) == len(chosen)
    totals = [sum(sizes[run] for run in share) for share in shares]
    assert min(totals) > 0
    assert max(totals) - min(totals) <= max(sizes.values())


def test_several_streams_share_two_files(tmp_path: Path) -> None:
    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        for path in "abc":
            streams.create(Create(path, BYTES), 5)
        ids = {path: streams.by_path[path].config.id for path in "abc"}
        engine.commit([Appended(run, 0, LARGE, 0, 1, 6) for run in ids.values()])
        assert len(files(tmp_path)) == 2
        assert in_rows(engine) == []
        for run in ids.values():
            assert engine.appends.read(Span(run, 0, len(LARGE)), 10**9) == [LARGE]
    with closing(SqliteEngine(tmp_path)) as engine:
        assert [line for line in engine.verify() if isinstance(line, Problem)] == []
        assert len(files(tmp_path)) == 2


def test_what_was_deleted_takes_its_file_along(tmp_path: Path) -> None:
    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        streams.create(Create("a", BYTES, LARGE), 5)
        streams.delete("a", 6)
        while engine.reap(10):
            pass
        assert files(tmp_path) == []


# ── Bad days ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "code, refusal", [(errno.ENOSPC, StorageFull), (errno.EIO, StorageUnavailable)]
)
def test_a_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, refusal: type[StreamError]
) -> None:
    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        streams.create(Create("a", BYTES), 5)
        append = Appended(streams.by_path["a"].config.id, 0, LARGE, 0, 1, 6)

        def refuse(file: int, parts: object) -> int:
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch:
            patch.setattr(os, "writev", refuse)
            with pytest.raises(refusal):
                engine.commit([append])
        assert files(tmp_path) == []
        assert not engine.history.making
        assert engine.appends.append_at(append.stream_id, 0) is None
        streams.append("a", Append(LARGE, BYTES), 7)
    check(tmp_path, streams, {"a": [LARGE]})


@pytest.mark.parametrize("failing", [1, 2])
def test_one_of_two_files_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        for path in "ab":
            streams.create(Create(path, BYTES), 5)
        ids = [streams.by_path[path].config.id for path in "ab"]
        appends = [Appended(run, 0, LARGE, 0, 1, 6) for run in ids]
        finish, lock, calls = SegmentBuilder.finish, threading.Lock(), count(1)

        def refuse(builder: SegmentBuilder) -> SegmentDraft:
            with lock:
                if next(calls) == failing:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            return finish(builder)

        with monkeypatch.context() as patch:
            patch.setattr(SegmentBuilder, "finish", refuse)
            with pytest.raises(StorageUnavailable):
                engine.commit(appends)
        assert files(tmp_path) == []
        for path in "ab":
            streams.append(path, Append(LARGE, BYTES), 7)
    check(tmp_path, streams, {"a": [LARGE], "b": [LARGE]})


def test_a_system_that_allows_no_more_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        for path in "ab":
            streams.create(Create(path, BYTES), 5)
        ids = [streams.by_path[path].config.id for path in "ab"]
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            engine.commit([Appended(run, 0, LARGE, 0, 1, 6) for run in ids])
        assert len(files(tmp_path)) == 1
        engine.commit([Appended(run, len(LARGE), LARGE, 1, 1, 6) for run in ids])
        assert len(files(tmp_path)) == 3


def test_a_commit_that_fails_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteEngine(tmp_path)) as engine:
        streams = CommittedStreams(engine)
        streams.create(Create("a", BYTES), 5)

        def fail(commits: Commits, *_: object) -> None:
            with commits.transaction() as write:
                write.execute("SELECT no_such_function()")

        with monkeypatch.context() as patch:
            patch.setattr(Commits, "commit", fail)
            with pytest.raises(StorageUnavailable):
                engine.commit([Appended(streams.by_path["a"].config.id, 0, LARGE, 0, 1, 6)])
        assert files(tmp_path) == []
        streams.append("a", Append(LARGE, BYTES), 7)
    check(tmp_path, streams, {"a": [LARGE]})
