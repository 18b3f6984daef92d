"""Compaction of history that is in object storage only: nothing changes but the files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headwater.core.decisions import Create
from headwater.core.errors import DataCorrupt, HistoryUnavailable, StorageUnavailable
from headwater.core.limits import MIB, Limits
from headwater.core.retention import Retention
from headwater.service import background
from headwater.service.history import compacting as compacting_module
from headwater.service.history import publishing as publishing_module
from headwater.service.log import Log
from headwater.store.engine import Problem
from headwater.store.history import compaction
from headwater.store.history.policies import ArchivePolicy
from headwater.store.history.remote import RemoteRewriting
from headwater.store.history.sealing import Recording
from headwater.store.history.segment_writer import SegmentDraft, Step, nothing
from headwater.store.postgresql.engine import PostgresqlEngine
from headwater.store.postgresql.history import PostgresqlHistory
from tests.history.test_archive_engine import BYTES, Killed, check, fill, killed_at
from tests.support import cluster
from tests.support.archiving import archived, compact, copied, move, objects, seal, tidy
from tests.support.decided import CommittedStreams
from tests.support.logs import data, read_all, until
from tests.support.postgresql import LEASE_MS, EngineDatabase
from tests.support.sealing import AT_ONCE

PATHS = ("a", "b", "c")


def scatter(history: PostgresqlHistory, streams: CommittedStreams, rounds: int = 6) -> None:
    """Several small files, each with something of every stream."""
    for _ in range(rounds):
        fill(streams, PATHS, 2)
        seal(history)


def require_tidy(
    engine: PostgresqlEngine, history: PostgresqlHistory, database: EngineDatabase, directory: Path
) -> None:
    """What is in object storage is known, whole, and needed by somebody; nothing is left here."""
    tidy(history)
    used = "SELECT name FROM segments WHERE id IN (SELECT segment_id FROM extents)"
    assert objects(directory) == {name for (name,) in database.query(used)}
    assert database.query("SELECT count(*) FROM segments") == [(len(objects(directory)),)]
    assert list(history.directory.glob("*")) == []
    assert history.making == set()
    assert [line for line in engine.verify() if isinstance(line, Problem)] == []


def extents(database: EngineDatabase) -> int:
    return int(database.query("SELECT count(*) FROM extents")[0][0])


def test_nothing_changes_but_the_files(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        scatter(history, streams)
        before = objects(tmp_path)
        assert (len(before), extents(database)) == (6, 18)
        assert compact(history, company=8) == 0, "they wait for company"
        assert compact(history) == 1
        check(engine, streams)
        assert before < objects(tmp_path), "somebody may be reading the old ones"
        require_tidy(engine, history, database, tmp_path)
        assert (len(objects(tmp_path)), extents(database)) == (1, 3)
        check(engine, streams)
        fill(streams, PATHS, 2)
        check(engine, streams)
    with archived(database.url, tmp_path) as (engine, history):
        streams.engine = engine
        check(engine, streams)
        seal(history)
        assert compact(history) == 1
        require_tidy(engine, history, database, tmp_path)
        check(engine, streams)


def test_space_that_nobody_needs_is_given_back(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        fill(streams, ("a", "b", "c", "d"))
        seal(history)
        (large,) = objects(tmp_path)
        for path in ("b", "c", "d"):
            streams.delete(path, 3_000)
        while engine.reap(100):
            pass
        # By themselves: it is large enough, but hardly anyone needs it.
        assert compact(history, segment_bytes=1_000) == 1
        require_tidy(engine, history, database, tmp_path)
        (small,) = objects(tmp_path)
        assert small != large
        check(engine, streams)
        assert compact(history, segment_bytes=1_000) == 0


def test_what_goes_while_it_is_copied(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        streams.create(Create("a", BYTES, retention=Retention(size_bytes=1)), 1_000)
        scatter(history, streams)
        rewriting = copied(history, [one.row for one in history.uses()])
        assert streams.trim("a", streams.by_path["a"].tail // 2, 2_000)
        streams.delete("b", 3_000)
        while engine.reap(100):
            pass
        left = extents(database)
        move(history, rewriting)
        assert extents(database) == left - 5, "only what is whole is joined"
        check_kept(engine, streams)
        require_tidy(engine, history, database, tmp_path)
        streams.delete("a", 4_000)
        streams.delete("c", 4_000)
        while engine.reap(100):
            pass
        require_tidy(engine, history, database, tmp_path)
        assert objects(tmp_path) == set()


def check_kept(engine: PostgresqlEngine, streams: CommittedStreams) -> None:
    """The trimmed stream has what it should have, and the other one everything."""
    trimmed = streams.by_path.pop("a")
    check(engine, streams)
    streams.by_path["a"] = trimmed
    found = engine.streams.load("a")
    assert found is not None
    assert found.state.tail == trimmed.tail


def test_all_of_it_goes_while_it_is_copied(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        scatter(history, streams)
        files = [one.row for one in history.uses()]
        rewriting = copied(history, files)
        for path in PATHS:
            streams.delete(path, 3_000)
        while engine.reap(100):
            pass
        move(history, rewriting)
        with pytest.raises(FileNotFoundError):
            history.rewriting(files)
        require_tidy(engine, history, database, tmp_path)
        assert objects(tmp_path) == set()


def shards_of(database: EngineDatabase) -> dict[str, int]:
    return dict(database.query("SELECT path, shard FROM streams"))


def give(database: EngineDatabase, shard: int, node_id: int) -> None:
    database.query(f"UPDATE shards SET node_id = {node_id}, epoch = epoch + 1 WHERE id = {shard}")


def test_each_node_rewrites_what_is_its_own(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path, address="http://n:1") as (engine, history):
        free = "SELECT 1 FROM shards WHERE node_id IS NULL LIMIT 1"
        cluster.until(lambda: database.query(free) == [])
        engine._keeper.look()
        streams = CommittedStreams(engine)
        scatter(history, streams)
        shards = shards_of(database)
        assert len({*shards.values()}) > 1
        with archived(database.url, tmp_path, address="http://n:2") as (second, others):
            give(database, shards["a"], others.node_id)
            for one in (engine, second):
                one._keeper.look()
            given = {path for path, shard in shards.items() if shard == shards["a"]}
            before = objects(tmp_path)
            assert compact(history) == 1
            assert extents(database) == 3 - len(given) + 6 * len(given)
            tidy(history)
            assert before < objects(tmp_path), "the other node has something in them"
            # What is left in them is little by now, so they wait for no company.
            assert compact(others, company=8) == 1
            assert extents(database) == 3
            tidy(others)
            assert len(objects(tmp_path)) == 2
            assert not before & objects(tmp_path)
            assert [line for line in second.verify() if isinstance(line, Problem)] == []
        give(database, shards["a"], history.node_id)
        engine._keeper.look()
        check(engine, streams)


def test_what_is_given_away_while_it_is_copied_stays(
    database: EngineDatabase, tmp_path: Path
) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        scatter(history, streams)
        shards = shards_of(database)
        given = [path for path, shard in shards.items() if shard == shards["a"]]
        rewriting = copied(history, [one.row for one in history.uses()])
        give(database, shards["a"], 0)
        move(history, rewriting)
        assert extents(database) == 3 - len(given) + 6 * len(given)
        give(database, shards["a"], history.node_id)
        check(engine, streams)
        assert compact(history, company=8) == 1
        require_tidy(engine, history, database, tmp_path)
        check(engine, streams)


def test_a_node_that_was_taken_for_gone_moves_nothing(
    database: EngineDatabase, tmp_path: Path
) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        scatter(history, streams)
        rewriting = copied(history, [one.row for one in history.uses()])
        assert rewriting.recording is not None
        history.announce(rewriting.recording, 5)
        history.publish(rewriting.recording)
        database.query("DELETE FROM nodes")
        with pytest.raises(StorageUnavailable):
            rewriting.record()
        assert extents(database) == 18


def test_a_damaged_file_stays_and_the_others_are_rewritten(
    database: EngineDatabase, tmp_path: Path
) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        scatter(history, streams)
        name = min(objects(tmp_path))
        path = tmp_path / "objects" / "segments" / name
        whole = path.read_bytes()
        path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        with pytest.raises(DataCorrupt):
            compact(history)
        assert compact(history) == 1
        tidy(history)
        assert len(objects(tmp_path)) == 2
        assert name in objects(tmp_path)
        path.write_bytes(whole)
        history.damaged.clear()
        check(engine, streams)
        require_tidy(engine, history, database, tmp_path)


STEPS = (
    "created",
    "renamed",
    "verified",
    "before announcing",
    "announced",
    "upload begun",
    "uploaded",
    "upload verified",
    "before moving",
    "moved",
    "finished",
    "before removing",
    "removed",
)


def live(history: PostgresqlHistory, streams: CommittedStreams, step: Step) -> None:
    """Files are rewritten twice; only that counts."""
    for _ in range(2):
        history.step = nothing
        scatter(history, streams)
        history.step = step
        compact(history)
        tidy(history)


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_nothing_is_lost_or_left_over(
    step: str, database: EngineDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "_SLICE_EXTENTS", 6)
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        with pytest.raises(Killed):
            live(history, streams, killed_at(step))
    with archived(database.url, tmp_path) as (engine, history):
        streams.engine = engine
        check(engine, streams)
        require_tidy(engine, history, database, tmp_path)
        while compact(history):
            tidy(history)
        check(engine, streams)
        require_tidy(engine, history, database, tmp_path)
        assert (len(objects(tmp_path)), extents(database)) == (1, 3)


# ── In the running log ───────────────────────────────────────────────────────────────────────

LIMITS = Limits(hot_bytes_per_stream_max=0, chunk_bytes_max=1_000)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (compacting_module, publishing_module):
        monkeypatch.setattr(module, "_PAUSE_S", 0.01)
    monkeypatch.setattr(compacting_module, "_REST_PER_LOOK", 0)
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S", 0.01)
    monkeypatch.setattr(background, "_PAUSE_AFTER_FAILURE_S_MAX", 0.01)


@asynccontextmanager
async def running(url: str, directory: Path) -> AsyncIterator[tuple[Log, PostgresqlHistory]]:
    engine = PostgresqlEngine(url, lease_ms=LEASE_MS, cache=directory / "node")
    archive = ArchivePolicy((directory / "objects").as_uri(), 0, MIB, unused_kept_ms=0)
    log = await Log.start(engine, LIMITS, sealing=AT_ONCE, archive=archive)
    try:
        assert engine.history is not None
        yield log, engine.history
    finally:
        await log.stop()


async def append_and_seal(log: Log, database: EngineDatabase, rounds: int) -> bytes:
    content = b""
    for number in range(rounds):
        content += b"%d;" % number * 40
        await log.append("s", data(b"%d;" % number * 40))
        await until(lambda: database.query("SELECT 1 FROM ops LIMIT 1") == [])
        assert await read_all(log, "s") == content
    return content


async def test_many_files_become_few_while_they_are_read(
    database: EngineDatabase, tmp_path: Path, impatient: None
) -> None:
    async with running(database.url, tmp_path) as (log, _):
        await log.create(Create("s"))
        content = await append_and_seal(log, database, 20)
        await until(lambda: len(objects(tmp_path)) < 12)
        assert log.compacting is not None
        assert log.compacting.files >= 8
        assert await read_all(log, "s") == content
    async with running(database.url, tmp_path) as (log, _):
        assert await read_all(log, "s") == content


async def test_an_upload_that_fails_is_made_again(
    database: EngineDatabase, tmp_path: Path, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0
    publish = PostgresqlHistory.publish
    finish = RemoteRewriting.finish
    rewritten: set[int] = set()

    def noted(rewriting: RemoteRewriting) -> SegmentDraft:
        draft = finish(rewriting)
        rewritten.add(draft.id)
        return draft

    def refuse(history: PostgresqlHistory, recording: Recording) -> None:
        nonlocal refused
        if recording.draft.id in rewritten and refused < 3:
            refused += 1
            raise HistoryUnavailable("not now")
        publish(history, recording)

    monkeypatch.setattr(RemoteRewriting, "finish", noted)
    monkeypatch.setattr(PostgresqlHistory, "publish", refuse)
    async with running(database.url, tmp_path) as (log, _):
        await log.create(Create("s"))
        content = await append_and_seal(log, database, 12)
        await until(lambda: len(objects(tmp_path)) < 8)
        assert refused == 3
        assert await read_all(log, "s") == content
        await until(lambda: "compacting" not in log.problems())


async def test_it_can_be_switched_off(database: EngineDatabase, tmp_path: Path) -> None:
    engine = PostgresqlEngine(database.url, lease_ms=LEASE_MS, cache=tmp_path / "node")
    archive = ArchivePolicy((tmp_path / "objects").as_uri(), 0, 0)
    policy = type(AT_ONCE)(1, 0, compact_bytes_per_second=0)
    log = await Log.start(engine, LIMITS, sealing=policy, archive=archive)
    try:
        assert log.compacting is None
    finally:
        await log.stop()


def test_object_storage_that_is_away(database: EngineDatabase, tmp_path: Path) -> None:
    with archived(database.url, tmp_path) as (engine, history):
        streams = CommittedStreams(engine)
        scatter(history, streams)
        files = [one.row for one in history.uses()]
        (tmp_path / "objects").rename(tmp_path / "away")
        with pytest.raises(DataCorrupt):
            history.rewriting(files)
        (tmp_path / "away").rename(tmp_path / "objects")
        history.damaged.clear()
        assert compact(history) == 1
        require_tidy(engine, history, database, tmp_path)
        check(engine, streams)
