"""What only the SQLite engine does: durability settings, atomicity, reopening, damaged appends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from headwater.core.decisions import Append, Create
from headwater.core.errors import DataCorrupt, StorageUnavailable, StreamError
from headwater.core.expiry import Lifetime
from headwater.core.lineage import ForkRequest, Lineage, Span
from headwater.core.producers import ProducerStamp, ProducerState
from headwater.core.stream import Appended, Closed, Created, Deleted, Mutation, StreamConfig
from headwater.store.engine import Problem
from headwater.store.engine.streams import LoadedStream
from headwater.store.sqlite.database import DATABASE_NAME, connect, empty_log, open_writer
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.decided import CommittedStreams

BYTES = "application/octet-stream"


def config(stream_id: int, path: str) -> StreamConfig:
    return StreamConfig(stream_id, path, BYTES, 5, lineage=Lineage(stream_id))


def populate(engine: SqliteEngine) -> CommittedStreams:
    """A little of everything: forks, producers, lifetimes, closed, hidden and deleted streams."""
    streams = CommittedStreams(engine)
    streams.create(Create("json", "application/json", b'[1, {"a": 2.0}]'), 1_000)
    streams.create(Create("ttl", lifetime=Lifetime(ttl_s=60), body=b"x" * 5_000), 1_000)
    streams.create(Create("closed", "text/plain", b"all", closed=True), 1_000)
    for seq in range(3):
        stamp = ProducerStamp("p", 4, seq)
        streams.append("ttl", Append(bytes([seq]) * 900, BYTES, producer=stamp), 1_001 + seq)
    streams.create(Create("fork", fork=ForkRequest("ttl", "-1", 17)), 1_010)
    streams.append("fork", Append(b"own", BYTES, stream_seq="s1"), 1_011)
    streams.create(Create("doomed", body=b"y" * 10), 1_012)
    streams.delete("doomed", 1_013)
    streams.delete("ttl", 1_014)
    return streams


def everything(
    engine: SqliteEngine, streams: CommittedStreams
) -> dict[object, LoadedStream | list[bytes] | None]:
    """All that there is to know about the streams that are left."""
    found: dict[object, LoadedStream | list[bytes] | None] = {}
    for path, state in streams.by_path.items():
        found[path] = engine.streams.load(path)
        for span in state.config.lineage.spans(0, state.tail):
            found[path, span] = engine.appends.read(span, 10**9)
    return found


# ── Opening ──────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_lost_by_closing_and_opening(directory: Path) -> None:
    with closing(SqliteEngine(directory)) as engine:
        streams = populate(engine)
        before = everything(engine, streams)
        listing = engine.streams.summaries("", "", 100)
    for _ in range(2):
        with closing(SqliteEngine(directory)) as engine:
            assert everything(engine, streams) == before
            assert engine.streams.summaries("", "", 100) == listing
            assert engine.streams.next_id() == streams.next_id


def test_ids_are_not_used_again_after_delete_reap_and_reopening(directory: Path) -> None:
    for number in range(1, 4):
        with closing(SqliteEngine(directory)) as engine:
            assert engine.streams.next_id() == number
            engine.commit([Created(config(number, "s")), Appended(number, 0, b"x", 0, 1, 5)])
            engine.commit([Deleted(number, 6)])
            while engine.reap(10):
                pass
            assert engine.streams.next_id() == number + 1


def test_a_commit_is_in_the_log_and_the_log_is_synced(directory: Path) -> None:
    with closing(SqliteEngine(directory)) as engine:
        writer = engine._writer
        assert writer.pragma("journal_mode") == "wal"
        assert writer.pragma("synchronous") == 2, "FULL: a commit is synced before it returns"
        assert connect(directory / DATABASE_NAME).pragma("journal_mode") == "wal"


def test_every_page_has_a_checksum(directory: Path) -> None:
    with closing(SqliteEngine(directory)) as engine:
        assert engine._writer.reserve_bytes("main") == 8
        assert engine._writer.pragma("checksum_verification") in (1, "1")


def test_reading_needs_no_writer_and_cannot_write(directory: Path) -> None:
    with closing(SqliteEngine(directory)) as engine:
        populate(engine)
        assert engine._reader().readonly("main")


# ── One transaction ──────────────────────────────────────────────────────────────────────────

GOOD: list[Mutation] = [
    Appended(1, 0, b"new", 0, 1, 6, ProducerStamp("p", 0, 0), "seq"),
    Created(config(2, "t")),
    Appended(2, 0, b"new", 0, 1, 6),
    Closed(1, 7, ProducerStamp("p", 0, 0)),
]


@pytest.mark.parametrize(
    "bad",
    [
        [Appended(1, 0, b"at the same place", 0, 1, 6)],
        [Created(config(1, "the same id"))],
        [Created(config(3, "s"))],  # the same path
        [Appended(3, 0, b"", 0, 1, 6), Appended(3, 0, b"", 0, 1, 6)],
    ],
)
@pytest.mark.parametrize("where", [0, 1, 4])
def test_a_commit_that_fails_half_way_leaves_nothing(
    directory: Path, bad: Sequence[Mutation], where: int
) -> None:
    with closing(SqliteEngine(directory)) as engine:
        engine.commit([Created(config(1, "s"))])
        before = engine.streams.load("s")
        batch = [*GOOD[:where], *bad, *GOOD[where:]]
        if where == 0 and isinstance(bad[0], Appended) and len(bad) == 1:
            batch = [*batch, *bad]
        with pytest.raises(StorageUnavailable):
            engine.commit(batch)
        assert engine.streams.load("s") == before
        assert engine.streams.load("t") is None
        assert engine.streams.next_id() == 2
        assert engine.streams.producer(1, "p") is None
        engine.commit(GOOD)
        after = engine.streams.load("s")
        assert after is not None
        assert (after.state.tail, after.state.closed, after.state.last_stream_seq) == (
            3,
            True,
            "seq",
        )
        assert engine.appends.read(Span(1, 0, 3), 10) == [b"new"]


def test_a_commit_that_fails_for_no_reason_of_sqlite_leaves_nothing_either(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteEngine(directory)) as engine:
        engine.commit([Created(config(1, "s"))])
        with monkeypatch.context() as patch:

            def fail(*_: object) -> None:
                raise MemoryError

            patch.setattr("headwater.store.sqlite.commits.write_change", fail)
            with pytest.raises(MemoryError):
                engine.commit(GOOD)
        loaded = engine.streams.load("s")
        assert loaded is not None
        assert (loaded.state.tail, loaded.state.producers) == (0, {})
        engine.commit(GOOD)


# ── Producers beyond what is loaded at once ──────────────────────────────────────────────────


def test_producers_that_were_not_loaded_are_still_known(directory: Path) -> None:
    with closing(SqliteEngine(directory, producers_preloaded_max=5)) as engine:
        batch: list[Mutation] = [Created(config(1, "s"))]
        for number in range(6):
            stamp = ProducerStamp(f"p{number}", number, 0)
            batch.append(Appended(1, number, b"x", number, 1, 6, stamp))
        engine.commit(batch[:-1])
        complete = engine.streams.load("s")
        assert complete is not None
        assert complete.producers_complete
        assert len(complete.state.producers) == 5
        engine.commit(batch[-1:])
        partial = engine.streams.load("s")
        assert partial is not None
        assert not partial.producers_complete
        for number in range(6):
            assert engine.streams.producer(1, f"p{number}") == ProducerState(number, 0)
        assert partial.state.producer_count == 6


# ── Appends that are not what was committed ──────────────────────────────────────────────────


def tamper(directory: Path, sql: str) -> None:
    """Change the database through SQLite itself, so that every page's own checksum holds."""
    with closing(connect(directory / DATABASE_NAME)) as connection:
        connection.execute(sql)


