"""Deleted streams that are kept for a while, over every engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headwater.core.decisions import Append, Create
from headwater.core.groups.config import GroupConfig
from headwater.core.groups.mutations import GroupCreated
from headwater.core.groups.state import GroupRecord, MessageRef
from headwater.core.lineage import Span
from headwater.core.producers import ProducerStamp
from headwater.core.stream import Deleted, Purged, StreamState, Trimmed, Undeleted
from headwater.store.engine import Engine
from headwater.store.sqlite.engine import SqliteEngine
from tests.store.test_contract import append, loaded
from tests.support.decided import CommittedStreams


def reap_all(engine: Engine) -> None:
    while engine.reap(100):
        pass


def make(streams: CommittedStreams, path: str, body: bytes) -> StreamState:
    streams.create(Create(path), 1_000)
    stamp = ProducerStamp("p", 0, 0)
    streams.append(path, append(body, producer=stamp), 2_000)
    return loaded(streams.engine, path)


def delete(engine: Engine, state: StreamState, at_ms: int, until_ms: int) -> None:
    engine.commit([Deleted(state.config.id, at_ms, until_ms)])


def bodies(engine: Engine, state: StreamState) -> bytes:
    found: list[bytes] = []
    for span in state.config.lineage.spans(state.config.kept_from, state.tail):
        found += engine.appends.read(span, 1_000)
    return b"".join(found)


def test_a_kept_stream_is_hidden_and_comes_back(streams: CommittedStreams) -> None:
    engine = streams.engine
    state = make(streams, "a/s", b"hello")
    record = GroupRecord(1, state.config.id, "g", 3_000)
    engine.commit([GroupCreated(record, GroupConfig(), MessageRef(0, 0, 0))])
    delete(engine, state, 5_000, 9_000)
    reap_all(engine)
    assert engine.streams.load("a/s") is None
    assert engine.streams.load_id(state.config.id) is None
    assert engine.streams.summaries("", "", 10) == []
    (listed,) = engine.streams.deleted("a/", "", 10)
    assert (listed.path, listed.deleted_at_ms, listed.kept_until_ms) == ("a/s", 5_000, 9_000)
    assert listed.summary.size_bytes == 5
    assert engine.streams.deleted("b", "", 10) == []
    assert engine.streams.deleted("", "a/s", 10) == []
    found = engine.streams.load_deleted("a/s")
    assert found is not None
    assert found.state == state
    engine.commit([Undeleted(state.config.id, 6_000, found.state)])
    back = loaded(engine, "a/s")
    assert back == replace(state, touched_at_ms=6_000, stored_touch_ms=6_000)
    assert bodies(engine, back) == b"hello"
    assert [group.record.name for group in engine.groups.of_stream(state.config.id)] == ["g"]
    assert engine.streams.load_deleted("a/s") is None
    assert engine.streams.purgeable(2**50, 10) == []


def test_a_purged_stream_goes_like_any_other(streams: CommittedStreams) -> None:
    engine = streams.engine
    state = make(streams, "s", b"hello")
    delete(engine, state, 5_000, 9_000)
    assert engine.streams.purgeable(8_999, 10) == []
    assert engine.streams.purgeable(9_000, 10) == [(state.config.id, "s")]
    engine.commit([Purged(state.config.id)])
    reap_all(engine)
    assert engine.streams.load_deleted("s") is None
    assert engine.streams.deleted("", "", 10) == []
    assert engine.streams.purgeable(2**50, 10) == []
    assert engine.appends.append_at(state.config.id, 0) is None
    assert engine.streams.producer(state.config.id, "p") is None


def test_of_several_at_one_path_the_last_comes_first(streams: CommittedStreams) -> None:
    engine = streams.engine
    ids = []
    for number in range(3):
        state = make(streams, "s", b"x" * (number + 1))
        ids.append(state.config.id)
        delete(engine, state, 5_000 + number, 9_000 + number)
        streams.by_path.clear()
    (listed,) = engine.streams.deleted("", "", 10)
    assert listed.summary.size_bytes == 3
    found = engine.streams.load_deleted("s")
    assert found is not None
    assert found.state.config.id == ids[2]
    assert engine.streams.kept_beyond(3, 10) == []
    assert engine.streams.kept_beyond(2, 10) == [(ids[0], "s")]
    assert engine.streams.purgeable(9_001, 1) == [(ids[0], "s")]
    # The path is taken by another one: there is nothing to undelete.
    make(streams, "s", b"new")
    assert engine.streams.deleted("", "", 10) == []


def test_what_was_trimmed_before_is_collected_after(streams: CommittedStreams) -> None:
    engine = streams.engine
    state = make(streams, "s", b"12345")
    streams.append("s", Append(b"67890", state.config.content_type), 2_500)
    state = loaded(engine, "s")
    config = replace(state.config, kept_from=5)
    engine.commit([Trimmed(config.id, 3_000, config), Deleted(config.id, 3_000, 9_000)])
    reap_all(engine)
    found = engine.streams.load_deleted("s")
    assert found is not None
    engine.commit([Undeleted(config.id, 4_000, found.state)])
    reap_all(engine)
    assert bodies(engine, loaded(engine, "s")) == b"67890"
    assert engine.appends.outline_at(config.id, 0) is None
    assert engine.appends.read(Span(config.id, 5, 10), 100) == [b"67890"]


def test_a_kept_stream_survives_a_restart(directory: Path) -> None:
    engine = SqliteEngine(directory)
    streams = CommittedStreams(engine)
    state = make(streams, "s", b"hello")
    delete(engine, state, 5_000, 9_000)
    engine.close()
    engine = SqliteEngine(directory)
    reap_all(engine)
    assert engine.streams.next_id() == 2
    found = engine.streams.load_deleted("s")
    assert found is not None
    engine.commit([Undeleted(state.config.id, 6_000, found.state)])
    assert bodies(engine, loaded(engine, "s")) == b"hello"
    assert not [line for line in engine.verify() if not isinstance(line, str)]
    engine.close()
