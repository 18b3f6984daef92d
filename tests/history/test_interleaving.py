"""Rows of many streams in one pass: the file is the same as if they were read one by one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.expiry import FOREVER
from headwater.core.lineage import Lineage
from headwater.core.producers import ProducerStamp
from headwater.core.stream import Appended, Created, StreamConfig
from headwater.store.history import sealing
from headwater.store.history.interleaving import Share, is_worthwhile
from headwater.store.history.ledger import Due
from headwater.store.history.placed_blocks import PlacedBlocks
from headwater.store.history.sealing import Recording
from headwater.store.history.segment import Segment
from headwater.store.history.segment_format import BLOCK_BYTES, block_sum
from headwater.store.rows import Row
from headwater.store.sqlite import history as sqlite_history
from headwater.store.sqlite.engine import SqliteEngine
from tests.support.sealing import in_rows

# The stream, the size and whether there is a producer, of each append.
written = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 40_000), st.booleans()), min_size=1, max_size=40
)


@contextmanager
def filled(appends: list[tuple[int, int, bool]]) -> Iterator[SqliteEngine]:
    with TemporaryDirectory() as directory:
        engine = SqliteEngine(Path(directory))
        engine.commit([Created(config(run)) for run in range(1, 5)])
        tails, counts = dict.fromkeys(range(1, 5), 0), dict.fromkeys(range(1, 5), 0)
        for number, (run, size, stamped) in enumerate(appends):
            stamp = ProducerStamp("p", 1, number) if stamped else None
            body = bytes([number]) * size
            engine.commit([Appended(run, tails[run], body, counts[run], 1, number, stamp)])
            tails[run] += size
            counts[run] += 1
        yield engine
        engine.close()


def config(run: int) -> StreamConfig:
    return StreamConfig(
        id=run,
        path=f"s{run}",
        content_type="text/plain",
        created_at_ms=1,
        lifetime=FOREVER,
        lineage=Lineage(run, ()),
    )


def content(engine: SqliteEngine, recording: Recording | None) -> list[object]:
    """Everything in a file, apart from where it is."""
    assert recording is not None
    draft = recording.draft
    segment = Segment.open(engine.history.directory / draft.name, draft.row())
    segment.check_all()
    found: list[object] = []
    for made in draft.extents:
        extent, end = segment.extent(made.index_offset), made.marks[-1]
        appends = [extent.append(number) for number in range(end.appends)]
        found.append((made._replace(index_offset=0), appends, extent.body(made.start, end.end)))
    return found


@settings(max_examples=25, deadline=None)
@given(written, st.lists(st.integers(1, 300_000), min_size=4, max_size=4), st.integers(1, 30))
def test_the_same_file_either_way(
    appends: list[tuple[int, int, bool]], sizes: list[int], batch: int
) -> None:
    due = [Due(run, size) for run, size in enumerate(sizes, start=1)]
    with filled(appends) as engine, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_history, "_BATCH_ROWS", batch)
        # One mark for each append, so that the marks are the same as well.
        patch.setattr("headwater.store.history.gathering.SLICE_APPENDS", 1)
        patch.setattr(sealing, "is_worthwhile", bool)
        together = engine.history.gather(due, 10**6)
        patch.setattr(sealing, "is_worthwhile", lambda _: False)
        alone = engine.history.gather(due, 10**6)
        assert content(engine, together) == content(engine, alone)
        assert together is not None
        assert alone is not None
        assert together.cut == alone.cut


TURNS = [(number % 4 + 1, 100, False) for number in range(60)]


def test_streams_written_at_the_same_time_are_read_row_by_row_once() -> None:
    with filled(TURNS) as engine, pytest.MonkeyPatch.context() as patch:
        read: list[int] = []
        batches = engine.history._batches

        def counted(shares: Sequence[Share]) -> Iterator[list[Row]]:
            for rows in batches(shares):
                read.append(len(rows))
                yield rows

        patch.setattr(engine.history, "_batches", counted)
        assert engine.history.gather(in_rows(engine), 10**6) is not None
        assert sum(read) == len(TURNS)


def test_a_stream_that_is_spread_thin_is_read_alone() -> None:
    with filled([(1, 10, False), *[(2, 10, False)] * 50, (1, 10, False)]) as engine:
        shares = engine.history._shares([Due(1, 20)], 10**6)
        assert [(one.appends, one.is_cut) for one in shares] == [(2, False)]
        assert not is_worthwhile(shares)
        both = engine.history._shares([Due(1, 20), Due(3, 20)], 10**6)
        assert [one.run for one in both] == [1], "the other has nothing"


def test_damaged_rows_stay_and_those_before_them_are_sealed() -> None:
    with filled(TURNS) as engine:
        engine._writer.execute("UPDATE ops SET checksum = 1 WHERE stream_id = 2 AND start = 300")
        recording = engine.history.gather(in_rows(engine), 10**6)
        assert recording is not None
        ends = {one.run: one.marks[-1].end for one in recording.draft.extents}
        assert ends == {1: 1_500, 2: 300, 3: 1_500, 4: 1_500}
        files = [path.name for path in engine.history.directory.iterdir()]
        assert files == [recording.draft.name], "the attempt left nothing"


@given(
    st.integers(1, 3 * BLOCK_BYTES),
    st.lists(st.integers(0, 3 * BLOCK_BYTES), max_size=5),
    st.randoms(),
)
@settings(max_examples=30, deadline=None)
def test_blocks_in_any_order(size: int, cuts: list[int], random: Random) -> None:
    data = os.urandom(64) * (size // 64 + 1)
    data = data[:size]
    places = sorted({0, size, *(cut for cut in cuts if cut < size)})
    parts = [(first, data[first:last]) for first, last in pairwise(places)]
    random.shuffle(parts)
    with TemporaryDirectory() as directory:
        path = Path(directory) / "file"
        with path.open("wb") as file:
            blocks = PlacedBlocks(file.fileno(), size)
            for offset, part in parts:
                blocks.write(offset, part)
            sums, rest = blocks.end()
        full = size // BLOCK_BYTES * BLOCK_BYTES
        assert path.read_bytes() + rest == data
        assert len(rest) == size - full
        assert sums == [
            block_sum(at // BLOCK_BYTES, data[at : at + BLOCK_BYTES])
            for at in range(0, full, BLOCK_BYTES)
        ]
