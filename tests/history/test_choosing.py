"""Which files are rewritten: those worth it, and none over and over."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from headwater.store.history.compaction_choice import COMPANY, FileUse, choose
from headwater.store.history.segment import SegmentRow
from tests.support.properties import NORMAL

SEGMENT_BYTES = 64_000_000


def file(number: int, size: int, needed: int | None = None) -> FileUse:
    row = SegmentRow(number, f"{number}.seg", size, "")
    return FileUse(row, 1, size if needed is None else needed, size)


sizes = st.one_of(st.integers(100, 10_000), st.integers(10_000, SEGMENT_BYTES))
files = st.lists(st.tuples(sizes, st.floats(0.01, 1)), max_size=300).map(
    lambda found: [
        file(number, size, max(1, int(size * share))) for number, (size, share) in enumerate(found)
    ]
)


@NORMAL
@given(files, st.sampled_from([2, COMPANY]))
def test_each_file_is_chosen_once_and_what_comes_of_it_is_not_too_large(
    files: list[FileUse], company: int
) -> None:
    groups = choose(files, SEGMENT_BYTES, company)
    chosen = [one for group in groups for one in group]
    assert len(set(chosen)) == len(chosen)
    for group in groups:
        assert len(group) == 1 or sum(one.needed_bytes for one in group) <= SEGMENT_BYTES
        assert len(group) > 1 or group[0].is_wasteful, "copied for nothing"
    assert {one for one in files if one.is_wasteful} <= set(chosen)
    assert all(one.is_wasteful or 2 * one.row.size_bytes < SEGMENT_BYTES for one in chosen)


@NORMAL
@given(st.lists(sizes, min_size=1, max_size=600))
def test_little_is_written_for_what_comes_in(arriving: list[int]) -> None:
    """Files come one by one, and each time everything that is worth it is rewritten."""
    numbers, here, written = count(), list[FileUse](), 0
    for size in arriving:
        here.append(file(next(numbers), size))
        while groups := choose(here, SEGMENT_BYTES):
            for group in groups:
                written += (total := sum(one.needed_bytes for one in group))
                here = [one for one in here if one not in group]
                here.append(file(next(numbers), total))
    classes = (SEGMENT_BYTES // min(arriving)).bit_length() // 3 + 1
    assert written <= classes * sum(arriving), "once for each size that a byte passes through"
    small = [one for one in here if 2 * one.row.size_bytes < SEGMENT_BYTES]
    assert len(small) <= classes * (COMPANY - 1)


@NORMAL
@given(files)
def test_who_does_not_wait_for_company_leaves_one_small_file(files: list[FileUse]) -> None:
    numbers = count(1_000)
    while groups := choose(files, SEGMENT_BYTES, company=2):
        for group in groups:
            files = [one for one in files if one not in group]
            files.append(file(next(numbers), sum(one.needed_bytes for one in group)))
    assert sum(2 * one.row.size_bytes < SEGMENT_BYTES for one in files) <= 1
    assert not any(one.is_wasteful for one in files)
