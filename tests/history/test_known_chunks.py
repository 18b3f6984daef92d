"""Chunks that were read before are found at once, and only where they are still the right ones."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headwater.core.lineage import Lineage, Span
from headwater.core.stream import Appended, Created, StreamConfig
from headwater.store.engine.appends import FileRange, Piece
from headwater.store.history import chunk_cache, page_cache
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.sealing import seal

RUN = 1
BODY = b"0123456789"
APPENDS = 10
FULL = 3 * len(BODY)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SqliteEngine]:
    """A stream of equal appends; all but the last two are in one file."""
    with closing(SqliteEngine(tmp_path)) as engine:
        config = StreamConfig(RUN, "s", "text/plain", 5, lineage=Lineage(RUN))
        engine.commit([Created(config)])
        for number in range(APPENDS):
            if number == APPENDS - 2:
                seal(engine)
            engine.commit([Appended(RUN, number * len(BODY), BODY, number, 1, 1_000, None)])
        yield engine


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every file system can tell, and this is not about that."""
    monkeypatch.setattr(page_cache, "is_in_memory", lambda file, offset, length: True)


def span(start: int = 0, end: int = APPENDS) -> Span:
    return Span(RUN, start * len(BODY), end * len(BODY))


def content(pieces: list[Piece] | None) -> bytes | None:
    if pieces is None:
        return None
    return b"".join(piece if isinstance(piece, bytes) else piece.read() for piece in pieces)


def test_what_was_read_before_is_known(engine: SqliteEngine) -> None:
    assert engine.appends.known_pieces(span(), FULL) is None
    read = engine.appends.read_pieces(span(), FULL)
    assert engine.appends.known_pieces(span(), FULL) == read
    assert content(read) == BODY * 3


def test_a_chunk_of_another_size_is_another_one(engine: SqliteEngine) -> None:
    engine.appends.read_pieces(span(), FULL)
    assert engine.appends.known_pieces(span(), FULL + 1) is None
    assert engine.appends.known_pieces(span(1), FULL) is None


def test_a_full_chunk_is_the_same_however_much_follows(engine: SqliteEngine) -> None:
    engine.appends.read_pieces(span(end=5), FULL)
    assert content(engine.appends.known_pieces(span(end=8), FULL)) == BODY * 3
    assert content(engine.appends.known_pieces(span(end=3), FULL)) == BODY * 3


def test_a_chunk_that_passes_the_end_is_of_no_use(engine: SqliteEngine) -> None:
    engine.appends.read_pieces(span(), FULL)
    assert engine.appends.known_pieces(span(end=2), FULL) is None


def test_a_chunk_that_had_no_more_to_read_is_of_use_only_there(engine: SqliteEngine) -> None:
    engine.appends.read_pieces(span(end=2), FULL)
    assert content(engine.appends.known_pieces(span(end=2), FULL)) == BODY * 2
    assert engine.appends.known_pieces(span(end=5), FULL) is None


def test_what_is_partly_in_rows_is_looked_for_again(engine: SqliteEngine) -> None:
    pieces = engine.appends.read_pieces(span(start=7), FULL)
    assert [type(piece) for piece in pieces] == [FileRange, bytes, bytes]
    assert engine.appends.known_pieces(span(start=7), FULL) is None


def test_what_is_not_open_any_more_is_looked_for_again(engine: SqliteEngine) -> None:
    engine.appends.read_pieces(span(), FULL)
    engine.history.open_segments.drop(1)
    assert engine.appends.known_pieces(span(), FULL) is None
    assert content(engine.appends.read_pieces(span(), FULL)) == BODY * 3
    assert content(engine.appends.known_pieces(span(), FULL)) == BODY * 3


def test_what_was_not_compared_since_it_was_opened_is_not_known(engine: SqliteEngine) -> None:
    engine.appends.read_pieces(span(), FULL)
    open_segments = engine.history.open_segments
    held = open_segments.held(1)
    assert held is not None
    open_segments.drop(1)
    opened = open_segments.segment(held.row)
    assert not opened.is_at_hand(0, FULL)
    assert engine.appends.known_pieces(span(), FULL) is None


def test_what_the_disk_has_to_be_asked_for_is_not_known(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.appends.read_pieces(span(), FULL)
    monkeypatch.setattr(page_cache, "is_in_memory", lambda file, offset, length: False)
    assert engine.appends.known_pieces(span(), FULL) is None
    assert content(engine.appends.read_pieces(span(), FULL)) == BODY * 3


def test_only_so_many_are_remembered(engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_cache, "_NOTES_MAX", 2)
    for start in range(3):
        engine.appends.read_pieces(span(start), FULL)
    known = [engine.appends.known_pieces(span(start), FULL) is not None for start in range(3)]
    assert known == [False, True, True]


def test_the_page_cache_is_asked_for_every_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    asked: list[int] = []

    def probe(file: int, place: int) -> None:
        asked.append(place)
        if missing is not None and missing <= place:
            raise BlockingIOError

    missing: int | None = None
    monkeypatch.setattr(page_cache, "_probe", probe)
    assert page_cache.is_in_memory(3, 1_000, 300_000)
    assert asked == [1_000, 132_072, 263_144, 300_999]
    missing = 300_000
    assert not page_cache.is_in_memory(3, 1_000, 300_000)


@pytest.mark.skipif(sys.platform != "linux", reason="the system cannot tell")
@pytest.mark.parametrize("find", [page_cache.probe_of_interpreter, page_cache.probe_of_libc])
def test_probes_ask_the_kernel(find: Callable[[], page_cache.Probe | None], tmp_path: Path) -> None:
    probe = find()
    if probe is None:
        assert find is not page_cache.probe_of_libc or platform.libc_ver()[0] != "glibc"
        return
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    with path.open("rb") as file:
        probe(file.fileno(), 9)
        closed = file.fileno()
    with pytest.raises(OSError, match=r"\[Errno 9\]"):
        probe(closed, 0)
