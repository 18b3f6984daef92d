"""The engines side by side: the same random history, and everything they can be asked.

What is committed comes from the decisions of `core`, several of them to a commit, as the writer
does it. From time to time the engine that stores is closed and opened again, or removes the data of
deleted streams, or moves appends from rows into files, or from many files into few, which must
change nothing that anyone can see.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from operator import attrgetter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.core.decisions import Append, Create
from headwater.core.errors import StreamError
from headwater.core.expiry import FOREVER, Lifetime
from headwater.core.lineage import ForkRequest, Span
from headwater.core.producers import ProducerStamp
from headwater.core.retention import Retention
from headwater.core.stream import Appended, Mutation, StreamConfig, StreamState
from headwater.store.engine import Engine, Problem
from headwater.store.engine.streams import LoadedStream
from headwater.store.history.compaction_choice import COMPANY
from headwater.store.memory.engine import MemoryEngine
from headwater.store.postgresql.engine import PostgresqlEngine
from headwater.store.reachability import END, Interval
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.decided import DecidedStreams
from tests.support.postgresql import LEASE_MS, EngineDatabase, databases
from tests.support.properties import FEW
from tests.support.sealing import compact_once, seal

BYTES = "application/octet-stream"

paths = st.sampled_from(["a", "a/b", "a%", "b", "~c"])
known = st.integers(0, 59)
bodies = st.binary(min_size=1, max_size=6)
lifetimes = st.sampled_from(
    [FOREVER] * 3 + [Lifetime(ttl_s=2), Lifetime(None, 30_000, "1970-01-01T00:00:30Z")]
)
stamps = st.none() | st.builds(
    ProducerStamp, st.sampled_from(["p", "qé"]), st.integers(0, 2), st.sampled_from([0, 0, 1])
)


def answer(engine: Engine, question: str, details: tuple[object, ...]) -> object:
    """What an engine says, or what it refuses with."""
    try:
        found = attrgetter(question)(engine)(*details)
    except StreamError as error:
        return type(error), str(error)
    if isinstance(found, Appended):
        # What `Stream-Seq` came with an append is kept with the stream, not with the append.
        return found.start, found.body, found.first_message, found.messages, found.producer
    if isinstance(found, LoadedStream) and found.state.soft_deleted:
        # Its forks may need less than all of it, and nobody asks where it ended.
        found.state.tail = found.state.messages = 0
    return sorted(found) if question == "streams.expired" else found


def joined(engine: Engine, span: Span, max_bytes: int) -> bytes:
    pieces = engine.appends.read_pieces(span, max_bytes)
    return b"".join(piece if isinstance(piece, bytes) else piece.read() for piece in pieces)


def is_needed(start: int, end: int, needs: Sequence[Interval]) -> bool:
    return any(start < need_end and need_start < end for need_start, need_end in needs)


def needs_of(run: int, streams: Iterable[StreamConfig]) -> list[Interval]:
    """What these streams need of a run, looked for in all of them."""
    return [
        (span.start, span.end)
        for config in streams
        for span in config.lineage.spans(config.kept_from, END)
        if span.run == run
    ]


class EnginesAgree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.place = ExitStack()
        self.memory = MemoryEngine()
        self.stored = self.open()
        self.streams = DecidedStreams()
        self.batch: list[Mutation] = []
        self.batch_size = 1
        self.now_ms = 10_000

    def teardown(self) -> None:
        assert [line for line in self.stored.verify() if isinstance(line, Problem)] == []
        self.stored.close()
        self.place.close()

    def open(self) -> Engine:
        """The engine that stores; what is in its place was put there by the one before."""
        raise NotImplementedError

    def nothing_is_left_over(self) -> None:
        """What is stored is there for somebody, but for the last append of each stream."""

    def decide(self, command: Callable[[], object]) -> None:
        self.now_ms += 1
        with suppress(StreamError):
            command()
            self.batch += self.streams.last_mutations
            if len(self.batch) >= self.batch_size:
                self.commit()

    @rule()
    def clear_away(self) -> None:
        """Everything that nobody needs goes, and nothing else: see the comparison."""
        for engine in (self.stored, self.memory):
            while engine.reap(3):
                pass
        if not self.batch:
            self.compare()
            self.nothing_is_left_over()

    def pick(self, which: int) -> str:
        there = [*self.streams.by_path]
        return there[which % len(there)] if there else "nowhere"

    # ── Steps ────────────────────────────────────────────────────────────────────────────────

    @initialize(lifetime=lifetimes, forks=st.integers(0, 3), batch_size=st.sampled_from([1, 3, 9]))
    def begin_with_a_family(self, lifetime: Lifetime, forks: int, batch_size: int) -> None:
        self.batch_size = batch_size
        self.create("a", b"inherited", lifetime, False)
        for which, path in enumerate(("b", "~c", "a/b")[:forks]):
            self.fork(path, which, 0, 4, FOREVER)

    @rule(path=paths, body=bodies, lifetime=lifetimes, closed=st.sampled_from([False] * 5 + [True]))
    def create(self, path: str, body: bytes, lifetime: Lifetime, closed: bool) -> None:
        command = Create(path, BYTES, body, lifetime, closed, retention=Retention(size_bytes=1))
        self.decide(lambda: self.streams.create(command, self.now_ms))

    @rule(which=known, version=st.integers(1, 5), lifetime=lifetimes, text=st.none() | st.text())
    def reconfigure(self, which: int, version: int, lifetime: Lifetime, text: str | None) -> None:
        command = Create(self.pick(which), lifetime=lifetime, version=version, description=text)
        self.decide(lambda: self.streams.create(command, self.now_ms))

    @rule(path=paths, which=known, at=known, sub_offset=st.integers(0, 4), lifetime=lifetimes)
    def fork(self, path: str, which: int, at: int, sub_offset: int, lifetime: Lifetime) -> None:
        source = self.streams.by_path.get(self.pick(which))
        if source is None:
            return
        positions = self.streams.positions(source)
        offset = source.token(positions[at % len(positions)])
        request = ForkRequest(source.config.path, offset, sub_offset)
        command = Create(path, lifetime=lifetime, fork=request, retention=Retention(age_s=1))
        self.decide(lambda: self.streams.create(command, self.now_ms))

    @rule(
        which=known,
        body=bodies,
        close=st.sampled_from([False] * 7 + [True]),
        stamp=stamps,
        seq=st.none() | st.sampled_from(["", "1", "ü", "9"]),
    )
    def append(
        self, which: int, body: bytes, close: bool, stamp: ProducerStamp | None, seq: str | None
    ) -> None:
        command = Append(body, BYTES, close, stamp, seq)
        self.decide(lambda: self.streams.append(self.pick(which), command, self.now_ms))

    @rule(which=known)
    def delete(self, which: int) -> None:
        self.decide(lambda: self.streams.delete(self.pick(which), self.now_ms))

    @rule(which=known, later_ms=st.sampled_from([0, 300, 3_000]))
    def touch(self, which: int, later_ms: int) -> None:
        self.now_ms += later_ms
        self.decide(lambda: self.streams.touch(self.pick(which), self.now_ms))

    @rule(which=known)
    def expire(self, which: int) -> None:
        self.decide(lambda: self.streams.expire(self.pick(which), self.now_ms))

    @rule()
    def commit(self) -> None:
        for engine in (self.memory, self.stored):
            engine.commit(self.batch)
        self.batch = []
        self.compare()

    @rule(which=known, at=known)
    def trim(self, which: int, at: int) -> None:
        """A stream keeps only what lies behind one of its positions."""
        state = self.streams.by_path.get(self.pick(which))
        if state is not None:
            positions = self.streams.positions(state)
            position = positions[at % len(positions)]
            self.decide(lambda: self.streams.trim(state.config.path, position, self.now_ms))

    @rule(max_appends=st.integers(1, 3))
    def reap(self, max_appends: int) -> None:
        """Streams that are gone for everyone are removed, a little at a time."""
        self.stored.reap(max_appends)
        self.memory.reap(max_appends)
        if not self.batch:
            self.compare()

    @rule()
    def open_again(self) -> None:
        self.stored.close()
        self.stored = self.open()

    # ── Questions ────────────────────────────────────────────────────────────────────────────

    @invariant()
    def both_know_which_ids_are_used(self) -> None:
        assert self.memory.streams.next_id() == self.stored.streams.next_id()

    def compare(self) -> None:
        self.same("streams.summaries", "", "", 100)
        self.same("streams.summaries", "a", "a", 2)
        self.same("streams.next_deadline_ms")
        self.same("streams.expired", self.now_ms, 100)
        for path in ("a", "a/b", "a%", "b", "~c", "nowhere"):
            self.same("streams.load", path)
        for stream_id, state in self.streams.by_id.items():
            self.same("streams.load_id", stream_id)
            for producer in ("p", "qé", "r"):
                self.same("streams.producer", stream_id, producer)
            self.compare_data(state)

    def compare_data(self, state: StreamState) -> None:
        kept_from = state.config.kept_from
        if state.soft_deleted:
            return
        spans = state.config.lineage.spans(kept_from, state.tail)
        read = b"".join(body for span in spans for body in self.stored.appends.read(span, 10**6))
        assert read == self.streams.content(state)[kept_from:]
        for span in spans:
            for max_bytes in (1, 5, 10**6):
                self.same("appends.read", span, max_bytes)
                assert joined(self.memory, span, max_bytes) == joined(self.stored, span, max_bytes)
            for position in range(span.start, min(span.start + 12, span.end)):
                self.same("appends.read", span._replace(start=position), 8)
                self.same("appends.append_at", span.run, position)
                self.same("appends.outline_at", span.run, position)
            for number in range(4):
                self.same("appends.seek", span, "first_message", number)
            self.same("appends.seek", span, "at_ms", self.now_ms - 3)

    def same(self, question: str, *details: object) -> None:
        assert answer(self.memory, question, details) == answer(self.stored, question, details)


class SqliteAgrees(EnginesAgree):
    """With appends that move from rows into files, and from many files into few."""

    directory: Path
    stored: SqliteEngine

    def open(self) -> SqliteEngine:
        if not hasattr(self, "directory"):
            self.directory = Path(self.place.enter_context(tempfile.TemporaryDirectory()))
        return SqliteEngine(self.directory)

    def nothing_is_left_over(self) -> None:
        """Every extent and every file is there for somebody, but for the last of each stream."""
        live = [state.config for state in self.streams.by_id.values() if not state.soft_deleted]
        found = self.stored._query(
            "SELECT run, start, until, start = max(start) OVER (PARTITION BY run) FROM extents"
        )
        for run, start, until, last in found:
            own = any(config.id == run for config in live)
            assert is_needed(start, until, needs_of(run, live)) or (own and last)
        files = {path.name for path in (self.directory / "segments").glob("*")}
        used = "SELECT name FROM segments WHERE id IN (SELECT segment_id FROM extents)"
        assert files == {row[0] for row in self.stored._query(used)}

    @rule(runs=st.none() | st.sets(st.integers(1, 6)), segment_bytes=st.sampled_from([1, 40, 9999]))
    def seal(self, runs: set[int] | None, segment_bytes: int) -> None:
        """Of some streams or of all, in files of a few bytes or of many."""
        seal(self.stored, None if runs is None else sorted(runs), segment_bytes)
        if not self.batch:
            self.compare()

    @rule(segment_bytes=st.sampled_from([400, 9999]), company=st.sampled_from([2, COMPANY]))
    def compact(self, segment_bytes: int, company: int) -> None:
        """Files that are small or hardly needed become fewer."""
        compact_once(self.stored, segment_bytes, company=company)
        if not self.batch:
            self.compare()


class PostgresqlAgrees(EnginesAgree):
    database: EngineDatabase
    stored: PostgresqlEngine

    def open(self) -> PostgresqlEngine:
        if not hasattr(self, "database"):
            self.database = self.place.enter_context(databases())
        return PostgresqlEngine(self.database.url, lease_ms=LEASE_MS)

    def nothing_is_left_over(self) -> None:
        live = [state.config for state in self.streams.by_id.values() if not state.soft_deleted]
        found = self.database.query(
            "SELECT stream_id, start, start + octet_length(body),"
            " start = max(start) OVER (PARTITION BY stream_id) FROM ops"
        )
        for run, start, until, last in found:
            own = any(config.id == run for config in live)
            assert is_needed(start, until, needs_of(run, live)) or (own and last)


TestSqliteAgrees = SqliteAgrees.TestCase
TestSqliteAgrees.settings = settings(FEW, max_examples=60, stateful_step_count=40)
# Every question is a round trip, so there are fewer of them.
TestPostgresqlAgrees = PostgresqlAgrees.TestCase
TestPostgresqlAgrees.settings = settings(FEW, max_examples=8, stateful_step_count=30)
