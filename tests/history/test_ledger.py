"""When rows become history, and which of them share a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.core.stream import Appended
from headwater.store.history.ledger import Due, Ledger, into_files
from headwater.store.history.policies import SealPolicy

POLICY = SealPolicy(after_bytes=100, after_ms=1_000, database_bytes_max=10_000, segment_bytes=500)


def ledger(*runs: tuple[int, int, int]) -> Ledger:
    kept = Ledger()
    kept.survey(runs)
    return kept


def test_a_stream_with_much_in_rows_is_due() -> None:
    assert ledger((1, 99, 50), (2, 100, 50), (3, 101, 50)).due(POLICY, 60) == [(2, 100), (3, 101)]


def test_an_old_row_is_due_and_takes_along_what_will_be_before_long() -> None:
    kept = ledger((1, 5, 1_000), (2, 5, 1_499), (3, 5, 1_501))
    assert kept.due(POLICY, 1_999) == []
    assert kept.due(POLICY, 2_000) == [(1, 5), (2, 5)]


def test_the_largest_go_when_all_together_are_too_much() -> None:
    policy = replace(POLICY, after_bytes=10**9, database_bytes_max=150)
    kept = ledger((1, 60, 50), (2, 90, 50), (3, 70, 50))
    assert kept.due(policy, 60) == [(2, 90)]
    assert kept.due(replace(policy, database_bytes_max=220), 60) == []
    assert kept.due(replace(policy, database_bytes_max=59), 60) == [(1, 60), (2, 90), (3, 70)]


def test_commits_are_noted_from_the_start_on() -> None:
    kept = Ledger()
    kept.note([Appended(1, 0, b"x" * 200, 0, 1, 50)])
    assert kept.due(POLICY, 60) == [], "those before it are in the survey"
    kept.keep()
    kept.note([Appended(1, 200, b"x" * 60, 1, 1, 55), Appended(1, 260, b"x" * 60, 2, 1, 58)])
    assert kept.due(POLICY, 60) == [(1, 120)]
    kept.survey([(1, 200, 50)])
    assert kept.due(POLICY, 60) == [(1, 320)]


def test_what_was_sealed_is_not_due_any_more() -> None:
    kept = ledger((1, 200, 50), (2, 200, 50))
    kept.settle(1, None)
    kept.settle(2, (30, 59))
    assert kept.due(POLICY, 60) == []
    assert kept.due(POLICY, 1_059) == [(2, 30)]


def test_damaged_runs_are_left_alone() -> None:
    kept = ledger((1, 200, 50), (2, 200, 50))
    kept.keep()
    kept.bar(1)
    kept.settle(1, (200, 50))
    kept.note([Appended(1, 0, b"x" * 200, 0, 1, 50)])
    assert kept.due(POLICY, 10**6) == [(2, 200)]


sizes = st.lists(st.integers(1, 900), max_size=40)


@given(sizes)
def test_large_runs_have_files_to_themselves_and_small_ones_share(found: list[int]) -> None:
    due = [Due(run, size) for run, size in enumerate(found)]
    files = into_files(due, 500)
    assert sorted(one for file in files for one in file) == due
    shared = [file for file in files if len(file) > 1]
    assert all(sum(one.size_bytes for one in file) <= 500 for file in shared)
    small = [one for one in due if one.size_bytes < 500]
    # No two neighbouring files could have been one.
    totals = [sum(one.size_bytes for one in file) for file in files if file[0] in small]
    firsts = [file[0].size_bytes for file in files if file[0] in small]
    assert all(total + first > 500 for total, first in zip(totals, firsts[1:], strict=False))


def test_many_little_streams_make_few_files() -> None:
    due = [Due(run, 100) for run in range(100_000)]
    assert len(into_files(due, SealPolicy().segment_bytes)) == 1


class Counted(dict[int, tuple[int, int]]):
    """Counts how often all of it is looked at."""

    looks = 0

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def test_runs_are_looked_at_only_when_something_may_be_due() -> None:
    kept = ledger(*((run, 50, 1_000) for run in range(100)))
    counted = kept._runs = Counted(kept._runs)
    for now_ms in range(1_000, 1_999):
        assert kept.due(POLICY, now_ms) == []
    assert counted.looks == 0
    assert len(kept.due(POLICY, 2_000)) == 100
    for run in range(100):
        kept.settle(run, None if run else (50, 1_900))
    assert (kept.due(POLICY, 2_000), kept.due(POLICY, 2_001), counted.looks) == ([], [], 2)


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 60), st.integers(0, 3_000), st.sampled_from("ask"))
)


@given(STEPS, st.integers(20, 300))
def test_what_is_due_does_not_depend_on_what_was_asked_before(
    steps: list[tuple[int, int, int, str]], database_bytes_max: int
) -> None:
    policy = replace(POLICY, database_bytes_max=database_bytes_max)
    kept, model = Ledger(), dict[int, tuple[int, int]]()
    for run, size, at_ms, what in steps:
        if what == "a":
            kept.survey([(run, size, at_ms)])
            before = model.get(run, (0, at_ms))
            model[run] = (before[0] + size, min(before[1], at_ms))
        elif what == "s":
            kept.settle(run, None)
            model.pop(run, None)
        else:
            fresh = ledger(*((run, *rest) for run, rest in model.items()))
            fresh._largest = 10**9  # has it look at every run
            assert sorted(kept.due(policy, at_ms)) == sorted(fresh.due(policy, at_ms))
