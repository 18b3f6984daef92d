"""Collection costs what it collects: streams looked at and rows touched are counted here."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.lineage import ForkRequest
from headwater.core.retention import Retention
from headwater.store.engine import Engine
from headwater.store.garbage import VISITS_PER_STEP
from headwater.store.memory.engine import MemoryEngine
from headwater.store.postgresql.engine import PostgresqlEngine
from headwater.store.reachability import Member, Search
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.decided import CommittedStreams

BYTES = "application/octet-stream"
NOW = 1_000


def create(streams: CommittedStreams, path: str, source: str | None = None) -> None:
    fork = ForkRequest(source) if source else None
    streams.create(Create(path, None if fork else BYTES, fork=fork), NOW)
    streams.append(path, Append(b"x" * 10, BYTES), NOW)


def chain(streams: CommittedStreams, length: int) -> None:
    create(streams, "0")
    for number in range(1, length):
        create(streams, str(number), str(number - 1))


def collector(engine: Engine) -> int:
    assert isinstance(engine, MemoryEngine | SqliteEngine | PostgresqlEngine)
    return engine._collector.visits


def reap(engine: Engine) -> tuple[int, int]:
    """Until nothing is left; how many steps it took, and how many streams were looked at."""
    steps, before = 1, collector(engine)
    while engine.reap(500):
        steps += 1
    return steps, collector(engine) - before


@pytest.mark.parametrize("which", [0, 60, 118, 119])
def test_one_fork_of_a_long_chain(engine: Engine, streams: CommittedStreams, which: int) -> None:
    chain(streams, 120)
    reap(engine)
    streams.delete(str(which), NOW)
    steps, visits = reap(engine)
    assert visits <= 3
    assert steps <= 6


def test_a_chain_that_goes_from_its_beginning(engine: Engine, streams: CommittedStreams) -> None:
    """All that is left is the last one, which needs what the others wrote before it."""
    chain(streams, 80)
    for number in range(79):
        streams.delete(str(number), NOW)
    _, visits = reap(engine)
    assert visits <= 3 * 80
    state = streams.by_path["79"]
    for span in state.config.lineage.spans(0, state.tail):
        assert engine.appends.read(span, 100)


def test_many_forks_of_one_stream(engine: Engine, streams: CommittedStreams) -> None:
    create(streams, "source")
    for number in range(300):
        create(streams, f"f{number}", "source")
    reap(engine)
    for number in range(250):
        streams.delete(f"f{number}", NOW)
    steps, visits = reap(engine)
    assert visits == 0, "the source needs all that its forks do"
    assert steps < 300


def test_many_forks_of_a_stream_that_is_gone(engine: Engine, streams: CommittedStreams) -> None:
    create(streams, "source")
    for number in range(300):
        create(streams, f"f{number}", "source")
    streams.delete("source", NOW)
    reap(engine)
    for number in range(250):
        streams.delete(f"f{number}", NOW)
        assert reap(engine)[1] <= 40, "one of those that are left needs all that this one did"


def test_nothing_is_looked_at_again_after_a_start(directory: Path) -> None:
    engine = SqliteEngine(directory)
    streams = CommittedStreams(engine)
    chain(streams, 60)
    for number in range(0, 60, 2):
        streams.delete(str(number), NOW)
    reap(engine)
    engine.close()
    engine = SqliteEngine(directory)
    assert reap(engine) == (1, 0)
    engine.close()


def test_what_was_released_is_collected_after_a_start(directory: Path) -> None:
    engine = SqliteEngine(directory)
    streams = CommittedStreams(engine)
    create(streams, "a")
    create(streams, "b", "a")
    streams.append("a", Append(b"for nobody else", BYTES), NOW)
    streams.delete("a", NOW)
    engine.close()
    engine = SqliteEngine(directory)
    reap(engine)
    kept = engine._query("SELECT start FROM ops WHERE stream_id = 1")
    assert kept == [(0,)], "what the fork does not inherit is gone"
    engine.close()


def test_a_step_is_bounded() -> None:
    """Even in a family in which nothing covers anything else."""

    class Wide:
        asked = 0

        def member(self, stream_id: int) -> Member | None:
            raise NotImplementedError

        def forks(self, stream_id: int, before: tuple[int, int], limit: int) -> list[Member]:
            self.asked += 1
            if stream_id != 1:
                return []
            first = min(before[0], 5_000) - 1
            return [
                Member(position + 10, 1, position, 0, False)
                for position in range(first, max(0, first - limit), -1)
            ]

    family = Wide()
    search = Search(Member(1, None, 0, 0, False), 0)
    steps = 1
    while not search.step(family, VISITS_PER_STEP):
        steps += 1
        assert family.asked <= steps * VISITS_PER_STEP
    assert steps > 10
    assert search.unneeded(0, 100) == [(0, 100)]


@pytest.mark.parametrize("kept_from", [4, 7])
def test_a_fork_that_keeps_nothing_of_its_source_cuts_nothing(kept_from: int) -> None:
    class Small:
        def member(self, stream_id: int) -> Member | None:
            raise NotImplementedError

        def forks(self, stream_id: int, before: tuple[int, int], limit: int) -> list[Member]:
            return [Member(2, 1, 4, kept_from, True)] if stream_id == 1 and before[0] > 4 else []

    search = Search(Member(1, None, 0, 0, False), 0)
    assert search.step(Small(), VISITS_PER_STEP)
    assert search.unneeded(0, 100) == [(0, 100)]


@pytest.mark.parametrize("at_once", [True, False])
def test_an_append_across_the_end_of_what_a_fork_had_inherited_goes_too(
    engine: Engine, streams: CommittedStreams, at_once: bool
) -> None:
    streams.create(Create("a", BYTES, b"inherited"), NOW)
    for path, source in (("b", "a"), ("c", "b")):
        fork = ForkRequest(source, streams.by_path[source].token(0), 4)
        streams.create(Create(path, fork=fork, retention=Retention(age_s=1)), NOW)
    streams.delete("b", NOW)
    streams.delete("a", NOW)
    if not at_once:
        reap(engine)
    streams.trim("c", 4, NOW)
    reap(engine)
    assert engine.appends.append_at(1, 0) is None


def test_a_deleted_stream_goes_a_bounded_step_at_a_time(
    engine: Engine, streams: CommittedStreams
) -> None:
    create(streams, "s")
    for _ in range(50):
        streams.append("s", Append(b"y", BYTES), NOW)
    streams.delete("s", NOW)
    if isinstance(engine, SqliteEngine):
        assert engine.reap(10)
        left = "SELECT (SELECT count(*) FROM ops) + (SELECT count(*) FROM extents)"
        assert engine._query(left) >= [(40,)]
    reap(engine)
    assert engine.streams.load("s") is None


def test_trimming_releases_what_was_inherited(engine: Engine, streams: CommittedStreams) -> None:
    streams.create(Create("a", BYTES), NOW)
    for _ in range(4):
        streams.append("a", Append(b"0123456789", BYTES), NOW)
    streams.create(Create("b", fork=ForkRequest("a"), retention=Retention(size_bytes=1)), NOW)
    streams.append("b", Append(b"0123456789", BYTES), NOW)
    streams.delete("a", NOW)
    reap(engine)
    assert engine.appends.append_at(1, 0) is not None
    streams.trim("b", 20, NOW)
    reap(engine)
    assert engine.appends.append_at(1, 10) is None
    assert engine.appends.append_at(1, 20) is not None
    streams.trim("b", 50, NOW)
    reap(engine)
    assert engine.appends.append_at(1, 30) is None


@pytest.mark.parametrize("at_once", [True, False])
def test_the_append_that_told_where_a_stream_ends_goes_with_the_next_one(
    engine: Engine, streams: CommittedStreams, at_once: bool
) -> None:
    """Even if what was let go of before is still being worked off."""
    streams.create(Create("s", BYTES, retention=Retention(size_bytes=1)), NOW)
    for _ in range(3):
        streams.append("s", Append(b"0123456789", BYTES), NOW)
    streams.trim("s", 30, NOW)
    if at_once:
        assert engine.reap(1)
    else:
        reap(engine)
    assert engine.appends.append_at(1, 20) is not None, "it tells where the stream ends"
    streams.append("s", Append(b"0123456789", BYTES), NOW)
    streams.append("s", Append(b"0123456789", BYTES), NOW)
    reap(engine)
    assert engine.appends.append_at(1, 20) is None
    assert engine.appends.append_at(1, 30) is not None
