"""What every engine promises, over every engine."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import UnknownOffset
from headwater.core.expiry import Lifetime, touch_interval_ms
from headwater.core.lineage import ForkRequest, Lineage, Span
from headwater.core.producers import USED_STEP_MS as HOUR_MS
from headwater.core.producers import ProducerStamp, ProducerState
from headwater.core.retention import Retention
from headwater.core.stream import (
    Appended,
    Closed,
    Created,
    Mutation,
    ProducersForgotten,
    StreamConfig,
    StreamState,
)
from headwater.store.engine import Engine, Problem
from headwater.store.engine.streams import StreamSummary
from tests.support.decided import CommittedStreams

BYTES = "application/octet-stream"


def as_loaded(state: StreamState) -> StreamState:
    """A state as it is after a restart, when accesses since the last note are forgotten."""
    lag_ms = touch_interval_ms(state.config.lifetime)
    return replace(state, touched_at_ms=state.stored_touch_ms + lag_ms)


def loaded(engine: Engine, path: str) -> StreamState:
    found = engine.streams.load(path)
    assert found is not None
    assert found.producers_complete
    by_id = engine.streams.load_id(found.state.config.id)
    assert by_id is not None
    assert by_id.state == found.state
    seen = engine.streams.look(path)
    assert seen == replace(found.state, producers={}, producer_count=0)
    return found.state


def append(body: bytes, **options: object) -> Append:
    return Append(body, BYTES, **options)  # type: ignore[arg-type]


# ── States ───────────────────────────────────────────────────────────────────────────────────


def test_figures_follow_what_is_committed(streams: CommittedStreams) -> None:
    before = streams.engine.figures()
    streams.create(Create("s"), 1_000)
    after = streams.engine.figures()
    assert after.disk_bytes.keys() == before.disk_bytes.keys()
    # Nothing has become history yet.
    assert {name for name, size in after.disk_bytes.items() if size == 0} <= {"segments", "cache"}
    # An engine that has nothing to make durable has nothing to time.
    assert after.sync_seconds.count == (1 if after.disk_bytes else 0)


def test_an_empty_engine_holds_nothing(engine: Engine) -> None:
    assert engine.streams.next_id() == 1
    assert engine.streams.load("s") is None
    assert engine.streams.look("s") is None
    assert engine.streams.load_id(1) is None
    assert engine.streams.producer(1, "p") is None
    assert engine.appends.append_at(1, 0) is None
    assert engine.streams.summaries("", "", 10) == []
    assert engine.streams.expired(2**50, 10) == []
    assert engine.streams.next_deadline_ms() is None
    assert not engine.reap(10)
    engine.commit([])
    assert engine.streams.next_id() == 1


@pytest.mark.parametrize(
    "command",
    [
        Create("s"),
        Create("s", "application/json; charset=utf-8", b"[1, 2.0]"),
        Create("s", lifetime=Lifetime(ttl_s=100)),
        Create("s", lifetime=Lifetime(None, 9_000_000, "1970-01-01T02:30:00Z")),
        Create("a/b:c@d%7E~/é-is-not-checked-here", body=b"\x00\xff", closed=True),
    ],
)
def test_a_created_stream_is_loaded_as_it_was_decided(
    streams: CommittedStreams, command: Create
) -> None:
    streams.create(command, 1_000)
    state = streams.by_path[command.path]
    assert loaded(streams.engine, command.path) == as_loaded(state)
    assert streams.engine.streams.next_id() == 2


def test_appends_and_closure_are_loaded_as_they_were_decided(streams: CommittedStreams) -> None:
    streams.create(Create("s"), 1_000)
    streams.append("s", append(b"one", producer=ProducerStamp("p", 3, 0), stream_seq="5"), 1_001)
    streams.append("s", append(b"two", producer=ProducerStamp("q", 0, 0)), 1_002)
    streams.append("s", append(b"three", producer=ProducerStamp("p", 3, 1), stream_seq="6"), 1_003)
    state = loaded(streams.engine, "s")
    assert state == as_loaded(streams.by_path["s"])
    assert (state.tail, state.messages, state.last_stream_seq) == (11, 3, "6")
    streams.append("s", append(b"!", close=True, producer=ProducerStamp("p", 4, 0)), 1_004)
    state = loaded(streams.engine, "s")
    assert state == as_loaded(streams.by_path["s"])
    assert (state.closed, state.closed_by) == (True, ProducerStamp("p", 4, 0))


def test_closing_without_a_body_moves_the_producer_too(streams: CommittedStreams) -> None:
    streams.create(Create("s"), 1_000)
    streams.append("s", Append(close=True, producer=ProducerStamp("p", 1, 0)), 1_001)
    assert loaded(streams.engine, "s") == as_loaded(streams.by_path["s"])
    assert streams.engine.streams.producer(1, "p") == ProducerState(1, 0)


def test_producers_are_found_one_by_one(streams: CommittedStreams) -> None:
    for path in ("s", "t"):
        streams.create(Create(path), 1_000)
    for seq in range(3):
        streams.append("s", append(b"x", producer=ProducerStamp("p", 7, seq)), 1_000)
    streams.append("t", append(b"x", producer=ProducerStamp("p", 2, 0)), 1_000)
    engine = streams.engine
    assert engine.streams.producer(1, "p") == ProducerState(7, 2)
    assert engine.streams.producer(2, "p") == ProducerState(2, 0)
    assert engine.streams.producer(1, "q") is None
    assert engine.streams.producer(3, "p") is None


def test_idle_producers_are_found_and_forgotten(streams: CommittedStreams) -> None:
    engine = streams.engine
    streams.create(Create("s"), 1_000)
    streams.create(Create("t"), 1_000)
    for hour, (path, name) in enumerate([("s", "p"), ("t", "p"), ("s", "q"), ("s", "r")], 1):
        stamp = ProducerStamp(name, 0, 0)
        streams.append(path, append(b"x", producer=stamp), hour * HOUR_MS + 5)
    assert loaded(engine, "s") == as_loaded(streams.by_path["s"])
    idle = [("s", 1, "p"), ("t", 2, "p"), ("s", 1, "q")]
    assert engine.streams.idle_producers(3 * HOUR_MS, 10) == idle[:2]
    assert engine.streams.idle_producers(3 * HOUR_MS + 1, 10) == idle
    assert engine.streams.idle_producers(3 * HOUR_MS + 1, 1) == idle[:1]
    assert engine.streams.idle_producers_of(1, 3 * HOUR_MS + 1, 10) == ["p", "q"]
    assert engine.streams.idle_producers_of(1, 3 * HOUR_MS + 1, 1) == ["p"]
    assert engine.streams.idle_producers_of(99, 3 * HOUR_MS + 1, 10) == []
    # Who is used again is not idle any more; within the hour, nothing changes.
    again = append(b"x", producer=ProducerStamp("p", 0, 1))
    streams.append("s", again, 9 * HOUR_MS)
    streams.append("s", append(b"x", producer=ProducerStamp("p", 0, 2)), 9 * HOUR_MS + 7)
    assert engine.streams.producer(1, "p") == ProducerState(0, 2, 9 * HOUR_MS)
    assert engine.streams.idle_producers(3 * HOUR_MS + 1, 10) == idle[1:]
    # Forgotten and there again in the same commit.
    tail = streams.by_path["s"].tail
    back = Appended(1, tail, b"y", tail, 1, 9 * HOUR_MS, ProducerStamp("q", 5, 0))
    engine.commit([ProducersForgotten(1, ("q", "r")), back])
    assert engine.streams.idle_producers(5 * HOUR_MS, 10) == idle[1:2]
    state = loaded(engine, "s")
    assert state.producers == {
        "p": ProducerState(0, 2, 9 * HOUR_MS),
        "q": ProducerState(5, 0, 9 * HOUR_MS),
    }
    assert state.producer_count == 2
    # Deleted streams have none.
    streams.delete("t", 10 * HOUR_MS)
    assert engine.streams.idle_producers(99 * HOUR_MS, 10) == [("s", 1, "p"), ("s", 1, "q")]


def test_what_is_loaded_is_the_callers_own(streams: CommittedStreams) -> None:
    """Decisions change states before anything is committed; the engine must not feel that."""
    streams.create(Create("s", body=b"x"), 1_000)
    streams.append("s", append(b"y", producer=ProducerStamp("p", 0, 0)), 1_000)
    mine = loaded(streams.engine, "s")
    mine.tail, mine.closed, mine.soft_deleted = 99, True, True
    mine.producers["p"] = ProducerState(9, 9)
    assert loaded(streams.engine, "s") == as_loaded(streams.by_path["s"])


def test_one_commit_carries_changes_of_many_streams_in_order(engine: Engine) -> None:
    configs = [
        StreamConfig(number, f"s/{number}", BYTES, 5, lineage=Lineage(number))
        for number in range(1, 301)
    ]
    batch: list[Mutation] = []
    for config in configs:
        batch.append(Created(config))
        batch.append(Appended(config.id, 0, b"a", 0, 1, 5, ProducerStamp("p", 0, 0)))
        batch.append(Appended(config.id, 1, b"bc", 1, 1, 5, ProducerStamp("p", 0, 1)))
    batch += [Closed(config.id, 6, ProducerStamp("p", 1, 0)) for config in configs[::2]]
    engine.commit(batch)
    for config in configs:
        state = loaded(engine, config.path)
        assert (state.tail, state.messages) == (3, 2)
        assert state.closed == (config.id % 2 == 1)
        assert state.producers == {"p": ProducerState(*((1, 0) if state.closed else (0, 1)))}
        assert engine.appends.read(Span(config.id, 0, 3), 100) == [b"a", b"bc"]


def test_a_reader_sees_a_commit_whole_or_not_at_all(engine: Engine) -> None:
    """Every commit appends to both streams; whoever looks at `a` first never finds `b` behind."""
    for number, path in enumerate("ab", start=1):
        config = StreamConfig(number, path, BYTES, 5, lineage=Lineage(number))
        engine.commit([Created(config)])
    done = threading.Event()

    def watch() -> int:
        looks = 0
        while not done.is_set() or looks < 10:
            a = engine.streams.load_id(1)
            b = engine.streams.load("b")
            assert a is not None
            assert b is not None
            assert a.state.tail <= b.state.tail
            if a.state.tail:
                bodies = engine.appends.read(Span(2, 0, a.state.tail), 10**6)
                assert b"".join(bodies) == b"x" * a.state.tail
            looks += 1
        return looks

    with ThreadPoolExecutor(2) as threads:
        watchers = [threads.submit(watch) for _ in range(2)]
        for position in range(150):
            engine.commit([Appended(run, position, b"x", position, 1, 6) for run in (1, 2)])
        done.set()
        assert all(watcher.result() >= 10 for watcher in watchers)


# ── Reading ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def three_appends(streams: CommittedStreams) -> Engine:
    """Stream 1 holds `aaa`, `bb` and `cccc`."""
    streams.create(Create("s"), 1_000)
    for at_ms, body in enumerate((b"aaa", b"bb", b"cccc"), start=1_001):
        streams.append("s", append(body), at_ms)
    return streams.engine


@pytest.mark.parametrize(
    "start, end, max_bytes, expected",
    [
        (0, 9, 100, [b"aaa", b"bb", b"cccc"]),
        (0, 9, 9, [b"aaa", b"bb", b"cccc"]),
        (0, 9, 8, [b"aaa", b"bb"]),
        (0, 9, 5, [b"aaa", b"bb"]),
        (0, 9, 4, [b"aaa"]),
        (0, 9, 1, [b"aaa"]),  # at least one append
        (0, 9, 0, [b"aaa"]),
        (3, 9, 100, [b"bb", b"cccc"]),
        (3, 9, 3, [b"bb"]),
        (5, 9, 1, [b"cccc"]),
        (0, 5, 100, [b"aaa", b"bb"]),
        (0, 3, 100, [b"aaa"]),
        (0, 4, 100, [b"aaa", b"b"]),  # cut at the end of the span
        (0, 1, 100, [b"a"]),
        (3, 7, 100, [b"bb", b"cc"]),
        (5, 6, 100, [b"c"]),
    ],
)
def test_a_read_gives_whole_appends_within_its_bounds(
    three_appends: Engine, start: int, end: int, max_bytes: int, expected: list[bytes]
) -> None:
    assert three_appends.appends.read(Span(1, start, end), max_bytes) == expected


@pytest.mark.parametrize("run, start", [(1, 1), (1, 2), (1, 4), (1, 8), (1, 9), (1, 50), (2, 0)])
def test_where_no_append_starts_there_is_nothing_to_read(
    three_appends: Engine, run: int, start: int
) -> None:
    with pytest.raises(UnknownOffset):
        three_appends.appends.read(Span(run, start, start + 10), 100)


@pytest.mark.parametrize(
    "run, position, start",
    [(1, 0, 0), (1, 2, 0), (1, 3, 3), (1, 4, 3), (1, 5, 5), (1, 8, 5), (1, 9, None), (2, 0, None)],
)
def test_an_append_is_found_by_any_byte_in_it(
    three_appends: Engine, run: int, position: int, start: int | None
) -> None:
    found = three_appends.appends.append_at(run, position)
    assert (found.start if found else None) == start
    outline = three_appends.appends.outline_at(run, position)
    if found is None:
        assert outline is None
    else:
        assert outline == (found.start, found.end, found.first_message, found.at_ms)
        bodies = {0: b"aaa", 3: b"bb", 5: b"cccc"}
        assert (found.stream_id, found.body) == (1, bodies[found.start])
        numbers = {0: 0, 3: 1, 5: 2}
        assert (found.first_message, found.messages) == (numbers[found.start], 1)


@pytest.mark.parametrize(
    "span, value, start",
    [
        ((0, 9), 0, 0),
        ((0, 9), 1, 3),
        ((0, 9), 2, 5),
        ((0, 9), 99, 5),
        ((0, 9), -1, None),
        ((0, 5), 99, 3),
        ((0, 4), 99, 3),
        ((3, 9), 0, None),
        ((3, 9), 1, 3),
        ((0, 0), 99, None),
    ],
)
def test_an_append_is_found_by_its_message_number_and_by_its_time(
    three_appends: Engine, span: tuple[int, int], value: int, start: int | None
) -> None:
    by_number = three_appends.appends.seek(Span(1, *span), "first_message", value)
    by_time = three_appends.appends.seek(Span(1, *span), "at_ms", value + 1_001)
    assert (by_number.start if by_number else None) == start
    assert (by_time.start if by_time else None) == start


def test_a_fork_stores_only_its_own(streams: CommittedStreams) -> None:
    streams.create(Create("s", body=b"source"), 1_000)
    streams.create(Create("f", fork=ForkRequest("s", "-1", 3), body=b"fork"), 1_000)
    engine = streams.engine
    state = loaded(engine, "f")
    assert state == as_loaded(streams.by_path["f"])
    assert state.config.lineage.spans(0, state.tail) == [Span(1, 0, 3), Span(2, 3, 7)]
    assert engine.appends.read(Span(1, 0, 3), 100) == [b"sou"]
    assert engine.appends.read(Span(2, 3, 7), 100) == [b"fork"]
    with pytest.raises(UnknownOffset):
        engine.appends.read(Span(2, 0, 7), 100)
    assert (state.messages, loaded(engine, "s").forks) == (2, 1)


def test_a_fork_that_wrote_nothing_ends_where_it_parted(streams: CommittedStreams) -> None:
    streams.create(Create("s", "application/json", b"[1,2,3]"), 1_000)
    streams.create(Create("f", fork=ForkRequest("s", "-1", 2)), 1_000)
    state = loaded(streams.engine, "f")
    assert (state.tail, state.messages, state.tail_token) == (
        4,
        2,
        "0000000000000001_0000000000000004",
    )


# ── Listing ──────────────────────────────────────────────────────────────────────────────────

NAMES = ["a", "a%", "a%b", "a/b", "a/b/c", "a_c", "aB", "ab", "b", "~", "~~", "Z", "[a]", "a*"]


def names(found: list[StreamSummary]) -> list[str]:
    return [summary.path for summary in found]


PREFIXES = [
    "",
    "a",
    "a/",
    "a%",
    "a_",
    "a*",
    "~",
    "~~",
    "[",
    "A",
    "zz",
    "a/b/c/d",
    "é",
    "\U0010ffff",
]


def test_streams_are_listed_in_order_by_prefix_and_from_a_place_on(
    streams: CommittedStreams,
) -> None:
    for name in NAMES:
        streams.create(Create(name), 1_000)
    for prefix, after, limit in product(PREFIXES, ["", *NAMES, "zzz"], [1, 3, 100]):
        expected = sorted(name for name in NAMES if name.startswith(prefix) and name > after)
        assert names(streams.engine.streams.summaries(prefix, after, limit)) == expected[:limit]


def test_pages_of_a_listing_add_up(streams: CommittedStreams) -> None:
    for name in NAMES:
        streams.create(Create(name), 1_000)
    found: list[str] = []
    while page := names(streams.engine.streams.summaries("", found[-1] if found else "", 3)):
        found += page
    assert found == sorted(NAMES)


def test_deleted_streams_are_not_listed_hidden_ones_neither(streams: CommittedStreams) -> None:
    for name in ("a", "b", "c"):
        streams.create(Create(name), 1_000)
    streams.create(Create("fork", fork=ForkRequest("b")), 1_000)
    streams.delete("a", 1_000)
    streams.delete("b", 1_000)
    assert names(streams.engine.streams.summaries("", "", 10)) == ["c", "fork"]
    assert names(streams.engine.streams.summaries("", "", 1)) == ["c"]


def test_a_line_of_a_listing_says_what_there_is(streams: CommittedStreams) -> None:
    lifetime = Lifetime(ttl_s=60)
    streams.create(Create("s", "application/json", b"[1,2]", lifetime, closed=True), 1_000)
    assert streams.engine.streams.summaries("", "", 1) == [
        StreamSummary(
            path="s",
            content_type="application/json",
            tail="0000000000000001_0000000000000004",
            closed=True,
            created_at_ms=1_000,
            size_bytes=4,
            messages=2,
            ttl_s=60,
            expires_at_ms=None,
            profile="generic",
        )
    ]


# ── Expiry ───────────────────────────────────────────────────────────────────────────────────


def test_streams_come_up_when_their_time_is_over(streams: CommittedStreams) -> None:
    streams.create(Create("at", lifetime=Lifetime(expires_at_ms=5_000)), 1_000)
    streams.create(Create("later", lifetime=Lifetime(expires_at_ms=6_000)), 1_000)
    streams.create(Create("ever"), 1_000)
    engine = streams.engine
    assert engine.streams.next_deadline_ms() == 5_000
    assert engine.streams.expired(4_999, 10) == []
    assert engine.streams.expired(5_000, 10) == ["at"]
    assert set(engine.streams.expired(6_000, 10)) == {"at", "later"}
    assert len(engine.streams.expired(6_000, 1)) == 1
    streams.expire("at", 5_000)
    assert engine.streams.next_deadline_ms() == 6_000
    assert engine.streams.expired(6_000, 10) == ["later"]
    streams.expire("later", 6_000)
    assert engine.streams.next_deadline_ms() is None


def test_the_deadline_of_a_ttl_moves_with_what_is_written_down(streams: CommittedStreams) -> None:
    streams.create(Create("s", lifetime=Lifetime(ttl_s=8)), 1_000)
    lag_ms = 1_000
    engine = streams.engine
    assert engine.streams.next_deadline_ms() == 9_000 + lag_ms
    streams.touch("s", 1_500)
    assert engine.streams.next_deadline_ms() == 9_000 + lag_ms, "too soon to be written down"
    streams.touch("s", 2_000)
    assert engine.streams.next_deadline_ms() == 10_000 + lag_ms
    streams.append("s", append(b"x"), 2_900)
    assert engine.streams.next_deadline_ms() == 10_000 + lag_ms, "an append alone writes no note"
    assert engine.streams.expired(10_999, 10) == []
    assert engine.streams.expired(11_000, 10) == ["s"]
    state = loaded(engine, "s")
    assert (state.stored_touch_ms, state.touched_at_ms) == (2_000, 3_000)


def test_a_hidden_stream_has_no_deadline_any_more(streams: CommittedStreams) -> None:
    streams.create(Create("s", lifetime=Lifetime(ttl_s=8)), 1_000)
    streams.create(Create("f", lifetime=Lifetime(ttl_s=80), fork=ForkRequest("s")), 1_000)
    streams.expire("s", 9_000)
    assert streams.engine.streams.expired(20_000, 10) == []
    assert streams.engine.streams.next_deadline_ms() == 81_000 + 10_000


# ── Deleting ─────────────────────────────────────────────────────────────────────────────────


def reap_everything(engine: Engine) -> None:
    while engine.reap(2):
        pass


def test_a_deleted_stream_is_gone_at_once(streams: CommittedStreams) -> None:
    streams.create(Create("s", body=b"x"), 1_000)
    streams.append("s", append(b"y", producer=ProducerStamp("p", 0, 0)), 1_000)
    streams.delete("s", 1_000)
    engine = streams.engine
    assert engine.streams.load("s") is None
    assert engine.streams.load_id(1) is None
    assert engine.streams.summaries("", "", 10) == []
    reap_everything(engine)
    assert engine.streams.producer(1, "p") is None
    with pytest.raises(UnknownOffset):
        engine.appends.read(Span(1, 0, 2), 10)


def test_a_path_can_be_used_again_and_is_another_stream_then(streams: CommittedStreams) -> None:
    streams.create(Create("s", body=b"old", closed=True), 1_000)
    streams.delete("s", 1_000)
    streams.create(Create("s", body=b"new"), 1_001)
    engine = streams.engine
    assert loaded(engine, "s") == as_loaded(streams.by_path["s"])
    assert engine.appends.read(Span(2, 0, 3), 10) == [b"new"]
    reap_everything(engine)
    assert loaded(engine, "s") == as_loaded(streams.by_path["s"])
    assert engine.appends.read(Span(2, 0, 3), 10) == [b"new"]
    assert names(engine.streams.summaries("", "", 10)) == ["s"]


def test_deleting_and_creating_fit_into_one_commit(engine: Engine) -> None:
    streams = CommittedStreams(engine)
    streams.create(Create("s", body=b"old", lifetime=Lifetime(ttl_s=1)), 1_000)
    streams.create(Create("s", body=b"new"), 3_000)
    assert len(streams.last_mutations) == 3
    assert loaded(engine, "s") == as_loaded(streams.by_path["s"])
    assert engine.appends.read(Span(2, 0, 3), 10) == [b"new"]


def test_a_hidden_stream_keeps_its_path_and_its_data(streams: CommittedStreams) -> None:
    streams.create(Create("s", body=b"data"), 1_000)
    streams.create(Create("f", fork=ForkRequest("s")), 1_000)
    streams.delete("s", 1_000)
    engine = streams.engine
    reap_everything(engine)
    state = loaded(engine, "s")
    assert (state.soft_deleted, state.forks) == (True, 1)
    assert engine.appends.read(Span(1, 0, 4), 10) == [b"data"]
    streams.delete("f", 1_000)
    assert engine.streams.load("s") is None
    assert engine.streams.load_id(1) is None


def test_forks_are_counted_by_who_is_there(streams: CommittedStreams) -> None:
    streams.create(Create("s"), 1_000)
    for path in ("f", "g"):
        streams.create(Create(path, fork=ForkRequest("s")), 1_000)
    streams.create(Create("h", fork=ForkRequest("f")), 1_000)
    assert loaded(streams.engine, "s").forks == 2
    streams.delete("g", 1_000)
    assert loaded(streams.engine, "s").forks == 1
    streams.delete("f", 1_000)
    assert loaded(streams.engine, "s").forks == 1, "f is hidden, not gone"
    streams.delete("h", 1_000)
    assert loaded(streams.engine, "s").forks == 0


def test_ids_are_never_used_twice(streams: CommittedStreams) -> None:
    for number in range(1, 4):
        assert streams.engine.streams.next_id() == number
        streams.create(Create("s", body=b"x"), 1_000)
        streams.delete("s", 1_000)
    reap_everything(streams.engine)
    assert streams.engine.streams.next_id() == 4


def test_reaping_takes_small_steps_and_leaves_the_rest_alone(streams: CommittedStreams) -> None:
    for path in ("s", "t"):
        streams.create(Create(path), 1_000)
        for _ in range(7):
            streams.append(path, append(b"x"), 1_000)
    streams.delete("s", 1_000)
    steps = 0
    while streams.engine.reap(3):
        steps += 1
        assert streams.engine.streams.load("s") is None
        assert streams.engine.appends.read(Span(2, 0, 7), 100) == [b"x"] * 7
    assert steps <= 5


def test_a_sound_engine_has_no_problems(streams: CommittedStreams) -> None:
    streams.create(Create("s", "application/json", b"[1,2]"), 1_000)
    streams.create(Create("f", fork=ForkRequest("s", "-1", 1), body=b"3"), 1_000)
    streams.delete("s", 1_000)
    report = list(streams.engine.verify())
    assert report
    assert all(isinstance(line, str) for line in report)


def test_what_nobody_needs_any_more_is_not_missed(streams: CommittedStreams) -> None:
    """Forks need both ends of a stream: what lies between them may go, and goes."""
    kept = Retention(size_bytes=1)
    streams.create(Create("s", body=b"first", retention=kept), 1_000)
    streams.create(Create("early", fork=ForkRequest("s")), 1_000)
    for body in (b"second", b"third"):
        streams.append("s", append(body), 1_000)
    streams.create(Create("late", fork=ForkRequest("s"), retention=kept), 1_000)
    for path in ("s", "late"):
        assert streams.trim(path, len(b"firstsecond"), 1_000)
    for body in (b"fourth", b"fifth"):
        streams.append("s", append(body), 1_000)
    for hidden in (False, True):
        if hidden:
            streams.delete("s", 1_000)
        reap_everything(streams.engine)
        assert streams.engine.appends.outline_at(1, len(b"first")) is None
        assert streams.engine.appends.read(Span(1, 0, 5), 100) == [b"first"]
        assert streams.engine.appends.read(Span(1, 11, 16), 100) == [b"third"]
        assert [line for line in streams.engine.verify() if isinstance(line, Problem)] == []
