"""The order in which the parts of a file are recorded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.store.history.sealing import Part, Recording
from headwater.store.history.segment_writer import ExtentDraft, Mark, SegmentDraft

times = st.lists(st.integers(0, 5), min_size=1, max_size=8)


def extent(run: int, at_ms: list[int]) -> ExtentDraft:
    marks = tuple(Mark(n * 10, n * 100, n * 100, at) for n, at in enumerate(at_ms, start=1))
    return ExtentDraft(run, 0, 0, at_ms[0], 0, marks)


def recorded(extents: list[ExtentDraft]) -> list[Part]:
    recording = Recording(SegmentDraft(1, "name", 1, "root", tuple(extents)))
    found: list[Part] = []
    while parts := recording.slice():
        found += parts
        recording.done(set(), begun=True)
    return found


def test_what_was_written_at_the_same_time_goes_at_the_same_time() -> None:
    parts = recorded([extent(1, [10, 30, 50]), extent(2, [20, 40, 60])])
    assert [(part[0].run, part[2].last_at_ms) for part in parts] == [
        (1, 10), (2, 20), (1, 30), (2, 40), (1, 50), (2, 60),
    ]  # fmt: skip


@given(st.lists(times, min_size=1, max_size=5))
def test_each_extent_is_recorded_from_its_beginning_to_its_end(made: list[list[int]]) -> None:
    """Whatever the clock did meanwhile."""
    extents = [extent(run, at_ms) for run, at_ms in enumerate(made)]
    parts = recorded(extents)
    for one in extents:
        own = [(since, to) for part, since, to in parts if part is one]
        assert own == list(zip((None, *one.marks), one.marks, strict=False))