def problems(engine: SqliteEngine) -> list[str]:
    return [f"{line.where}: {line.what}" for line in engine.verify() if isinstance(line, Problem)]


@pytest.fixture
def four_appends(directory: Path) -> Path:
    """Streams 1 and 2 with two appends of two bytes each."""
    with closing(SqliteEngine(directory)) as engine:
        engine.commit([Created(config(1, "s")), Created(config(2, "t"))])
        for run in (1, 2):
            engine.commit([Appended(run, at, b"%dx" % run, at // 2, 1, 6) for at in (0, 2)])
        assert problems(engine) == []
    return directory


@pytest.mark.parametrize(
    "damage, finding",
    [
        ("UPDATE ops SET body = x'0000' WHERE stream_id = 1 AND start = 2", "checksum"),
        ("UPDATE ops SET body = x'317800' WHERE stream_id = 1 AND start = 2", "checksum"),
        ("UPDATE ops SET checksum = checksum + 1 WHERE stream_id = 1 AND start = 2", "checksum"),
        ("UPDATE ops SET start = 1 WHERE stream_id = 1 AND start = 2", "expected the next"),
        ("UPDATE ops SET start = 3 WHERE stream_id = 1 AND start = 2", "expected the next"),
        # A body of another stream, and one of another place in the same stream.
        (
            "UPDATE ops SET (body, checksum) = (SELECT body, checksum FROM ops WHERE stream_id = 2"
            " AND start = 2) WHERE stream_id = 1 AND start = 2",
            "checksum",
        ),
        (
            "UPDATE ops SET (body, checksum) = (SELECT body, checksum FROM ops WHERE stream_id = 1"
            " AND start = 0) WHERE stream_id = 1 AND start = 2",
            "checksum",
        ),
    ],
)
def test_a_changed_append_is_an_error_and_never_data(
    four_appends: Path, damage: str, finding: str
) -> None:
    tamper(four_appends, damage)
    with closing(SqliteEngine(four_appends)) as engine:
        with pytest.raises(DataCorrupt) as caught:
            engine.appends.read(Span(1, 0, 4), 100)
        assert "headwater verify" in caught.value.message
        assert engine.appends.read(Span(1, 0, 2), 1) == [b"1x"], "what comes before it is fine"
        assert engine.appends.read(Span(2, 0, 4), 100) == [b"2x", b"2x"]
        if finding == "checksum":
            with pytest.raises(DataCorrupt):
                engine.appends.append_at(1, 2)
        assert any(finding in problem for problem in problems(engine))


@pytest.mark.parametrize(
    "damage, finding",
    [
        ("DELETE FROM ops WHERE stream_id = 1 AND start = 0", "expected the next append at 0"),
        ("UPDATE ops SET first_message = 7 WHERE stream_id = 1 AND start = 2", "message number 1"),
        ("UPDATE ops SET messages = 5 WHERE stream_id = 1 AND start = 0", "message number 5"),
    ],
)
def test_verify_finds_what_no_single_read_can_see(
    four_appends: Path, damage: str, finding: str
) -> None:
    tamper(four_appends, damage)
    with closing(SqliteEngine(four_appends)) as engine:
        assert any(finding in problem for problem in problems(engine))


def test_verify_misses_what_a_fork_needs(directory: Path) -> None:
    with closing(SqliteEngine(directory)) as engine:
        populate(engine)
        assert problems(engine) == []
    tamper(directory, "DELETE FROM ops WHERE stream_id = 2")
    with closing(SqliteEngine(directory)) as engine:
        assert any("inherited" in problem for problem in problems(engine))


# ── Trouble with the database ────────────────────────────────────────────────────────────────


def test_whatever_sqlite_complains_about_is_a_refusal_with_words(directory: Path) -> None:
    """A table that went missing stands for everything that cannot be foreseen."""
    with closing(SqliteEngine(directory)) as engine:
        populate(engine)
    with closing(SqliteEngine(directory)) as engine:
        engine._writer.execute("DROP TABLE ops")
        questions: list[Callable[[], object]] = [
            lambda: engine.streams.load("json"),
            lambda: engine.appends.read(Span(1, 0, 1), 10),
            lambda: engine.appends.append_at(1, 0),
            lambda: engine.streams.summaries("", "", 10),
            lambda: engine.commit([Appended(1, 99, b"x", 0, 1, 6)]),
            lambda: engine.reap(10),
        ]
        for question in questions:
            with pytest.raises(StreamError) as caught:
                question()
            assert isinstance(caught.value, StorageUnavailable)
            assert "no such table" in caught.value.message


def test_a_connection_that_cannot_be_made_is_a_refusal_too(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteEngine(directory)) as engine:
        populate(engine)
    with closing(SqliteEngine(directory)) as engine:

        def refuse(*_: object, **__: object) -> apsw.Connection:
            raise apsw.CantOpenError("too many open files")

        monkeypatch.setattr("headwater.store.sqlite.engine.connect", refuse)
        for question in (
            lambda: engine.streams.load("json"),
            lambda: engine.appends.read(Span(1, 0, 1), 10),
        ):
            with pytest.raises(StorageUnavailable):
                question()


# ── The write-ahead log ──────────────────────────────────────────────────────────────────────


def test_the_log_is_emptied_into_the_database(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_NAME
    log = tmp_path / f"{DATABASE_NAME}-wal"
    with closing(open_writer(path)) as write, closing(connect(path)) as reader:
        write.execute("INSERT INTO secrets (kind, value, created_at) VALUES ('k', x'00', 1)")
        assert log.stat().st_size > 0
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM secrets").fetchall()
        write.set_busy_timeout(0)
        write.execute("INSERT INTO secrets (kind, value, created_at) VALUES ('l', x'00', 1)")
        assert not empty_log(write)
        reader.execute("COMMIT")
        assert empty_log(write)
        assert log.stat().st_size == 0
