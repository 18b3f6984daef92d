"""A run reads the same wherever its parts are: in memory, in rows, in extents, in any mixture."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.lineage import Lineage, Span
from headwater.core.producers import ProducerStamp
from headwater.core.stream import Appended, Created, StreamConfig
from headwater.store.engine import Engine, Problem
from headwater.store.engine.appends import Piece
from headwater.store.memory.engine import MemoryEngine
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.properties import FEW
from tests.support.sealing import compact_once, seal

BYTES = "application/octet-stream"
bodies = st.binary(min_size=1, max_size=9)
steps = st.lists(
    st.tuples(
        bodies,
        st.integers(1, 3),
        st.integers(0, 2),
        st.none() | st.just(ProducerStamp("a producer", 3, 1)),
        # Seal what is there so far, in files of this size.
        st.none() | st.sampled_from([1, 20, 9_999]),
        # Make few of the files that are there so far.
        st.sampled_from([False] * 3 + [True]),
    ),
    min_size=1,
    max_size=25,
)
Steps = list[tuple[bytes, int, int, ProducerStamp | None, int | None, bool]]


def pieces(engine: Engine, span: Span, max_bytes: int) -> bytes:
    return joined(engine.appends.read_pieces(span, max_bytes))


def joined(found: list[Piece]) -> bytes:
    return b"".join(piece if isinstance(piece, bytes) else piece.read() for piece in found)


def compare(memory: MemoryEngine, sqlite: SqliteEngine, appends: list[Appended]) -> None:
    tail = appends[-1].end
    for append in appends:
        for end in {tail, min(tail, append.end), min(tail, append.end + 2)}:
            span = Span(1, append.start, end)
            for max_bytes in (1, 2, 5, 8, 13, 40, 10**6):
                wanted = memory.appends.read(span, max_bytes)
                assert sqlite.appends.read(span, max_bytes) == wanted
                # From reads of the same place that went on to elsewhere.
                known = sqlite.appends.known_pieces(span, max_bytes)
                assert known is None or joined(known) == b"".join(wanted)
                assert pieces(sqlite, span, max_bytes) == b"".join(wanted)
        for position in range(append.start, append.end):
            assert sqlite.appends.append_at(1, position) == append
        whole = Span(1, 0, tail)
        for number in (append.first_message, append.first_message + append.messages):
            asked = whole, "first_message", number
            assert sqlite.appends.seek(*asked) == memory.appends.seek(*asked)  # type: ignore[arg-type]
        for at_ms in (append.at_ms - 1, append.at_ms):
            assert sqlite.appends.seek(whole, "at_ms", at_ms) == memory.appends.seek(
                whole, "at_ms", at_ms
            )
    assert sqlite.streams.load("s") == memory.streams.load("s")


@FEW
@given(steps)
def test_all_tiers_agree(made: Steps) -> None:
    memory, appends = MemoryEngine(), list[Appended]()
    with tempfile.TemporaryDirectory() as name, closing(SqliteEngine(Path(name))) as sqlite:
        created = Created(StreamConfig(1, "s", BYTES, 5, lineage=Lineage(1)))
        for engine in (memory, sqlite):
            engine.commit([created])
        start, message, at_ms = 0, 0, 1_000
        for body, messages, later_ms, stamp, seal_to, fewer in made:
            at_ms += later_ms
            append = Appended(1, start, body, message, messages, at_ms, stamp)
            start, message = append.end, message + messages
            appends.append(append)
            for engine in (memory, sqlite):
                engine.commit([append])
            if seal_to is not None:
                seal(sqlite, None, seal_to)
            if fewer:
                compact_once(sqlite, 9_999)
        compare(memory, sqlite, appends)
        assert [line for line in sqlite.verify() if isinstance(line, Problem)] == []


# ── Sealing meanwhile ────────────────────────────────────────────────────────────────────────

LOOK_UPS_MAX = 8
TAIL = 30
LookUp = Callable[[Engine], object]
LOOK_UPS: dict[str, LookUp] = {
    "read": lambda engine: b"".join(engine.appends.read(Span(1, 0, TAIL), 99)),
    "a part": lambda engine: b"".join(engine.appends.read(Span(1, 12, 21), 99)),
    "pieces": lambda engine: pieces(engine, Span(1, 6, TAIL), 99),
    "an append": lambda engine: engine.appends.append_at(1, 14),
    "outline": lambda engine: engine.appends.outline_at(1, 14),
    "by number": lambda engine: engine.appends.seek(Span(1, 0, TAIL), "first_message", 7),
    "by time": lambda engine: engine.appends.seek(Span(1, 0, TAIL), "at_ms", 3),
    "frames": lambda engine: [
        (time, frame.data[:6])
        for frame in engine.appends.frames(Span(1, 0, TAIL), 6, 2)
        for time in frame.times
    ],
}


@contextmanager
def sealed_before(sqlite: SqliteEngine, number: int) -> Iterator[None]:
    """Seal everything right before the query with this number that looks for appends."""
    queries = count()
    appends = sqlite.appends

    def asking(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*values: Any) -> Any:
            if next(queries) == number:
                seal(sqlite, segment_bytes=12)
            return ask(*values)

        return asked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appends, "_query", asking(appends._query))
        patch.setattr(appends, "_reader", asking(appends._reader))
        yield


@pytest.mark.parametrize("number", range(LOOK_UPS_MAX))
@pytest.mark.parametrize("name", LOOK_UPS)
def test_what_is_sealed_between_two_queries_is_found(
    tmp_path: Path, name: str, number: int
) -> None:
    appends = [Appended(1, at * 6, b"%06d" % at, at * 2, 2, at) for at in range(5)]
    created = Created(StreamConfig(1, "s", BYTES, 0, lineage=Lineage(1)))
    memory = MemoryEngine()
    with closing(SqliteEngine(tmp_path)) as sqlite:
        for engine in (memory, sqlite):
            engine.commit([created, *appends])
        with sealed_before(sqlite, number):
            assert LOOK_UPS[name](sqlite) == LOOK_UPS[name](memory)
