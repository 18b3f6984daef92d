"""Segment files: what is written is read back, and what was changed is never taken for it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import DataCorrupt
from headwater.core.frames import Frame
from headwater.core.producers import ProducerStamp
from headwater.core.stream import Appended
from headwater.store.history import segment_format
from headwater.store.history.gathering import as_columns, in_slices
from headwater.store.history.segment import Segment, SegmentRow
from headwater.store.history.segment_writer import SegmentBuilder, SegmentDraft
from headwater.store.rows import op_row
from tests.support.properties import FEW

bodies = st.one_of(
    st.binary(min_size=1, max_size=20),
    # Some that span blocks.
    st.integers(segment_format.BLOCK_BYTES - 40, 2 * segment_format.BLOCK_BYTES + 40).map(
        lambda size: Random(size).randbytes(size)
    ),
)
stamps = st.none() | st.builds(
    ProducerStamp, st.text(min_size=1, max_size=9), st.integers(0, 2**53 - 1), st.integers(0, 9)
)
appends = st.lists(
    st.tuples(bodies, st.integers(1, 5), st.integers(0, 2**45), stamps), min_size=1, max_size=12
)
extents = st.lists(
    st.tuples(st.integers(1, 2**40), st.integers(0, 2**50), st.integers(0, 2**50), appends),
    min_size=1,
    max_size=4,
)
Extents = list[tuple[int, int, int, list[tuple[bytes, int, int, ProducerStamp | None]]]]


def as_appended(made: Extents) -> list[list[Appended]]:
    found = []
    for run, start, message, contents in made:
        extent = []
        for body, messages, at_ms, stamp in contents:
            named = f"é{at_ms}" if at_ms % 3 == 0 else None
            extent.append(
                Appended(run, start, body, message, messages, at_ms, stamp, message_id=named)
            )
            start, message = start + len(body), message + messages
        found.append(extent)
    return found


def write(directory: Path, made: list[list[Appended]]) -> SegmentDraft:
    builder = SegmentBuilder(directory, 7)
    for extent in made:
        first = extent[0]
        builder.begin(first.stream_id, first.start, first.first_message)
        for taken in in_slices(map(op_row, extent)):
            builder.add_all(*as_columns(taken))
        builder.mark()
    return builder.finish()


def assert_same(found: Frame, wanted: Frame) -> None:
    """The same appends, whatever their numbers are counted from."""
    assert (found.run, found.start, found.data) == (wanted.run, wanted.start, wanted.data)
    for mine, other in ((found.starts, wanted.starts), (found.firsts, wanted.firsts)):
        assert [n - mine[0] for n in mine] == [n - other[0] for n in other]
    assert found.times == wanted.times
    assert producers(found) == producers(wanted)
    assert (found.ids or [None] * found.appends) == (wanted.ids or [None] * wanted.appends)


def producers(block: Frame) -> list[ProducerStamp | None]:
    return [block.stamps.stamp(n) if block.stamps else None for n in range(block.appends)]


def row_of(draft: SegmentDraft) -> SegmentRow:
    return SegmentRow(draft.id, draft.name, draft.size_bytes, draft.root)


@FEW
@given(extents)
def test_what_is_written_is_read_back(made: Extents) -> None:
    wanted = as_appended(made)
    with tempfile.TemporaryDirectory() as name:
        draft = write(Path(name), wanted)
        assert [path.name for path in Path(name).iterdir()] == [draft.name]
        assert (Path(name) / draft.name).stat().st_size == draft.size_bytes
        segment = Segment.open(Path(name) / draft.name, row_of(draft))
        segment.check_all()
        directory = segment.directory()
        assert [(e.run, e.start, e.end) for e in directory] == [
            (appends[0].stream_id, appends[0].start, appends[-1].end) for appends in wanted
        ]
        for entry, appends in zip(directory, wanted, strict=True):
            extent = segment.extent(entry.index_offset)
            assert [extent.appended(n) for n in range(extent.header.appends)] == appends
            start, end = entry.start, entry.end
            assert extent.bodies(start, end) == [a.body for a in appends]
            assert extent.range(start, end).read() == b"".join(a.body for a in appends)
            assert_same(extent.frame(start, end, end), Frame.of(appends, end))
            for one in appends:
                # Cut at a limit, and in the middle of an append as forks do it.
                inside = max(one.start + 1, one.end - 1)
                cut = Frame.of([one], inside)
                assert_same(extent.frame(one.start, inside, end), cut)
                assert_same(extent.frame(one.start, end, one.end), Frame.of([one], end))
            for number, append in enumerate(appends):
                assert extent.number_at(append.start) == number
                assert extent.number_at(append.end - 1) == number
                # The last append is cut where the reader wants to stop.
                assert extent.bodies(append.start, append.end - 1) == [
                    part for part in [append.body[:-1]] if part
                ]


@FEW
@given(st.lists(st.builds(segment_format.Entry, *[st.integers(0, 2**64 - 1)] * 4)))
def test_directories_are_read_back(entries: list[segment_format.Entry]) -> None:
    assert segment_format.read_directory(segment_format.encode_directory(entries)) == entries


@FEW
@given(st.integers(0, 2**40), st.integers(0, 40), st.integers(1, segment_format.BLOCK_BYTES))
def test_trailers_are_read_back(directory: int, blocks: int, last: int) -> None:
    covered = blocks * segment_format.BLOCK_BYTES + last
    sums = tuple(Random(blocks).getrandbits(64) for _ in range(blocks + 1))
    trailer = segment_format.Trailer(directory, covered, sums)
    encoded = trailer.encode()
    assert segment_format.read_trailer(encoded) == trailer
    assert len(encoded) == segment_format.trailer_bytes(covered)


# ── Damage ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def sound(tmp_path: Path) -> tuple[Path, SegmentDraft, list[Appended]]:
    random = Random(11)
    appends, start = [], 100
    for number in range(40):
        body = random.randbytes(random.choice([3, 500, 20_000]))
        stamp = ProducerStamp("p", 1, number) if number % 3 else None
        appends.append(Appended(5, start, body, number, 1, 1_000 + number, stamp))
        start += len(body)
    draft = write(tmp_path, [appends])
    return tmp_path / draft.name, draft, appends


def everything(path: Path, draft: SegmentDraft) -> list[Appended]:
    segment = Segment.open(path, row_of(draft))
    extent = segment.extent(draft.extents[0].index_offset)
    return [extent.appended(number) for number in range(extent.header.appends)]


def test_a_flipped_bit_is_an_error_wherever_it_is(
    sound: tuple[Path, SegmentDraft, list[Appended]],
) -> None:
    path, draft, appends = sound
    content = path.read_bytes()
    random = Random(3)
    trailer = len(content) - segment_format.trailer_bytes(draft.size_bytes - 200)
    bits = [random.randrange(len(content) * 8) for _ in range(60)]
    bits += [random.randrange(trailer * 8, len(content) * 8) for _ in range(60)]
    for bit in bits:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(DataCorrupt) as caught:
            Segment.open(path, row_of(draft)).check_all()
        assert draft.name in caught.value.where
        try:
            assert everything(path, draft) == appends
        except DataCorrupt:
            continue
    path.write_bytes(content)
    assert everything(path, draft) == appends


@pytest.mark.parametrize("size", [0, 1, 7, 60, 5_000, -1, -9, -60, -300])
def test_a_file_that_is_cut_short_is_an_error(
    sound: tuple[Path, SegmentDraft, list[Appended]], size: int
) -> None:
    path, draft, _ = sound
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataCorrupt):
        Segment.open(path, row_of(draft)).check_all()


def test_a_whole_file_that_is_not_the_recorded_one_is_an_error(
    sound: tuple[Path, SegmentDraft, list[Appended]], tmp_path: Path
) -> None:
    path, draft, appends = sound
    (tmp_path / "other").mkdir()
    longer = appends[-1].end - 1
    other = write(tmp_path / "other", [[*appends[:-1], Appended(5, longer, b"?", 39, 1, 9)]])
    path.write_bytes((tmp_path / "other" / other.name).read_bytes())
    with pytest.raises(DataCorrupt):
        Segment.open(path, row_of(draft)._replace(size_bytes=other.size_bytes))


def test_a_file_that_shrinks_while_it_is_open_gives_no_wrong_bytes(
    sound: tuple[Path, SegmentDraft, list[Appended]],
) -> None:
    path, draft, _ = sound
    segment = Segment.open(path, row_of(draft))
    extent = segment.extent(draft.extents[0].index_offset)
    whole = extent.range(100, 100 + 300)
    with path.open("r+b") as file:
        file.truncate(50)
    with pytest.raises(DataCorrupt):
        whole.read()
    with pytest.raises(DataCorrupt):
        extent.body(100, 400)


def test_an_abandoned_file_leaves_nothing(tmp_path: Path) -> None:
    builder = SegmentBuilder(tmp_path, 1)
    builder.begin(1, 0, 0)
    builder.add_all(*as_columns([op_row(Appended(1, 0, b"x" * 300_000, 0, 1, 2))]))
    builder.abandon()
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_was_removed_can_still_be_read_by_who_has_it(
    sound: tuple[Path, SegmentDraft, list[Appended]],
) -> None:
    path, draft, appends = sound
    segment = Segment.open(path, row_of(draft))
    whole = segment.extent(draft.extents[0].index_offset).range(100, appends[-1].end)
    path.unlink()
    del segment
    assert whole.read() == b"".join(append.body for append in appends)
