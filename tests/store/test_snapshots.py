"""Snapshots, over every engine."""

from __future__ import annotations

from headwater.core.decisions import Create
from headwater.core.snapshots import SnapshotDropped, SnapshotTaken
from headwater.core.stream import Deleted
from headwater.store.engine import Engine
from tests.support.decided import CommittedStreams


def taken(position: int, body: bytes = b"{}", at_ms: int = 5) -> SnapshotTaken:
    return SnapshotTaken(1, at_ms, position, "application/json", body)


def test_the_newest_are_kept(engine: Engine, streams: CommittedStreams) -> None:
    streams.create(Create("s"), 0)
    engine.commit([taken(30), taken(10), taken(20)])
    assert [one.position for one in engine.snapshots.of_stream(1)] == [30, 20, 10]
    engine.commit([taken(40, b"\x00\xff")])
    assert [one.position for one in engine.snapshots.of_stream(1)] == [40, 30, 20]
    assert engine.snapshots.of_stream(1)[0] == taken(40, b"\x00\xff").info
    assert engine.snapshots.find(1, 40) == taken(40, b"\x00\xff")
    assert engine.snapshots.find(1, 10) is None
    assert engine.snapshots.of_stream(2) == []


def test_one_takes_the_place_of_another(engine: Engine, streams: CommittedStreams) -> None:
    streams.create(Create("s"), 0)
    engine.commit([taken(10), taken(10, b"[]", 9)])
    assert engine.snapshots.find(1, 10) == taken(10, b"[]", 9)
    engine.commit([SnapshotDropped(1, 10), SnapshotDropped(1, 11)])
    assert engine.snapshots.of_stream(1) == []


def test_snapshots_go_with_their_stream(engine: Engine, streams: CommittedStreams) -> None:
    streams.create(Create("s"), 0)
    engine.commit([taken(10)])
    engine.commit([Deleted(1, 7), taken(20)])
    while engine.reap(10):
        pass
    assert engine.snapshots.of_stream(1) == []
