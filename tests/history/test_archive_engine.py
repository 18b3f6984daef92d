"""History of the PostgreSQL engine: in object storage only, whoever seals, reads and removes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import HistoryUnavailable, StorageUnavailable
from headwater.core.lineage import ForkRequest, Span
from headwater.core.retention import Retention
from headwater.store import copying
from headwater.store.copying import CopyError
from headwater.store.engine import CannotOpen, Problem
from headwater.store.history import gathering, sealing
from headwater.store.history.cold_segments import fetching
from headwater.store.history.object_storage import Remote
from headwater.store.postgresql.copying import PostgresqlCopy
from headwater.store.postgresql.engine import PostgresqlEngine
from headwater.store.postgresql.history import PostgresqlHistory
from headwater.store.sqlite.copying import SqliteTarget
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.archiving import archived, finish, gather, in_rows, objects, seal, tidy
from tests.support.decided import CommittedStreams
from tests.support.postgresql import LEASE_MS, EngineDatabase

BYTES = "application/octet-stream"


def content(engine: PostgresqlEngine, streams: CommittedStreams, path: str) -> bytes:
    """All that a stream holds, as it is read."""
    state, read = streams.by_path[path], bytearray()
    for span in state.config.lineage.spans(0, state.tail):
        position = span.start
        while position < span.end:
            rest = Span(span.run, position, span.end)
            bodies = fetching(partial(engine.appends.read, rest, 100))
            pieces = fetching(partial(engine.appends.read_pieces, rest, 100))
            joined = b"".join(bodies)
            assert joined == b"".join(p if isinstance(p, bytes) else p.read() for p in pieces)
            read += joined
            position += len(joined)
    return bytes(read)


def check(engine: PostgresqlEngine, streams: CommittedStreams) -> None:
    """Every stream is where it was left, and reads the same."""
    for path, state in streams.by_path.items():
        found = engine.streams.load(path)
        assert found is not None
        assert (found.state.tail, found.state.messages) == (state.tail, state.messages)
        assert content(engine, streams, path) == streams.content(state)


def fill(streams: CommittedStreams, paths: tuple[str, ...], count: int = 8) -> None:
    for path in paths:
        if path not in streams.by_path:
            streams.create(Create(path, BYTES), 1_000)
    for number in range(count):
        for path in paths:
            body = b"%s %d;" % (path.encode(), number) * 9
            streams.append(path, Append(body, BYTES), 1_001 + number)


# ── Sealing, reading, removing ───────────────────────────────────────────────────────────────


def test_rows_become_history_and_read_the_same(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        fill(streams, ("a", "b", "c"))
        seal(history)
        assert in_rows(history) == []
        assert len(objects(tmp_path)) == 1
        assert list(history.directory.iterdir()) == []
        check(engine, streams)
        streams.create(Create("fork", fork=ForkRequest("a", "-1", 4)), 2_000)
        fill(streams, ("a", "fork"), 3)
        check(engine, streams)
        seal(history, 512)
        check(engine, streams)
        run = streams.by_path["a"].config.id
        found = engine.appends.sealed_extents(Span(run, 0, streams.by_path["a"].tail))
        assert found[0].start == 0
        assert all(one.url is not None and one.path is None for one in found)
        assert [line for line in engine.verify() if isinstance(line, Problem)] == []
    with archived(database.url, tmp_path) as (engine, _):
        streams.engine = engine
        check(engine, streams)
        at = engine.appends.seek(Span(run, 0, streams.by_path["a"].tail), "first_message", 0)
        assert at is not None


def test_what_nobody_needs_any_more_goes_and_what_forks_need_stays(
    database: EngineDatabase, tmp_path: Path
) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        fill(streams, ("a", "b"))
        seal(history)
        streams.create(Create("fork", fork=ForkRequest("a", "-1", 4)), 2_000)
        fill(streams, ("fork",), 2)
        streams.delete("b", 3_000)
        streams.delete("a", 3_000)
        while engine.reap(3):
            pass
        tidy(history)
        assert len(objects(tmp_path)) == 1
        check(engine, streams)
        streams.delete("fork", 3_001)
        while engine.reap(3):
            pass
        assert history.to_remove(600_000) == []
        tidy(history)
        assert objects(tmp_path) == set()
        assert database.query("SELECT count(*) FROM segments") == [(0,)]


def test_a_trimmed_stream_keeps_what_it_should(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        streams.create(Create("a", BYTES, retention=Retention(size_bytes=1)), 1_000)
        fill(streams, ("a",))
        seal(history, 128)
        files = len(objects(tmp_path))
        tail = streams.by_path["a"].tail
        assert streams.trim("a", tail // 2, 2_000)
        while engine.reap(3):
            pass
        tidy(history)
        assert 0 < len(objects(tmp_path)) < files
        run = streams.by_path["a"].config.id
        left = fetching(partial(engine.appends.append_at, run, tail // 2))
        assert left is not None
        found = engine.streams.load("a")
        assert found is not None
        assert found.state.tail == tail


def test_the_ledger_finds_what_was_there_before(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        fill(CommittedStreams(engine), ("a", "b"))
    with archived(database.url, tmp_path) as (engine, history):
        assert history.needs_survey
        history.keep_ledger()
        history.survey()
        assert not history.needs_survey
        sizes = {run: size for run, (size, _) in history.ledger._runs.items()}
        assert sizes == {one.run: one.size_bytes for one in in_rows(history)}


def test_history_is_copied_as_rows(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        fill(streams, ("a", "b"))
        seal(history)
        fill(streams, ("a",), 2)
    with pytest.raises(CopyError, match="--history-store"), PostgresqlCopy.source(database.url):
        pass
    remote = Remote((tmp_path / "objects").as_uri())
    with (
        PostgresqlCopy.source(database.url, remote=remote) as source,
        SqliteTarget.open(tmp_path / "copy") as target,
    ):
        *_, copied = copying.copy(source, target)
    assert isinstance(copied, copying.Copied)
    assert copied.rows["ops"] == 18
    with closing(SqliteEngine(tmp_path / "copy")) as again:
        for state in streams.by_path.values():
            span = Span(state.config.id, 0, state.tail)
            assert b"".join(again.appends.read(span, 10_000)) == streams.content(state)


# ── Two nodes ────────────────────────────────────────────────────────────────────────────────


def test_a_shard_that_was_given_away_is_not_sealed_any_more(
    database: EngineDatabase, tmp_path: Path
) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        fill(streams, ("a", "b"))
        recording = gather(history)
        shard = database.query("SELECT shard FROM streams WHERE path = 'a'")[0][0]
        database.query(f"UPDATE shards SET node_id = 0 WHERE id = {shard}")
        finish(history, recording)
        own = database.query(f"SELECT count(*) FROM streams WHERE shard <> {shard}")[0][0]
        assert len(in_rows(history)) == 2 - own
        assert history.gather(in_rows(history), 1_000) is None


def test_what_a_node_that_is_gone_was_making_is_adopted_or_removed(
    database: EngineDatabase, tmp_path: Path, small_slices: None
) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        fill(streams, ("a",))
        recording = gather(history)
        history.announce(recording, 5)
        history.publish(recording)
        assert history.record(recording, 5)
        tidy(history)
        fill(streams, ("b",))
        other = gather(history, [one for one in in_rows(history) if one.run == 2])
        history.announce(other, 5)
        history.publish(other)
        tidy(history)
        assert len(objects(tmp_path)) == 2
    with archived(database.url, tmp_path) as (engine, history):
        streams.engine = engine
        tidy(history)
        assert len(objects(tmp_path)) == 1
        check(engine, streams)
        seal(history)
        check(engine, streams)
        assert database.query("SELECT count(*) FROM segments WHERE maker IS NOT NULL") == [(0,)]


def test_a_node_that_was_taken_for_gone_records_nothing(
    database: EngineDatabase, tmp_path: Path
) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        fill(streams, ("a",))
        recording = gather(history)
        history.announce(recording, 5)
        history.publish(recording)
        database.query("DELETE FROM nodes")
        with pytest.raises(StorageUnavailable):
            history.record(recording, 5)
        assert database.query("SELECT count(*) FROM extents") == [(0,)]
        rows = database.query("SELECT count(*) FROM ops")
        assert rows == [(8,)]


# ── Object storage that is away, or somebody else's ──────────────────────────────────────────


def test_rows_stay_while_object_storage_is_away(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        fill(streams, ("a",))
        recording = gather(history)
        history.announce(recording, 5)
        away = (tmp_path / "objects").rename(tmp_path / "away")
        (tmp_path / "objects").write_bytes(b"in the way")
        with pytest.raises(HistoryUnavailable):
            history.publish(recording)
        fill(streams, ("a",))
        check(engine, streams)
        (tmp_path / "objects").unlink()
        away.rename(tmp_path / "objects")
        finish(history, recording)
        check(engine, streams)


def test_the_history_of_another_database_is_left_alone(
    database: EngineDatabase, tmp_path: Path
) -> None:
    Remote((tmp_path / "objects").as_uri()).put_owner("somebody else")
    with archived(database.url, tmp_path) as (engine, history):
        fill(CommittedStreams(engine), ("a",))
        recording = gather(history)
        history.announce(recording, 5)
        with pytest.raises(HistoryUnavailable, match="another database"):
            history.publish(recording)
        assert objects(tmp_path) == set()


def test_a_place_that_lacks_the_history_is_refused(
    database: EngineDatabase, tmp_path: Path
) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        fill(CommittedStreams(engine), ("a",))
        seal(history)
    (tmp_path / "objects").rename(tmp_path / "elsewhere")
    with archived(database.url, tmp_path) as (engine, history):
        history.look()
        with pytest.raises(HistoryUnavailable, match="does not hold"):
            history.claim()


def test_a_node_without_object_storage_says_so(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        fill(streams, ("a",))
        seal(history)
    plain = PostgresqlEngine(database.url, lease_ms=LEASE_MS)
    try:
        found = plain.streams.load("a")
        assert found is not None
        assert found.state.tail == streams.by_path["a"].tail
        with pytest.raises(HistoryUnavailable, match="--history-store"):
            plain.appends.read(Span(found.state.config.id, 0, found.state.tail), 100)
    finally:
        plain.close()


def test_two_nodes_need_two_directories(database: EngineDatabase, tmp_path: Path) -> None:
    with (
        archived(database.url, tmp_path, address="http://127.0.0.1:1"),
        pytest.raises(CannotOpen, match="in use by another"),
    ):
        PostgresqlEngine(database.url, address="http://127.0.0.1:2", cache=tmp_path / "1")


# ── Killed at every step ─────────────────────────────────────────────────────────────────────

STEPS = (
    "verified",
    "before announcing",
    "announced",
    "upload begun",
    "uploaded",
    "upload verified",
    "before commit",
    "committed",
    "finished",
    "before removing",
    "removed",
)


class Killed(BaseException):
    """Whatever was under way ends here, and PostgreSQL undoes what was not committed."""


def killed_at(wanted: str) -> Callable[[str], None]:
    """The second time: by then there is something before it and something after it."""
    taken: Counter[str] = Counter()

    def step(name: str) -> None:
        taken[name] += 1
        if (name, taken[name]) == (wanted, 2):
            raise Killed

    return step


def live(engine: PostgresqlEngine, history: PostgresqlHistory, streams: CommittedStreams) -> None:
    """Everything that changes segments."""
    fill(streams, ("a", "b"))
    seal(history)
    for path in ("c", "d"):
        fill(streams, (path,))
        seal(history)
        streams.delete(path, 3_000)
    while engine.reap(500):
        pass
    tidy(history)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few appends are recorded in several transactions."""
    monkeypatch.setattr(gathering, "SLICE_APPENDS", 2)
    monkeypatch.setattr(sealing, "_SLICE_APPENDS", 4)


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_nothing_is_lost_or_left_over(
    step: str, database: EngineDatabase, tmp_path: Path, small_slices: None
) -> None:
    with archived(database.url, tmp_path, killed_at(step)) as (engine, history):
        streams = CommittedStreams(engine)
        with pytest.raises(Killed):
            live(engine, history, streams)
    with archived(database.url, tmp_path) as (engine, history):
        assert list(history.directory.parent.glob("segments/*")) == []
        streams.engine = engine
        check(engine, streams)
        seal(history)
        check(engine, streams)
        tidy(history)
        known = {name for (name,) in database.query("SELECT name FROM segments")}
        assert objects(tmp_path) == known
        assert [line for line in engine.verify() if isinstance(line, Problem)] == []
