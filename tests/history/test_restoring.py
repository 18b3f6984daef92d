"""A directory is lost, and object storage gives back what it has."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import StreamClosed
from headwater.core.groups.config import GroupConfig
from headwater.core.groups.mutations import GroupCreated
from headwater.core.groups.state import GroupRecord, MessageRef
from headwater.core.lineage import ForkRequest
from headwater.core.producers import ProducerStamp
from headwater.core.retention import Retention
from headwater.core.unique_ids import UniqueIds
from headwater.store.engine import Problem
from headwater.store.engine.streams import LoadedStream
from headwater.store.history import recovery
from headwater.store.history.archive import Archive
from headwater.store.history.catalog import decode_catalog, encode_catalog, make_catalog
from headwater.store.history.cold_segments import fetching
from headwater.store.history.object_storage import Remote
from headwater.store.history.recovery import Missing, restore
from headwater.store.sqlite.database import DATABASE_NAME, DataDirectoryError
from headwater.store.sqlite.engine import SqliteEngine
from headwater.store.verify import verify_database
from tests.support.decided import CommittedStreams
from tests.support.sealing import archive_all, seal

BYTES = "application/octet-stream"


class Site:
    """A server's directory with its object storage, and the place to restore to."""

    def __init__(self, directory: Path) -> None:
        self.data, self.new = directory / "data", directory / "new"
        self.remote = Remote((directory / "far").as_uri())
        self.engine = SqliteEngine(self.data)
        self.archive = Archive(self.engine.history, self.remote, 10**6)
        self.streams = CommittedStreams(self.engine)

    def upload(self) -> None:
        seal(self.engine)
        archive_all(self.archive, 10**9)

    def catalog(self, now_ms: int = 5_000) -> None:
        self.archive.catalog(now_ms)

    def append(self, path: str, body: bytes, **options: object) -> None:
        self.streams.append(path, Append(body, BYTES, **options), 2_000)  # type: ignore[arg-type]

    def restored(self) -> SqliteEngine:
        engine = SqliteEngine(self.new)
        Archive(engine.history, self.remote, 10**6)
        return engine

    def content(self, engine: SqliteEngine, path: str) -> bytes:
        loaded = engine.streams.load(path)
        assert loaded is not None
        config = loaded.state.config
        return b"".join(
            body
            for span in config.lineage.spans(config.kept_from, loaded.state.tail)
            for body in fetching(partial(engine.appends.read, span, 10**9))
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def problems(directory: Path) -> list[Problem]:
    return [
        line for line in verify_database(directory / DATABASE_NAME) if isinstance(line, Problem)
    ]


def known(loaded: LoadedStream | None) -> object:
    """What is loaded, without the moments when producers were used: those begin again."""
    assert loaded is not None
    state = loaded.state
    seen = {name: one[:2] for name, one in state.producers.items()}
    return replace(state, producers={}), seen, loaded.producers_complete


def test_everything_comes_back_when_everything_was_uploaded(site: Site) -> None:
    streams = site.streams
    streams.create(Create("a", BYTES, b"first;"), 1_000)
    for seq in range(3):
        site.append("a", b"%d;" % seq, producer=ProducerStamp("p", 1, seq), stream_seq=str(seq))
    streams.create(Create("empty"), 1_000)
    streams.create(Create("closed", BYTES, b"all", closed=True), 1_000)
    streams.create(Create("fork", fork=ForkRequest("a", "-1", 3)), 1_000)
    site.append("fork", b"own")
    streams.create(Create("gone", BYTES, b"gone"), 1_000)
    streams.create(Create("short", BYTES, b"0123", retention=Retention(size_bytes=4)), 1_000)
    site.append("short", b"4567")
    streams.trim("short", 4, 2_000)
    site.upload()
    streams.delete("gone", 3_000)
    while site.engine.reap(10):
        pass
    site.catalog()
    wanted = {path: site.engine.streams.load(path) for path in streams.by_path}
    next_id = site.engine.streams.next_id()
    site.engine.close()
    result = restore(site.remote, site.new)
    assert (result.missing, result.skipped, result.made_at_ms) == ([], [], 5_000)
    assert result.streams == len(wanted)
    assert [path.name for path in site.new.iterdir()] == [DATABASE_NAME]
    with closing(site.restored()) as engine:
        for path, loaded in wanted.items():
            assert known(engine.streams.load(path)) == known(loaded)
        assert site.content(engine, "a") == b"first;0;1;2;"
        assert site.content(engine, "fork") == b"firown"
        assert site.content(engine, "short") == b"4567"
        assert engine.streams.load("gone") is None
        assert engine.streams.next_id() >= next_id + 1_000, "ids of the time between are not reused"
    assert problems(site.new) == []


def test_what_was_not_uploaded_is_missing_and_can_be_sent_again(site: Site) -> None:
    streams, engine = site.streams, site.engine
    ids = UniqueIds("fail")
    streams.create(Create("a", BYTES, unique_ids=ids), 1_000)
    for seq in range(2):
        stamp = ProducerStamp("p", 4, seq)
        site.append(
            "a", b"%d" % seq * 10, producer=stamp, message_id=f"m{seq}", stream_seq=f"{seq}"
        )
    site.append("a", b"q" * 10, producer=ProducerStamp("q", 0, 0), message_id="mq")
    site.upload()
    site.append("a", b"2" * 10, producer=ProducerStamp("p", 4, 2), message_id="m2", stream_seq="6")
    site.append("a", b"r" * 10, producer=ProducerStamp("r", 0, 0), message_id="mr", close=True)
    record = GroupRecord(1, 1, "g", 1_000)
    engine.commit([GroupCreated(record, GroupConfig(), MessageRef(5, 50, 0))])
    streams.create(Create("new", BYTES, b"never uploaded"), 1_000)
    site.catalog()
    engine.close()
    result = restore(site.remote, site.new)
    assert result.missing == [Missing("a", 20, 2), Missing("new", 14, 1)]
    with closing(site.restored()) as engine:
        loaded = engine.streams.load("a")
        assert loaded is not None
        state = loaded.state
        assert (state.tail, state.messages, state.closed) == (30, 3, False)
        assert state.last_stream_seq is None
        assert {name: one[:2] for name, one in state.producers.items()} == {
            "p": (4, 1),
            "q": (0, 0),
        }
        spans = state.config.lineage.spans(0, 100)
        assert engine.appends.known_ids(spans, ["m0", "m1", "mq", "m2", "mr"]) == {"m0", "m1", "mq"}
        (group,) = engine.groups.of_stream(1)
        assert group.cursor == MessageRef(3, 30, 0)
        assert site.content(engine, "a") == b"0" * 10 + b"1" * 10 + b"q" * 10
        assert site.content(engine, "new") == b""
        # And it continues from there, as if the rest had never been.
        again = CommittedStreams(engine)
        again.by_path["a"] = again.by_id[1] = state
        again.appends[1] = []
        stamp = ProducerStamp("p", 4, 2)
        reply = again.append("a", Append(b"2", BYTES, producer=stamp, message_id="m2"), 9_000)
        assert not reply.duplicate
    assert problems(site.new) == []


def test_a_fork_of_what_is_missing_is_missing(site: Site) -> None:
    site.streams.create(Create("a", BYTES, b"uploaded"), 1_000)
    site.upload()
    site.append("a", b"not uploaded")
    site.streams.create(Create("early", fork=ForkRequest("a", "-1", 4)), 1_000)
    site.streams.create(Create("late", fork=ForkRequest("a")), 1_000)
    site.streams.delete("a", 3_000)
    site.catalog()
    site.engine.close()
    result = restore(site.remote, site.new)
    assert Missing("late", 12, 0, whole_stream=True) in result.missing
    with closing(site.restored()) as engine:
        assert site.content(engine, "early") == b"uplo"
        assert engine.streams.load("late") is None
    assert problems(site.new) == []


def test_a_source_that_is_deleted_need_not_be_whole(site: Site) -> None:
    """Of a deleted source, only what a fork needs is there, and that is enough for the fork."""
    streams = site.streams
    streams.create(Create("source", BYTES, b"0123", retention=Retention(size_bytes=4)), 1_000)
    site.upload()
    site.append("source", b"4567")
    site.upload()
    streams.trim("source", 4, 2_000)
    streams.create(Create("middle", fork=ForkRequest("source")), 2_001)
    site.append("middle", b"89")
    site.upload()
    early = site.engine.streams.load("source")
    assert early is not None
    fork = ForkRequest("middle", early.state.token(4), 2)
    streams.create(Create("fork", fork=fork), 2_002)
    for path in ("source", "middle"):
        streams.delete(path, 3_000)
    while site.engine.reap(10):
        pass
    assert site.content(site.engine, "fork") == b"45"
    assert site.engine._query("SELECT run, start FROM extents") == [(1, 4)]
    assert problems(site.data) == []
    site.catalog()
    site.engine.close()
    assert restore(site.remote, site.new).missing == []
    with closing(site.restored()) as engine:
        assert site.content(engine, "fork") == b"45"
    assert problems(site.new) == []


def test_a_gap_ends_a_stream(site: Site) -> None:
    """A segment in the middle was not uploaded; what follows it cannot be used."""
    site.streams.create(Create("a", BYTES, b"one"), 1_000)
    site.upload()
    site.append("a", b"two")
    seal(site.engine)
    hole = site.archive.to_upload()
    site.append("a", b"three")
    seal(site.engine)
    for row in site.archive.to_upload():
        if row not in hole:
            site.archive.note_begun(row)
            site.archive.upload(row)
            site.archive.note_uploaded(row)
    site.catalog()
    site.engine.close()
    assert restore(site.remote, site.new).missing == [Missing("a", 8, 2)]
    with closing(site.restored()) as engine:
        assert site.content(engine, "a") == b"one"
    assert problems(site.new) == []


def test_a_damaged_catalog_gives_way_to_the_one_before(site: Site, tmp_path: Path) -> None:
    site.streams.create(Create("a", BYTES, b"one"), 1_000)
    site.upload()
    for now_ms in (5_000, 6_000, 7_000, 8_000):
        site.catalog(now_ms)
    site.engine.close()
    catalogs = sorted((tmp_path / "far" / "catalogs").iterdir())
    assert len(catalogs) == 3, "only the last ones are kept"
    content = bytearray(catalogs[-1].read_bytes())
    content[40] ^= 1
    catalogs[-1].write_bytes(content)
    result = restore(site.remote, site.new)
    assert result.made_at_ms == 7_000
    assert len(result.skipped) == 1


def test_what_cannot_be_restored_is_said(site: Site) -> None:
    with pytest.raises(DataDirectoryError, match="no catalog"):
        restore(site.remote, site.new)
    site.catalog()
    site.engine.close()
    with pytest.raises(DataDirectoryError, match="already"):
        restore(site.remote, site.data)
    restore(site.remote, site.new)


def test_catalogs_are_read_back(site: Site) -> None:
    site.streams.create(Create("a", "application/json", b'[1, "ab"]'), 1_000)
    catalog = make_catalog(site.engine._reader(), 77)
    assert decode_catalog("x", encode_catalog(catalog)) == catalog
    assert [reach.end for reach in catalog.in_rows] == [7]
    site.engine.close()


def test_streams_restored_as_closed_stay_so(site: Site) -> None:
    site.streams.create(Create("a", BYTES, b"all", closed=True), 1_000)
    site.upload()
    site.catalog()
    site.engine.close()
    restore(site.remote, site.new)
    with closing(site.restored()) as engine:
        loaded = engine.streams.load("a")
        assert loaded is not None
        again = CommittedStreams(engine)
        again.by_path["a"] = loaded.state
        with pytest.raises(StreamClosed):
            again.append("a", Append(b"x", BYTES), 9_000)


def test_a_database_is_moved_into_place_only_when_all_of_it_is_in_the_file(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log stays behind."""
    site.streams.create(Create("a", BYTES, b"first"), 1_000)
    site.upload()
    site.catalog()
    site.engine.close()
    monkeypatch.setattr(recovery, "empty_log", lambda write: False)
    with pytest.raises(DataDirectoryError, match="in use"):
        restore(site.remote, site.new)
    assert not (site.new / DATABASE_NAME).exists()
    monkeypatch.undo()
    restore(site.remote, site.new)
    with closing(site.restored()) as engine:
        assert site.content(engine, "a") == b"first"
